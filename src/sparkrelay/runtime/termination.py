"""SIGTERM, which is how a cluster's manager asks a program to end, becomes an orderly stop."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["on_termination"]

log = logging.getLogger(__name__)


@contextlib.contextmanager
def on_termination(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` when SIGTERM comes within the block, if nobody else handles it and this is the main thread.

    It is called on a thread of its own: a signal may find the main thread inside any lock.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        threading.Thread(target=run, name="sparkrelay-termination", daemon=True).start()

    def run() -> None:
        log.info("SIGTERM: stopping")
        stop()

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
