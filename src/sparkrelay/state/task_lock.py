"""The right to change one task's state: held by a worker from its state step to the end of publish.

A failed or cancelled Spark job's Python worker goes on for a while (seen: 3 s). Whoever undoes or runs a batch again
takes the lock first, waits a bounded time, and then ends the stuck worker by its pid - if it still is that process.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Self

from sparkrelay.errors import LockException
from sparkrelay.state.file_lock import FileLock

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

__all__ = ["TaskLock"]

log = logging.getLogger(__name__)

#: A killed process gives its locks back once the kernel has torn it down.
_DEATH_SECONDS = 10.0


class TaskLock:
    """File lock of one task directory. The lock file stands beside the directory and outlives its being wiped."""

    def __init__(self, task_dir: Path) -> None:
        self.task_dir = task_dir
        task_dir.parent.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(task_dir.with_name(f"{task_dir.name}.lock"))

    @property
    def held(self) -> bool:
        """True while this object holds the lock."""
        return self._lock.held

    def acquire(self, timeout_seconds: float) -> None:
        """Take the lock.

        Raises:
            LockException: somebody held it all the time; the message names them.
        """
        if not self._lock.acquire(timeout_seconds):
            raise LockException(
                f"task {self.task_dir.name}: {self._holder_text()} has held {self._lock.path} for more than "
                f"{timeout_seconds:g} s; it is probably still finishing a batch, or stuck"
            )

    def break_after(self, seconds: float) -> None:
        """Take the lock; after so long, end its holder with SIGKILL, if it is still the process that took the lock.

        Raises:
            LockException: the holder is on another machine, is this process, or does not die.
        """
        if self._lock.acquire(seconds):
            return
        holder = self._lock.holder()
        if holder is not None and holder.pid == os.getpid():
            raise LockException(f"task {self.task_dir.name}: this process itself holds {self._lock.path}")
        if holder is not None and holder.running:
            log.warning("task %s: %s held the lock for %.1f s and is ended", self.task_dir.name, holder, seconds)
            try:
                os.kill(holder.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            except PermissionError as error:
                raise LockException(
                    f"task {self.task_dir.name}: {holder} holds {self._lock.path} and belongs to another user"
                ) from error
        started = time.monotonic()
        if not self._lock.acquire(_DEATH_SECONDS):
            raise LockException(
                f"task {self.task_dir.name}: {self._holder_text()} still holds {self._lock.path} "
                f"{time.monotonic() - started:.0f} s after it was to be ended; if that is another machine, two "
                "machines use one state.dir"
            )

    def release(self) -> None:
        """Give the lock back; without effect if it is not held."""
        self._lock.release()

    def __enter__(self) -> Self:
        assert self.held, "acquire() or break_after() first: both need to know how long to wait"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _holder_text(self) -> str:
        return str(self._lock.holder() or "an unknown process")
