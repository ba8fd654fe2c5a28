"""Many runs of a function: several at once, on this machine or on a Ray cluster.

Whatever happens to a job, its worker or the driver, a finished job is on disk and is not run again,
and a failed one is reported, tried again and named at the end.
"""

from experiments.sweep.driver import Event, Outcome, sweep
from experiments.sweep.jobs import Failure, Job
from experiments.sweep.reporting import run_all

__all__ = ["Event", "Failure", "Job", "Outcome", "run_all", "sweep"]
