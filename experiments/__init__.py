"""The paper's experiments. Each is a package to run with ``python -m``; what they share is here."""

import sys

# So it is while Python looks for the module of `python -m experiments.NAME`, before anything that
# takes time is imported. Whoever imports the experiments keeps their own handlers.
if sys.argv[:1] == ["-m"]:
    from experiments.interrupts import end_at_once

    end_at_once()
