"""A lock that the operating system releases when its process dies, however it dies.

``flock`` on a file that is never deleted (a deleted lock file could be locked twice). The file names the holder (pid,
start time, boot id, host), for messages and for ending a stuck holder. Refused: POSIX record locks, which any ``close``
of the file in the process drops.
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
from sparkrelay.host import boot_id, process_start
from sparkrelay.own_files import open_file, read_file

if TYPE_CHECKING:
    from pathlib import Path

_POLL_SECONDS = 0.01
#: Checking whether a lock is held takes microseconds, unless the checking process is stopped meanwhile.
_ASKING_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock; pid, start time and boot id identify a process for all time."""

    pid: int
    start: str
    boot: str
    host: str

    @classmethod
    def this_process(cls) -> Self:
        """Return the description of this process."""
        pid = os.getpid()
        return cls(pid, process_start(pid) or "", boot_id(), socket.gethostname())

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
        """Take the lock within a timeout; return whether it is held.

        Raises:
            StateStoreException: the file cannot be created or locked.
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
        """Release the lock if it is held."""
        file, self._file = self._file, -1
        if file < 0:
            return
        _held.discard(self)
        # Explicitly, not by close: a forked child may hold a copy of the descriptor.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)

    @property
    def in_place(self) -> bool:
        """Whether the locked file is still the one of that name, which others would lock."""
        try:
            there = self.path.lstat()
        except FileNotFoundError:
            return False
        here = os.fstat(self._file)
        return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)

    @property
    def inode(self) -> int:
        """The inode of the locked file, which a copy does not share."""
        return os.fstat(self._file).st_ino

    def is_held_elsewhere(self) -> bool:
        """Return whether another process holds the lock, without a trace."""
        try:
            file = open_file(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StateStoreException(f"cannot open the lock file {self.path}: {error.strerror}") from error
        try:
            # Shared, which acquirers recognize as a check. Released by close: no fork in between matters.
            return not _flock(file, self.path, fcntl.LOCK_SH)
        finally:
            os.close(file)

    def holder(self) -> Holder | None:
        """Return the last holder, None if unknown."""
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
    """Take the lock if nobody holds it, waiting for checks, which lock it shared; return whether it was taken."""
    deadline = time.monotonic() + _ASKING_SECONDS
    while not _flock(file, path, fcntl.LOCK_EX):
        if not _flock(file, path, fcntl.LOCK_SH):
            return False
        # Only a check holds it. Release it while waiting: two acquirers would wait for each other.
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
    """Close a forked child's copies, by which it would hold our locks."""
    for lock in list(_held):
        lock._forget_in_child()  # noqa: SLF001 - same module
    _held.clear()


os.register_at_fork(after_in_child=_forget_all_in_child)
