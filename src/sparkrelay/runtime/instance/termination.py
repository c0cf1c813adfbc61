"""SIGTERM and Ctrl-C stop an instance while a script waits for its end; before that, SIGTERM exits the program.

Process 1 of a container has no default action for SIGTERM: without a handler the signal is lost, and the container is
killed after its grace period. So ``start()`` installs one. Outside the wait it raises SystemExit in the main thread,
which interrupts a start like Ctrl-C and runs the ends of ``with`` blocks.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

log = logging.getLogger(__name__)

#: ``stop`` of each started instance that was not stopped.
_stops: list[weakref.WeakMethod[Callable[[float | None], Any]]] = []
_exiting = False


def exit_on_sigterm(stop: Callable[[float | None], object]) -> None:
    """Have SIGTERM exit the program with code 143, if this is the main thread and there is no other handler.

    Args:
        stop: bound method of an instance; ``stop(0)`` is also called, on its own thread.
    """
    global _exiting  # noqa: PLW0603 - a process has one handler
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)
        _exiting = False
    if not any(known() == stop for known in _stops):
        _stops.append(weakref.WeakMethod(stop))


def default_sigterm(stop: Callable[[float | None], object]) -> None:
    """Undo :func:`exit_on_sigterm` for an ended instance; the last one restores the default action."""
    _stops[:] = [known for known in _stops if known() not in {None, stop}]
    on_main_thread = threading.current_thread() is threading.main_thread()
    if not _stops and on_main_thread and signal.getsignal(signal.SIGTERM) is _exit:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    global _exiting  # noqa: PLW0603 - a process has one handler
    del frame
    if _exiting:
        # A second signal must not interrupt the exit.
        return
    _exiting = True
    log.info("SIGTERM: stopping, and ending the program")
    for known in _stops:
        if (stop := known()) is not None:
            threading.Thread(target=stop, args=(0,), name="sparkrelay-termination", daemon=True).start()
    raise SystemExit(128 + number)


@contextlib.contextmanager
def on_termination(stop: Callable[[float | None], object]) -> Iterator[None]:
    """Have signals within the block call ``stop``, if this is the main thread and there are no other handlers.

    SIGTERM calls ``stop(0)`` on its own thread, since the main thread may hold any lock; the block continues. Ctrl-C
    ends the block: it calls ``stop(None)`` and then raises KeyboardInterrupt, so that a program that waits in a loop
    ends. A second Ctrl-C interrupts ``stop``.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {}

    def replace(number: signal.Signals, handler: Callable[[int, FrameType | None], object]) -> None:
        before[number] = signal.signal(number, handler)

    if signal.getsignal(signal.SIGTERM) in {signal.SIG_DFL, _exit}:
        replace(signal.SIGTERM, _stop_beside(stop))
    if _is_pysparks(signal.getsignal(signal.SIGINT)):
        # PySpark's handler would cancel the job of the current micro-batch.
        replace(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            yield
        except KeyboardInterrupt:
            log.info("Ctrl-C: stopping")
            with contextlib.suppress(KeyboardInterrupt):
                stop(None)
            # A new one, without our frames in its traceback.
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
    """Return whether a SparkContext set this handler; any other one is left in place."""
    return (getattr(handler, "__module__", None) or "").startswith("pyspark.")
