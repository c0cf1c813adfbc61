"""Fault points: places between two writes where a test can kill the process, on purpose instead of by luck.

``SPARKRELAY_FAULT=<point>:<count>:<file>`` makes the process kill itself with SIGKILL when it reaches the point for
the count-th time; the file keeps the count over all workers, so that the fault strikes once and not again after the
restart. Unset, which is always outside of tests, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

__all__ = ["POINTS", "reach"]

#: Every point, in the order in which a micro-batch passes them.
POINTS: Final = (
    "driver-before-job",
    "state-before-apply",
    "state-after-apply",
    "publish-before-flush",
    "publish-after-flush",
    "driver-before-commit",
    "driver-after-commit",
)

_FAULT: Final = os.environ.get("SPARKRELAY_FAULT")


def reach(point: str) -> None:
    """Die here if a test asked for it."""
    if _FAULT is None:
        return
    wanted, count, counter = _FAULT.split(":", 2)
    if point != wanted:
        return
    path = Path(counter)
    with path.open("ab") as file:
        file.write(b".")
    if path.stat().st_size == int(count):
        os.kill(os.getpid() if point.startswith("driver") else _driver(), signal.SIGKILL)


def _driver() -> int:
    """Return the pid to kill for a fault in a worker: the whole instance, which the test named."""
    return int(os.environ.get("SPARKRELAY_FAULT_PID", os.getpid()))
