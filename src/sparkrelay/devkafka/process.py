"""Child processes: started bound to us, or left alone."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO

from sparkrelay.devkafka import launch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_KERNEL_WATCHES = sys.platform == "linux"

__all__ = ["OWN_FILES", "spawn_bound", "spawn_detached", "wait_until_stopped"]

#: The umask of programs whose files are for this user alone.
OWN_FILES = 0o077


def spawn_detached(command: Sequence[str], *, log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a process that stays when we end."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        umask=OWN_FILES,
        start_new_session=True,
    )


def spawn_bound(command: Sequence[str], *, log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a process that the system kills when we end, however we end.

    It gets a session of its own, so that Ctrl-C reaches only us and we decide in which order to stop.
    """
    return _keeper().spawn(command, log=log, cwd=cwd)


def wait_until_stopped(pid: int, timeout_s: float) -> bool:
    """Wait until a child that was sent SIGSTOP runs no more; return whether it does not.

    SIGSTOP does not act at once: one thread takes it and stops the others, which run on until it gets a core. macOS
    cannot say so without reaping the child; there nothing is waited for.
    """
    if sys.platform == "darwin":
        return True
    deadline = time.monotonic() + timeout_s
    while os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


class _Keeper:
    """A thread that lives as long as the process and starts all bound children.

    The kernel's "parent has died" means the *thread* that forked. A broker started by a pool's worker thread would
    otherwise die with that worker.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self._orders: SimpleQueue[tuple[list[str], BinaryIO, Path, Future[subprocess.Popen[bytes]]]] = SimpleQueue()
        threading.Thread(target=self._run, name="devkafka-keeper", daemon=True).start()

    def spawn(self, command: Sequence[str], *, log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
        done: Future[subprocess.Popen[bytes]] = Future()
        self._orders.put((list(command), log, cwd, done))
        return done.result()

    def _run(self) -> None:
        while True:
            command, log, cwd, done = self._orders.get()
            try:
                done.set_result(_start(command, log, cwd))
            except BaseException as error:  # noqa: BLE001 - it is raised again in the caller's thread
                done.set_exception(error)


def _start(command: list[str], log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
    # Where the kernel does not watch us, the write end of a pipe does it: only we hold it, for as long as we live.
    parent, stdin = (str(os.getpid()), subprocess.DEVNULL) if _KERNEL_WATCHES else (launch.BY_PIPE, subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-I", "-S", launch.__file__, parent, *command],
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        umask=OWN_FILES,
        start_new_session=True,
    )


_the_keeper: _Keeper | None = None
_lock = threading.Lock()


def _keeper() -> _Keeper:
    global _the_keeper  # noqa: PLW0603 - one thread for the whole process, made on first use
    with _lock:
        # A forked child has our memory but not our threads.
        if _the_keeper is None or _the_keeper.process != os.getpid():
            _the_keeper = _Keeper()
        return _the_keeper
