"""The demo's child processes: they report in JSON lines, and none of them outlives us.

A child is started by ``devkafka``'s launcher: the kernel kills it when we end, however we end. It leads a session of
its own, in which Spark's JVM and its Python workers live too, so that a whole instance is found and killed by that
session. (A JVM that loses its Python ends by itself as well, a moment later; so do workers that lose their JVM.)

Reports come through the child's standard output, which only it holds: what others print goes to its log.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from sparkrelay.devkafka.process import spawn_bound
from sparkrelay.own_files import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from queue import SimpleQueue

__all__ = ["Child", "Report", "executor_among", "open_reports", "session_members"]

_TAIL_LINES: Final = 15
_SWEEP_S: Final = 5.0
_POLL_S: Final = 0.02


class Report(NamedTuple):
    """One line from a child: who, and what; ``what["event"]`` says which kind it is."""

    child: str
    what: dict[str, Any]


class Child:
    """One child process, a Python module run with one JSON argument.

    Args:
        name: who reports.
        module: what to run.
        options: its argument; ``log``, the path of its log, is added.
        folder: its working directory, where its log goes too.
        reports: where its reports are put, by a thread of ours.
    """

    def __init__(
        self, name: str, module: str, options: Mapping[str, Any], *, folder: Path, reports: SimpleQueue[Report]
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._reports = reports
        self._gone = False
        reading, writing = os.pipe()
        argument = json.dumps({**options, "log": str(self.log_path)})
        with os.fdopen(writing, "wb") as out:
            try:
                self._process = spawn_bound([sys.executable, "-m", module, argument], log=out, cwd=folder)
            except BaseException:
                os.close(reading)
                raise
        self._reader = threading.Thread(target=self._read, args=(reading,), name=f"demo-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Process id; also the id of its session."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended (negative: by that signal), or None while it runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        """SIGKILL it and everything in its session: driver, JVM, Python workers; return when they are gone."""
        if self._gone:
            return
        self._process.kill()
        deadline = time.monotonic() + _SWEEP_S
        while (left := session_members(self.pid)) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._process.poll()  # a dead leader of ours is only gone once we have looked
            time.sleep(_POLL_S)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()  # where a pipe watches us, see devkafka's launcher
        self._reader.join(_SWEEP_S)
        self._gone = True  # the number of its session may be somebody else's some day

    def executor_pid(self, executor: str) -> int | None:
        """Return the process id of one of its Spark executors' JVMs, or None if there is none (or no ``/proc``)."""
        return executor_among(session_members(self.pid), executor)

    def last_lines(self) -> str:
        """Return the end of its log, once it has ended."""
        self._reader.join(_SWEEP_S)
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-_TAIL_LINES:]) or "(its log is empty)"

    def _read(self, descriptor: int) -> None:
        # Lines from before the child took its log over, such as a failing import, are none of its reports.
        with os.fdopen(descriptor, "rb") as lines, self.log_path.open("ab", buffering=0) as log:
            for line in lines:
                try:
                    self._reports.put(Report(self.name, json.loads(line if line.startswith(b'{"event":') else b"")))
                except ValueError:
                    log.write(line)


def open_reports(log: str) -> BinaryIO:
    """In the child: keep standard output for reports alone, and send everything else that prints to the log."""
    reports = os.fdopen(os.dup(1), "wb", buffering=0)
    descriptor = open_file(Path(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    return reports


def executor_among(pids: Iterable[int], executor: str) -> int | None:
    """Return which of those processes is the JVM of a Spark executor, None if none is (or there is no ``/proc``)."""
    for pid in pids:
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--executor-id" in command and command[command.index(b"--executor-id") + 1] == executor.encode():
                return pid
    return None


def session_members(session: int) -> list[int]:
    """Return the living processes of a session (where there is no ``/proc``: nobody but its process group's leader)."""
    processes = Path("/proc")
    if not (processes / "self").exists():
        return _group_members(session)
    members = []
    for entry in processes.iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                # The command's name, in brackets, may hold anything: state, parent, group and session follow it.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session and fields[0] not in "ZX":
                    members.append(int(entry.name))
    return members


def _group_members(group: int) -> list[int]:
    shown = subprocess.run(["ps", "-A", "-o", "pid=,sess=,pgid=,stat="], capture_output=True, text=True, check=False)
    rows = (line.split() for line in shown.stdout.splitlines())
    return [int(row[0]) for row in rows if len(row) == 4 and str(group) in row[1:3] and not row[3].startswith("Z")]
