"""Child processes: bound to our lifetime, or detached."""

from __future__ import annotations

import functools
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
    from collections.abc import Callable, Sequence
    from pathlib import Path

_KERNEL_WATCHES = sys.platform == "linux"
#: The umask of programs whose files are private to this user.
_OWN_FILES = 0o077
_OUTPUT_CHARACTERS = 2_000


def run_own(command: Sequence[str], *, timeout_s: float) -> tuple[int, str]:
    """Run a program whose files are private to this user; return its exit code and the end of its output."""
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s, umask=_OWN_FILES)
    return run.returncode, (run.stdout + run.stderr)[-_OUTPUT_CHARACTERS:].strip()


def spawn_detached(command: Sequence[str], *, log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a process that keeps running when we end."""
    return _spawn(command, subprocess.DEVNULL, log, cwd)


def spawn_bound(command: Sequence[str], *, log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
    """Start a process that the system kills when we end, however we end.

    It has a session of its own, so that Ctrl-C reaches only us and we decide in which order to stop.
    """
    # Where the kernel does not watch us, the write end of a pipe does, which exists as long as we live.
    parent, stdin = (str(os.getpid()), subprocess.DEVNULL) if _KERNEL_WATCHES else (launch.BY_PIPE, subprocess.PIPE)
    launched = [sys.executable, "-I", "-S", launch.__file__, parent, *command]
    return _keeper(os.getpid()).call(lambda: _spawn(launched, stdin, log, cwd))


def reap(process: subprocess.Popen[bytes], timeout_s: float | None = None) -> None:
    """Wait for a process to end, with SIGKILL after ``timeout_s``, and release its watcher."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdin is not None:
        process.stdin.close()  # ends the watcher, see launch.py


def wait_until_stopped(pid: int, timeout_s: float) -> bool:
    """Wait until a child that was sent SIGSTOP has stopped; return whether it has.

    One of its threads takes the signal and stops the others, which continue until they get a core. macOS cannot report
    that without reaping the child, so there nothing is waited for.
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

    To the kernel the parent is the *thread* that forked: a broker started by a pool's thread would die with that
    thread.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]]
        self._calls = SimpleQueue()
        threading.Thread(target=self._run, name="devkafka-keeper", daemon=True).start()

    def call(self, spawn: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        done: Future[subprocess.Popen[bytes]] = Future()
        self._calls.put((spawn, done))
        return done.result()

    def _run(self) -> None:
        while True:
            spawn, done = self._calls.get()
            try:
                done.set_result(spawn())
            except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
                done.set_exception(error)


@functools.lru_cache(maxsize=1)
def _keeper(process: int) -> _Keeper:
    """Return this process's keeper: a forked child has our memory but not our threads."""
    del process
    return _Keeper()


def _spawn(command: Sequence[str], stdin: int, log: BinaryIO, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=cwd,
        umask=_OWN_FILES,
        start_new_session=True,
    )
