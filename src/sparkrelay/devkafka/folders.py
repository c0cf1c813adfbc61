"""Temporary folders of brokers, and the sweeping of those that nobody could remove.

A test run that is killed with SIGKILL takes its broker along but leaves the folder, which may hold gigabytes. Each
folder names the processes that need it; the next broker to start removes the folders whose processes are all gone.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from pathlib import Path

from sparkrelay.host import process_start

__all__ = ["add_user", "make_temporary", "sweep"]

_PREFIX = "sparkrelay-kafka-"
_USERS = "processes"


def make_temporary() -> Path:
    """Make a folder that this process needs."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    add_user(folder, os.getpid())
    return folder


def add_user(folder: Path, pid: int) -> None:
    """Note that the process needs the folder too."""
    with (folder / _USERS).open("a") as users:
        users.write(f"{_where()} {pid} {process_start(pid)}\n")


def _where() -> str:
    """Return the name of the place in which a pid means something: a temporary folder may be shared with others."""
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{platform.node()}/{namespace}"


def sweep() -> None:
    """Remove temporary folders that no living process needs; leave what is not ours or not clear."""
    here = _where()
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            users = [line.split(" ", 2) for line in (folder / _USERS).read_text().splitlines()]
            needed = not users or any(
                where != here or process_start(int(pid)) == started for where, pid, started in users
            )
        except (OSError, ValueError):
            continue  # just being made, somebody else's, or already going
        if not needed:
            shutil.rmtree(folder, ignore_errors=True)
