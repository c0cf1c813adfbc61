"""Which executor a Python worker belongs to.

No environment variable says so on every cluster manager; the JVM's command line does: all of Spark's executor
backends (standalone, YARN, Kubernetes) are started with ``--executor-id``. The worker's parent is Spark's daemon, whose
parent is that JVM. With ``local[N]`` the JVM is the driver's, which has no such option.

The same could be had as a column of the source (``reflect('java.lang.System', ...)``), but only the first step of a
leg sees the source's columns, and Spark holds a plan with such a column to be nondeterministic.
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.host import process_start

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["OwnExecutor", "executor_id", "own_executor"]

#: Worker, daemon, JVM; a launcher script may stand in between.
_LONGEST_ANCESTRY = 8


@dataclass(frozen=True, slots=True)
class OwnExecutor:
    """The executor of this worker, and the process that its JVM is."""

    id: str
    jvm: int
    jvm_start: str


@functools.cache
def own_executor() -> OwnExecutor | None:
    """Return the executor that this worker belongs to, or None if it is the driver's own."""
    pid = os.getppid()
    for _ in range(_LONGEST_ANCESTRY):
        if pid <= 0:
            return None
        parent, command = _process(pid)
        found = executor_id(command)
        if found is not None:
            return OwnExecutor(found, pid, process_start(pid) or "")
        pid = parent
    return None


def executor_id(command: Sequence[str]) -> str | None:
    """Return the id in the command line of an executor's JVM, or None if it is another command."""
    for option, value in itertools.pairwise(command):
        if option == "--executor-id":
            return value
    return None


def _process(pid: int) -> tuple[int, list[str]]:
    """Return a process's parent and its command line."""
    folder = Path(f"/proc/{pid}")
    try:
        stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        command = (folder / "cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        return int(stat.rpartition(")")[2].split()[1]), command
    except (FileNotFoundError, ProcessLookupError):
        if Path("/proc/self/stat").exists():
            return 0, []
    except PermissionError:
        return 0, []
    answer = subprocess.run(
        ["ps", "-ww", "-o", "ppid=,command=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    )
    parent, *command = answer.stdout.split() or ["0"]
    return int(parent), command
