"""A bound child dies with its parent process, and only then."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.devkafka import process
from sparkrelay.devkafka.process import spawn_bound, wait_until_stopped
from sparkrelay.host import process_start

WAYS = pytest.mark.parametrize("kernel", [True, False] if sys.platform == "linux" else [False])

PARENT = """
    import sys, time
    from pathlib import Path
    from sparkrelay.devkafka import process
    process._KERNEL_WATCHES = sys.argv[1] == "True"
    child = process.spawn_bound(["/bin/sleep", "300"], log=open("/dev/null", "wb"), cwd=Path("/"))
    print(child.pid, flush=True)
    time.sleep(300)
"""


@WAYS
def test_it_dies_when_the_parent_is_killed(kernel, wait_until):
    command = [sys.executable, "-c", textwrap.dedent(PARENT), str(kernel)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        started = process_start(child)
        assert started is not None
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: process_start(child) != started, f"child {child} lives")


@WAYS
def test_it_survives_the_thread_that_asked_for_it(kernel, monkeypatch, tmp_path):
    monkeypatch.setattr(process, "_KERNEL_WATCHES", kernel)
    children = []
    with Path(os.devnull).open("wb") as log:
        thread = threading.Thread(
            target=lambda: children.append(spawn_bound(["/bin/sh", "-c", "read x; sleep 1"], log=log, cwd=tmp_path))
        )
        thread.start()
        thread.join()
    [child] = children
    # It ends by itself: standard input is empty, not a pipe that never speaks.
    assert child.wait(LONG) == 0
    if child.stdin:
        child.stdin.close()


@WAYS
def test_the_pid_is_the_commands(kernel, monkeypatch, tmp_path):
    monkeypatch.setattr(process, "_KERNEL_WATCHES", kernel)
    out = tmp_path / "out"
    with out.open("wb") as log, spawn_bound(["/bin/sh", "-c", "echo $$"], log=log, cwd=tmp_path) as child:
        assert child.wait(LONG) == 0
    assert int(out.read_text()) == child.pid


def test_a_command_that_cannot_start_says_so(tmp_path):
    out = tmp_path / "out"
    with out.open("wb") as log, spawn_bound(["/nowhere/java"], log=log, cwd=tmp_path) as child:
        assert child.wait(LONG) != 0
    assert "/nowhere/java" in out.read_text() or "No such file" in out.read_text()


def test_a_process_is_known_by_its_start():
    assert process_start(os.getpid()) == process_start(os.getpid()) is not None
    with subprocess.Popen(["/bin/sh", "-c", "exit 0"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_start(child.pid) is None, "a zombie is not running"
    assert process_start(child.pid) is None


SPINNING = """
    import threading
    for _ in range(6):
        threading.Thread(target=lambda: exec("while True: pass")).start()
    print("spinning", flush=True)
"""


@pytest.mark.skipif(sys.platform == "darwin", reason="there it is not waited for")
def test_who_is_stopped_runs_no_more():
    """A broker answered for a while after it was paused, and the doctor found it well."""
    command = [sys.executable, "-c", textwrap.dedent(SPINNING)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout.readline()
            tasks = Path(f"/proc/{child.pid}/task")
            for _ in range(50):
                child.send_signal(signal.SIGSTOP)
                assert wait_until_stopped(child.pid, LONG)
                states = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}
                assert states == {"T"}
                child.send_signal(signal.SIGCONT)
            assert not wait_until_stopped(child.pid, 0.0)
        finally:
            child.kill()
    # Who has died is not waited for.
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        assert wait_until_stopped(child.pid, LONG)
        assert child.wait(LONG) == 0
