import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sparkrelay.demo.children import Child, session_members

HELPERS = """
import json, os, subprocess, sys, time
options = json.loads(sys.argv[1])
os.write(1, b"to the log\\n")
near = subprocess.Popen(["sleep", "300"])
far = subprocess.Popen(["sleep", "300"], process_group=0)
with open(sys.argv[2], "ab") as reports:
    reports.write(json.dumps({"event": "hello", "pids": [os.getpid(), near.pid, far.pid], "x": options["x"]}).encode())
    reports.flush()
    time.sleep(0.2)
    reports.write(b"\\n")
time.sleep(300)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def run(source, **options):
        (tmp_path / "pretend.py").write_text(source)
        child = Child("C", "pretend", options, folder=tmp_path)
        started.append(child)
        return child

    yield run
    for child in started:
        child.kill()


def first_report(child, wait_until):
    found = []
    wait_until(lambda: found.extend(child.reports()) or found, "it does not report")
    return found[0]


def test_reports_come_apart_from_everything_else(start, wait_until):
    child = start(HELPERS, x=7)
    report = first_report(child, wait_until)
    assert (report["event"], report["x"]) == ("hello", 7)
    assert child.reports() == []
    assert child.log_path.read_text().splitlines() == ["to the log"]


def test_a_kill_takes_the_whole_session(start, wait_until):
    child = start(HELPERS, x=0)
    pids = first_report(child, wait_until)["pids"]
    assert sorted(session_members(child.pid)) == sorted(pids)
    child.kill()
    assert session_members(child.pid) == []
    assert child.exit_code == -signal.SIGKILL
    child.kill()  # again is no error


def test_last_lines_say_why_it_died(start, wait_until):
    child = start("raise RuntimeError('the reason')")
    wait_until(lambda: child.exit_code == 1, "it does not end")
    assert child.last_lines().endswith("RuntimeError: the reason")


def test_it_is_asked_to_end(start, wait_until):
    child = start(
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        'open(sys.argv[2], "ab", buffering=0).write(b\'{"event": "up"}\\n\')\n'
        "signal.pause()\n"
    )
    assert first_report(child, wait_until) == {"event": "up"}
    assert child.exit_code is None
    child.terminate()
    wait_until(lambda: child.exit_code == 0, "it does not end")


def test_lines_that_only_look_like_reports_go_to_the_log(start, wait_until):
    child = start("print('{\"event\": broken')\nprint('{}')")
    wait_until(lambda: child.exit_code == 0, "it does not end")
    assert child.last_lines().splitlines() == ['{"event": broken', "{}"]
    assert child.reports() == []


PARENT = """
import pathlib, sys, time
from sparkrelay.demo.children import Child
child = Child('C', 'pretend', {'x': 0}, folder=pathlib.Path(sys.argv[1]))
while not (reports := child.reports()):
    time.sleep(0.05)
print(reports[0]['pids'][0], flush=True)
time.sleep(300)
"""


def test_a_child_dies_with_a_killed_parent(tmp_path, wait_until):
    (tmp_path / "pretend.py").write_text(HELPERS)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pid = int(parent.stdout.readline())
    try:
        parent.kill()
        wait_until(lambda: not _runs(pid), "the child outlived its parent")
    finally:
        parent.stdout.close()
        parent.wait()
        # Its own helpers, plain sleeps that do not notice, are the session's rest.
        for left in session_members(pid):
            os.kill(left, signal.SIGKILL)
        wait_until(lambda: not session_members(pid), "helpers are left")


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_nobody_is_in_a_session_that_is_not_there():
    assert session_members(2**22 + 1) == []  # larger than any pid
