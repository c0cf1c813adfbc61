"""Folders that only this user may write to, file locks, and temporary folders of brokers.

A test run killed with SIGKILL takes its broker along but leaves the folder, which may hold gigabytes. Each folder names
the processes that need it; the next broker to start removes the folders whose processes have all ended.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.errors import DevKafkaException
from sparkrelay.host import process_start
from sparkrelay.own_files import distrust, make_directory, open_file, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "sparkrelay-kafka-"
_USERS = "processes"


def make_own(folder: Path, remedy: str, *, by_root: bool = False) -> None:
    """Make a folder, if missing, that only this user (or root, with ``by_root``) may have made and may write to.

    Raises:
        DevKafkaException: It cannot be made, or others may write to it; the message ends with the remedy.
    """
    try:
        make_directory(folder)
    except OSError as error:
        raise DevKafkaException(f"The folder {folder} cannot be used ({error}). {remedy}") from error
    require_own(folder, remedy, by_root=by_root)


def require_own(folder: Path, remedy: str, *, by_root: bool = False) -> None:
    """Raise DevKafkaException, with the remedy, if others may have written to an existing folder."""
    if said := distrust(folder, by_root=by_root):
        raise DevKafkaException(f"The folder {said}. {remedy}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file, made if missing, for the context; waits while another process has the lock."""
    with os.fdopen(open_file(path, os.O_WRONLY | os.O_CREAT), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_temporary() -> Path:
    """Make a folder for this process."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    add_user(folder, os.getpid())
    return folder


def add_user(folder: Path, pid: int) -> None:
    """Record that a process needs the folder."""
    with os.fdopen(open_file(folder / _USERS, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a") as users:
        users.write(f"{_where()} {pid} {process_start(pid)}\n")


def _where() -> str:
    """Return the scope of pids, because a temporary folder may be shared with other hosts or containers."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{platform.node()}/{namespace}"


def sweep() -> None:
    """Remove temporary folders that no living process needs, except other users' and unclear ones."""
    here = _where()
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if distrust(folder):
                continue
            users = [line.split(" ", 2) for line in read_file(folder / _USERS).decode().splitlines()]
            needed = not users or any(
                where != here or process_start(int(pid)) == started for where, pid, started in users
            )
        except (OSError, ValueError):
            continue  # being made or removed
        if not needed:
            shutil.rmtree(folder, ignore_errors=True)
