"""The demo's child processes. They report in JSON lines; none of them outlives us.

``devkafka``'s launcher starts each child: the kernel kills it when we end, however we end. A child leads its own
session, which Spark's JVM and Python workers join, so a whole instance is found and killed by its session id.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.devkafka.process import reap, spawn_bound
from sparkrelay.host import stat_fields
from sparkrelay.runtime.worker.own.executor import executor_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TAIL_LINES: Final = 15
_SWEEP_S: Final = 5.0
_POLL_S: Final = 0.02


class Child:
    """A child process: a Python module run with two arguments, JSON and the path of the file to append its reports to.

    Args:
        name: of its files, ``<name>.log`` and ``<name>.reports``.
        module: to run.
        options: the first argument.
        folder: of its files, and its working directory.

    Attributes:
        may_end: True once it is expected to end.
    """

    def __init__(self, name: str, module: str, options: Mapping[str, Any], *, folder: Path) -> None:
        self.log_path = folder / f"{name}.log"
        reports = folder / f"{name}.reports"
        reports.touch()
        self._reports = reports.open("rb", buffering=0)
        self._unread = b""
        self._gone = False
        self.may_end = False
        command = [sys.executable, "-m", module, json.dumps(options), str(reports)]
        with self.log_path.open("wb") as log:
            self._process = spawn_bound(command, log=log, cwd=folder)

    @property
    def pid(self) -> int:
        """The process id, which is also its session's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code (negative: a signal's number); None while it runs."""
        return self._process.poll()

    def reports(self) -> list[dict[str, Any]]:
        """Return its reports since the last call; ``event`` is the kind of each."""
        *lines, self._unread = (self._unread + self._reports.readall()).split(b"\n")
        return [json.loads(line) for line in lines]

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """SIGKILL its whole session: driver, JVM and Python workers; return when they are gone."""
        if self._gone:
            return
        self._process.kill()
        deadline = time.monotonic() + _SWEEP_S
        while (left := session_members(self.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()  # reaps the session's leader
            time.sleep(_POLL_S)
        reap(self._process)
        self._gone = True  # the session id may be reused

    def last_lines(self) -> str:
        """Return the end of its log."""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]) or "(its log is empty)"


def executor_among(pids: Iterable[int], executor: str) -> int | None:
    """Return the process that is the JVM of this Spark executor; None if there is none, or no ``/proc``."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if executor_id(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")) == executor:
                return pid
    return None


def session_members(session: int) -> list[int]:
    """Return the living processes of a session; without ``/proc``, also those of the process group of that id."""
    processes = Path("/proc")
    if not (processes / "self").exists():
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,sess=,pgid=,stat="], capture_output=True, text=True, check=False
        )
        rows = [line.split() for line in listing.stdout.splitlines()]
        return [int(r[0]) for r in rows if len(r) == 4 and str(session) in r[1:3] and not r[3].startswith("Z")]
    members = []
    for entry in processes.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _parent, _group, leader, *_ = stat_fields(int(entry.name))
                if int(leader) == session and state not in "ZX":
                    members.append(int(entry.name))
    return members
