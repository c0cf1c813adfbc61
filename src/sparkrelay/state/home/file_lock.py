"""A lock that the operating system holds for a process and gives back when the process dies, however it dies.

``flock`` on a file that is never deleted (a deleted lock file could be locked by two). Beside the lock, the file
says who holds it - pid, start time, boot id, host - for messages and for ending a stuck holder. POSIX record locks
were refused: any ``close`` of the file anywhere in the process drops them.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
import time
import weakref
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from sparkrelay.errors import StateStoreException
from sparkrelay.host import boot_id, is_running, process_start
from sparkrelay.own_files import open_file, read_file

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["FileLock", "Holder"]

_POLL_SECONDS = 0.01
#: Who asks whether a lock is held takes microseconds, unless it is stopped over it.
_ASKING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock: pid, start time and boot id together name one process for all time."""

    pid: int
    start: str
    boot: str
    host: str

    @classmethod
    def this_process(cls) -> Self:
        """Return what to write down about ourselves."""
        pid = os.getpid()
        return cls(pid, process_start(pid) or "", boot_id(), socket.gethostname())

    @property
    def running(self) -> bool:
        """True if that very process still runs on this machine."""
        return is_running(self.pid, self.start, self.boot)

    def __str__(self) -> str:
        return f"process {self.pid} on host {self.host}"


class FileLock:
    """An exclusive lock on a file. Not reentrant; any thread may release it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = -1

    @property
    def held(self) -> bool:
        """True between a successful :meth:`acquire` and :meth:`release`."""
        return self._file >= 0

    def acquire(self, timeout_seconds: float = 0.0) -> bool:
        """Take the lock, waiting at most so long; return whether we have it.

        Raises:
            StateStoreException: the file cannot be made or locked at all.
        """
        assert not self.held, f"{self.path} is already locked by this object"
        deadline = time.monotonic() + timeout_seconds
        try:
            file = open_file(self.path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StateStoreException(
                f"cannot open the lock file {self.path}: {error.strerror}; state.dir must be a directory that this "
                "user may write to"
            ) from error
        try:
            while not _try_lock(file, self.path):
                left = deadline - time.monotonic()
                if left <= 0:
                    os.close(file)
                    return False
                time.sleep(min(_POLL_SECONDS, left))
            record = json.dumps(asdict(Holder.this_process())).encode()
            os.ftruncate(file, 0)
            os.pwrite(file, record, 0)
        except OSError as error:
            os.close(file)
            raise StateStoreException(
                f"cannot write to the lock file {self.path}: {error.strerror}; free some space or move state.dir"
            ) from error
        except BaseException:
            os.close(file)
            raise
        self._file = file
        _held.add(self)
        return True

    def release(self) -> None:
        """Give the lock back; without effect if it is not held."""
        file, self._file = self._file, -1
        if file < 0:
            return
        _held.discard(self)
        # Said aloud, and not left to close: a forked child may hold a copy of the descriptor.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    @property
    def in_place(self) -> bool:
        """True while the file that is locked here is the one of that name: others would lock another one."""
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            return False
        here = os.fstat(self._file)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    @property
    def inode(self) -> int:
        """The number of the locked file, which a copy does not have."""
        return os.fstat(self._file).st_ino

    def is_held_elsewhere(self) -> bool:
        """True if somebody holds the lock just now; asks without leaving a trace."""
        try:
            file = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StateStoreException(f"cannot open the lock file {self.path}: {error.strerror}") from error
        try:
            # Shared: whoever wants the lock in that moment sees that this is no holder. Given back by close: nobody
            # forks in between with a copy that matters.
            return not _flock(file, self.path, fcntl.LOCK_SH)
        finally:
            os.close(file)

    def holder(self) -> Holder | None:
        """Return who last took the lock, or None if the file does not say."""
        try:
            fields = json.loads(read_file(self.path))
            return Holder(int(fields["pid"]), str(fields["start"]), str(fields["boot"]), str(fields["host"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _forget_in_child(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _try_lock(file: int, path: Path) -> bool:
    """Take the lock if nobody holds it; return whether we have it.

    Whoever only asks whether it is held, and has it shared for that, is waited for, and not taken for a holder.
    """
    deadline = time.monotonic() + _ASKING_SECONDS
    while not _flock(file, path, fcntl.LOCK_EX):
        if not _flock(file, path, fcntl.LOCK_SH):
            return False
        # Nobody holds it, then. We may not either while we wait: two who want it would wait for each other.
        fcntl.flock(file, fcntl.LOCK_UN)
        if time.monotonic() > deadline:
            return False
        time.sleep(random.uniform(0, _POLL_SECONDS))
    return True


def _flock(file: int, path: Path, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise StateStoreException(
            f"cannot lock {path}: {error.strerror}; state.dir must be on a file system with file locks (flock)"
        ) from error
    return True


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _forget_all_in_child() -> None:
    """Close a forked child's copies, or it would hold our locks for as long as it lives."""
    for lock in list(_held):
        lock._forget_in_child()  # noqa: SLF001 - same module
    _held.clear()


os.register_at_fork(after_in_child=_forget_all_in_child)
