"""The executor of a Python worker.

No environment variable names it on every cluster manager, but the JVM's command line does: all of Spark's executor
backends (standalone, YARN, Kubernetes) are started with ``--executor-id``. The worker's parent is Spark's daemon, whose
parent is that JVM. With ``local[N]`` the JVM is the driver's, which has no such option.

Refused: a column of the source (``reflect('java.lang.System', ...)``), as only the first step of a leg sees it, and
Spark considers such a plan nondeterministic.
"""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sparkrelay.host import process_start, stat_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Worker, daemon, JVM, and possibly launcher scripts in between.
_LONGEST_ANCESTRY = 8


@dataclass(frozen=True, slots=True)
class OwnExecutor:
    """The executor of this worker, and the process of its JVM."""

    id: str
    jvm: int
    jvm_start: str


@functools.cache
def own_executor() -> OwnExecutor | None:
    """Return the executor of this worker, or None if it is the driver's."""
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
    """Return the id in the command line of an executor's JVM; None for other commands."""
    for option, value in itertools.pairwise(command):
        if option == "--executor-id":
            return value
    return None


def _process(pid: int) -> tuple[int, list[str]]:
    """Return a process's parent and command line."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        return int(stat_fields(pid)[1]), command
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
