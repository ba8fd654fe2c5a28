"""A worker process: runs the jobs that its driver sends, and does not outlive it.

Its end of the driver: a thread reads the connection, on which the system reports the end of file
when the driver is gone, however it went; the worker then kills its own process group, with what its
job has started. (PR_SET_PDEATHSIG is Linux only, is raised by the end of the thread that started
the worker, and reaches no further than the worker.) Code that keeps Python's global lock delays the
thread; until it ends the worker holds the lock of the sweep's folder, which it has inherited, and
the next driver waits.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

from experiments import interrupts
from experiments.sweep.jobs import execute

STOP = b""


def main(connection: int, lock: int, work: str, threads: int) -> None:
    """Run jobs until told to stop.

    Args:
        connection: the descriptor of a socket to the driver.
        lock: the descriptor that holds the folder's lock, to be kept open.
        work: the function's reference.
        threads: what a job may use.
    """
    # Programs that jobs start are none of the driver's business; nor are forks, except that they
    # keep the lock: they are part of the job.
    os.set_inheritable(connection, False)
    os.set_inheritable(lock, False)
    driver: Connection[bytes, bytes] = Connection(connection)
    os.register_at_fork(after_in_child=driver.close)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_receive, args=(driver, inbox), daemon=True).start()
    try:
        interrupts.let_through()
        while (settings := inbox.get()) != STOP:
            reply = execute(work, json.loads(settings), threads)
            sys.stdout.flush()
            sys.stderr.flush()
            driver.send_bytes(reply.encode())
    except KeyboardInterrupt:
        sys.exit(interrupts.STATUS)


def _receive(driver: Connection[bytes, bytes], inbox: SimpleQueue[bytes]) -> None:
    try:
        while True:
            inbox.put(driver.recv_bytes())
    except (EOFError, OSError):
        os.killpg(os.getpid(), signal.SIGKILL)
