"""Cancelling a Spark job, which may not even have started for lack of a core."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Interval of repeated cancelling: the first one may come before the job is submitted.
_AGAIN_SECONDS: Final = 1.0
#: After this, Spark is not going to cancel the job.
_LONGEST_SECONDS: Final = 30.0
_LOOK_SECONDS: Final = 0.1


@contextlib.contextmanager
def cancelled_when(due: Callable[[], bool], cancel: Callable[[], None]) -> Iterator[None]:
    """Call ``cancel`` repeatedly, on another thread, once ``due()`` is true until the end of the block."""
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
        # Otherwise its last call could cancel the next job.
        watcher.join()


def cancel_until(ended: Callable[[float], bool], cancel: Callable[[], None], seconds: float = _LONGEST_SECONDS) -> bool:
    """Call ``cancel`` repeatedly until ``ended``, which waits for at most its argument in seconds; False if never."""
    deadline = time.monotonic() + seconds
    while True:
        cancel()
        if ended(_AGAIN_SECONDS):
            return True
        if time.monotonic() >= deadline:
            return False
