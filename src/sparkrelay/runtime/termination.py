"""SIGTERM and Ctrl-C become an orderly stop while a script waits for the end of its instance."""

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
def on_termination(stop: Callable[[float | None], object]) -> Iterator[None]:
    """Have signals that come within the block call ``stop``, if this is the main thread and nobody else handles them.

    SIGTERM calls ``stop(0)`` on a thread of its own, since it may find the main thread inside any lock; the block goes
    on. Ctrl-C ends the block: ``stop(None)`` is called, and then KeyboardInterrupt is raised, so that a program ends
    which waits in a loop. A second Ctrl-C breaks ``stop`` off.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}

    def replace(number: signal.Signals, handler: Callable[[int, FrameType | None], object]) -> None:
        before[number] = signal.signal(number, handler)

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        replace(signal.SIGTERM, _stop_beside(stop))
    if _is_pysparks(signal.getsignal(signal.SIGINT)):
        # PySpark's cancels every job first: the micro-batch under way could not be finished.
        replace(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            yield
        except KeyboardInterrupt:
            log.info("Ctrl-C: stopping")
            with contextlib.suppress(KeyboardInterrupt):
                stop(None)
            # A new one, without the insides of the waiting in its traceback.
            raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop_beside(stop: Callable[[float | None], object]) -> Callable[[int, FrameType | None], None]:
    def run() -> None:
        log.info("SIGTERM: stopping")
        stop(0)

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        threading.Thread(target=run, name="sparkrelay-termination", daemon=True).start()

    return handle


def _is_pysparks(handler: object) -> bool:
    """Tell whether this is what a SparkContext sets; a program's own handler, or none at all, is left in place."""
    return (getattr(handler, "__module__", None) or "").startswith("pyspark.")
