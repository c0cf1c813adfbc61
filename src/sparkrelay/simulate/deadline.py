"""A time limit for calls: a user's assignor may loop, and one row must not block the study.

Only a signal interrupts uncooperative Python code. Spark's Python workers process rows on their main thread, where
signals arrive. Elsewhere, as on Windows, there is no limit.
"""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class OutOfTime(BaseException):
    """The time is up. Not an ``Exception``, so that handlers of those do not catch it."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Interrupt the block after this many seconds of wall-clock time.

    Raises:
        OutOfTime: the block did not finish in time.
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
