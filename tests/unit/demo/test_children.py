import os
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.waiting import LONG

from sparkrelay.demo.children import Child, session_members

HELPERS = """
import json, os, subprocess, sys, time
from sparkrelay.demo.children import open_reports
print("before the log is there", flush=True)
options = json.loads(sys.argv[1])
reports = open_reports(options["log"])
os.write(1, b"to the log\\n")
near = subprocess.Popen(["sleep", "300"])
far = subprocess.Popen(["sleep", "300"], process_group=0)
reports.write(json.dumps({"event": "hello", "pids": [os.getpid(), near.pid, far.pid], "x": options["x"]}).encode())
reports.write(b"\\n")
time.sleep(300)
"""


@pytest.fixture
def start(tmp_path):
    started = []

    def run(source, **options):
        (tmp_path / "pretend.py").write_text(source)
        reports = SimpleQueue()
        child = Child("C", "pretend", options, folder=tmp_path, reports=reports)
        started.append(child)
        return child, reports

    yield run
    for child in started:
        child.kill()


def test_reports_come_apart_from_everything_else(start, wait_until):
    child, reports = start(HELPERS, x=7)
    report = reports.get(timeout=LONG)
    assert (report.child, report.what["event"], report.what["x"]) == ("C", "hello", 7)
    wait_until(lambda: len(child.log_path.read_text().splitlines()) == 2, "the log is not complete")
    assert sorted(child.log_path.read_text().splitlines()) == ["before the log is there", "to the log"]


def test_a_kill_takes_the_whole_session(start):
    child, reports = start(HELPERS, x=0)
    pids = reports.get(timeout=LONG).what["pids"]
    assert sorted(session_members(child.pid)) == sorted(pids)
    child.kill()
    assert session_members(child.pid) == []
    assert child.exit_code == -signal.SIGKILL
    child.kill()  # again is no error


def test_last_lines_say_why_it_died(start, wait_until):
    child, _ = start("raise RuntimeError('the reason')")
    wait_until(lambda: child.exit_code == 1, "it does not end")
    assert child.last_lines().endswith("RuntimeError: the reason")


def test_it_is_asked_to_end(start, wait_until):
    child, reports = start(
        "import signal, sys, json, os\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        'os.write(1, b\'{"event": "up"}\\n\')\n'
        "signal.pause()\n"
    )
    assert reports.get(timeout=LONG).what == {"event": "up"}
    assert child.exit_code is None
    child.terminate()
    wait_until(lambda: child.exit_code == 0, "it does not end")


def test_lines_that_only_look_like_reports_go_to_the_log(start, wait_until):
    child, reports = start("print('{\"event\": broken')\nprint('{}')")
    wait_until(lambda: child.exit_code == 0, "it does not end")
    assert child.last_lines().splitlines() == ['{"event": broken', "{}"]
    assert reports.empty()


PARENT = """
import pathlib, sys, time
from queue import SimpleQueue
from sparkrelay.demo.children import Child
reports = SimpleQueue()
child = Child('C', 'pretend', {'x': 0}, folder=pathlib.Path(sys.argv[1]), reports=reports)
print(reports.get().what['pids'][0], flush=True)
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
