"""Ending a call that does not return: a stranger's assignor may loop, and one row must not hold up the study.

A signal is the only thing that interrupts Python code which does not cooperate; Spark's Python workers run our rows on
their main thread, where signals arrive. Elsewhere, as on Windows, there is no limit.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["OutOfTime", "deadline"]


class OutOfTime(BaseException):
    """The time is up. No ``Exception``, so that code which catches those does not catch this."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the block after this many seconds of wall-clock time.

    Raises:
        OutOfTime: the block was not through.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def interrupt(_number: int, _frame: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
