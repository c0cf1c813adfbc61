"""Ending a Spark job that may wait for a core for as long as others have them."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["cancel_until", "cancelled_when"]

#: A job that is to end is cancelled again after this: before it was submitted there was nothing to cancel.
_AGAIN_SECONDS: Final = 1.0
#: What Spark has not cancelled within this it is not going to.
_LONGEST_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


@contextlib.contextmanager
def cancelled_when(due: Callable[[], bool], cancel: Callable[[], None]) -> Iterator[None]:
    """Cancel the block's Spark job again and again, from when that is due until the block has ended.

    Args:
        due: looked at again and again, on another thread.
        cancel: cancels what runs then.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_SECONDS):
            if due():
                cancel()
                over.wait(_AGAIN_SECONDS)

    watcher = threading.Thread(target=watch, name=f"{threading.current_thread().name}-cancelling", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        # Or its last cancelling could hit the next job.
        watcher.join()


def cancel_until(ended: Callable[[float], bool], cancel: Callable[[], None], seconds: float = _LONGEST_SECONDS) -> bool:
    """Cancel a Spark job again and again until it has ended; return False if it does not.

    Args:
        ended: waits for the end, no longer than the seconds that it is given, and returns whether it has come.
        cancel: cancels what runs then.
        seconds: for how long that is tried.
    """
    deadline = time.monotonic() + seconds
    while True:
        cancel()
        if ended(_AGAIN_SECONDS):
            return True
        if time.monotonic() >= deadline:
            return False
