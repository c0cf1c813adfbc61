"""Ending a Spark job that may wait for a core for as long as others have them."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["CANCEL_AGAIN_SECONDS", "MOST_CANCELS", "cancelled_when"]

#: A job that is to end is cancelled again after this: before it was submitted there was nothing to cancel.
CANCEL_AGAIN_SECONDS: Final = 1.0
#: After so many tries to cancel it Spark is not going to.
MOST_CANCELS: Final = 30
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
                over.wait(CANCEL_AGAIN_SECONDS)

    watcher = threading.Thread(target=watch, name=f"{threading.current_thread().name}-cancelling", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        # Or its last cancelling could hit the next job.
        watcher.join()
