"""Short, private folders for Unix sockets, and removal of those that killed processes left.

A Unix socket's path is limited to 107 bytes, 103 on BSD and macOS. Temporary folders may have longer paths, such as
those of YARN's containers (``.../usercache/USER/appcache/application_.../container_.../tmp``). Therefore sockets get a
folder of their own, in the first temporary folder with a short enough path and in which no other user can replace
files. ``mkdtemp`` chooses its name, so nobody can create it first.

Its maker keeps a lock on the folder (``flock``), which the kernel releases however the process ends.
``remove_abandoned`` removes unlocked folders of this user.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.errors import StreamsException
from sparkrelay.own_files import distrust, user_name

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Longest path of a socket in bytes: ``sun_path`` without the final zero.
LONGEST_PATH: Final = 107 if sys.platform.startswith("linux") else 103
#: The Spark setting that names the folder of Spark's own sockets.
SPARK_DIR: Final = "spark.python.unix.domain.socket.dir"
#: Length of Spark's socket names, ``.UUID.sock``.
SPARK_SOCKET_BYTES: Final = 42

_PREFIX: Final = "sparkrelay-sock-"
#: mkdtemp adds eight characters.
_FOLDER_BYTES: Final = len(_PREFIX) + 8
_ATTEMPTS: Final = 100


class NoSocketFolder(StreamsException):
    """No temporary folder can hold a Unix socket."""


class SocketFolder:
    """A new folder with mode 0700 for Unix sockets. ``close`` removes it."""

    def __init__(self, candidates: Iterable[str | Path], name_bytes: int) -> None:
        """Make the folder in the first usable candidate, for sockets with names of at most ``name_bytes``.

        Raises NoSocketFolder, which says why for each candidate.
        """
        reasons = []
        for candidate in candidates:
            parent = Path(candidate)
            reason = why_unusable(parent, _FOLDER_BYTES + 1 + name_bytes)
            if reason is None:
                try:
                    self.path, self._lock = _make(parent)
                except OSError as error:
                    reason = f"{parent} cannot be used: {error.strerror}"
                else:
                    return
            reasons.append(reason)
        longest = LONGEST_PATH - _FOLDER_BYTES - name_bytes - 2
        raise NoSocketFolder(
            f"cannot make a folder for Unix sockets, whose paths may have {LONGEST_PATH} bytes: {'; '.join(reasons)}. "
            f"Choose a folder with a path of at most {longest} bytes that belongs to {_user()} and that no other user "
            f"may write to, and set TMPDIR to it, or {SPARK_DIR} for Spark's Python workers; it must exist on each host"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the folder and its content. May be called twice."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def temporary_folders(given: str | Path | None = None) -> list[Path]:
    """Return the temporary folders of this host in order of preference, without duplicates.

    ``given`` comes first; if it is itself a folder of this module, its parent does.
    """
    # No file in them has a predictable name.
    names = (given, tempfile.gettempdir(), "/tmp", "/var/tmp")  # noqa: S108
    folders = [Path(name) for name in names if name]
    return list(dict.fromkeys(one.parent if one.name.startswith(_PREFIX) else one for one in folders))


def why_unusable(folder: Path, name_bytes: int) -> str | None:
    """Return why sockets, of names of at most ``name_bytes``, cannot be made in a folder; None if they can."""
    length = len(os.fsencode(folder)) + 1 + name_bytes
    if length > LONGEST_PATH:
        return f"a socket in {folder} would have a path of {length} bytes"
    try:
        if reason := distrust(folder, by_root=True):
            return reason
        if not folder.is_dir():
            return f"{folder} is not a directory"
    except OSError as error:
        return f"{folder} cannot be used: {error.strerror}"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written to by {_user()}"


def remove_abandoned(parents: Iterable[Path]) -> None:
    """Remove socket folders of this user whose processes have ended; folders of others are left unchanged."""
    for folder in [folder for parent in parents for folder in _found(parent)]:
        with contextlib.suppress(OSError):
            if distrust(folder) is not None:
                continue
            lock = _locked(folder)
            try:
                entries = list(folder.iterdir())
                # A folder with anything else in it is not ours to remove.
                if all(stat.S_ISSOCK(entry.lstat().st_mode) for entry in entries):
                    for entry in entries:
                        entry.unlink()
                    folder.rmdir()
            finally:
                os.close(lock)


def _found(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.glob(f"{_PREFIX}*") if len(path.name) == _FOLDER_BYTES]
    except OSError:
        return []


def _make(parent: Path) -> tuple[Path, int]:
    """Make and lock a folder; return its path and the descriptor that holds the lock."""
    for _ in range(_ATTEMPTS):
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        try:
            lock = _locked(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # another process considered it abandoned before it was locked, and removes it
        except OSError:
            folder.rmdir()
            raise
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), folder.lstat()):
                return folder, lock
        os.close(lock)
    raise NoSocketFolder(f"{_ATTEMPTS} new folders in {parent} were removed at once: find out what empties it")


def _locked(folder: Path) -> int:
    """Lock a folder; return the descriptor with the lock. Raises BlockingIOError if a living process holds it."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise
    return lock


def _user() -> str:
    return user_name(os.geteuid())
