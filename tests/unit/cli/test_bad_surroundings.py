"""Closed pipes, full disks, places that cannot be written, files that are not text: one line, no traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import LONG

from sparkrelay.cli import app as command_line

A = "5f2c1d90-0000-4000-8000-000000000001"
COMMAND = [sys.executable, "-c", "from sparkrelay.cli.app import main; main()"]


@pytest.fixture
def group(tmp_path):
    ends = {"0_0": 120_000, "0_1": 100_000}
    file = tmp_path / "group.json"
    written = {
        "tasks": [{"id": task, "stateful": True, "end_offset_sum": end} for task, end in ends.items()],
        "clients": [{"process_id": A, "prev_active": ["0_0", "0_1"], "lags": dict.fromkeys(ends, -2)}],
    }
    file.write_text(json.dumps(written))
    return file


@pytest.fixture
def requests(tmp_path):
    file = tmp_path / "requests.jsonl"
    file.write_text('{"name": "x"}\n' * 20_000)
    return file


def answer(*arguments, **settings):
    return subprocess.run([*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True, check=False, **settings)


@pytest.fixture(params=["plan", "plan as JSON", "assign"])
def command(request, group, requests):
    return {
        "plan": ["plan", "--state", group, "--add", "1"],
        "plan as JSON": ["plan", "--state", group, "--add", "1", "--json"],
        "assign": ["assign", requests],
    }[request.param]


def test_nobody_reads_on(command):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        shown = answer(*command, stdout=writing)
    finally:
        os.close(writing)
    # 141: as a shell reports a program that a closed pipe ended. Tables are printed by rich, which ends with 1.
    assert shown.returncode in {141, 1}
    assert shown.stderr == ""


def test_a_full_disk_is_named(command):
    with Path("/dev/full").open("w") as full:
        shown = answer(*command, stdout=full)
    assert (shown.returncode, shown.stderr) == (1, "sparkrelay: No space left on device\n")


def test_requests_that_are_no_text_are_answered_as_malformed(tmp_path, capsys):
    file = tmp_path / "requests.jsonl"
    file.write_bytes(b'\xff\xfe\x00\n{"name": "x"}\n')
    assert command_line.run(["assign", str(file)]) == 1
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["output"]["error"]["class"] == "MalformedInput"
    assert second["name"] == "x"


@pytest.mark.parametrize("option", ["--json", "--csv", "--parquet", "--picture"])
def test_a_study_that_could_not_be_written_is_not_begun(option, tmp_path, capsys):
    wall = tmp_path / "wall"
    wall.mkdir()
    suffix = ".svg" if option == "--picture" else ""
    # A name too long cannot be written by anybody, not even by who may write everywhere.
    assert command_line.run(["simulate", "--scenarios", "1", option, str(wall / ("x" * 300 + suffix))]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith(f"sparkrelay: {option} ")
    assert "File name too long" in shown
    assert shown.count("\n") == 1
    assert command_line.run(["simulate", "--scenarios", "1", "--json", str(wall)]) == 1
    assert "Is a directory" in capsys.readouterr().err
    assert list(wall.iterdir()) == []


def test_a_study_has_one_folder_for_each_form(tmp_path, capsys):
    new = str(tmp_path / "new")
    assert command_line.run(["simulate", "--scenarios", "1", "--csv", new, "--parquet", new]) == 1
    assert "--csv and --parquet" in capsys.readouterr().err


def test_ctrl_c_is_one_line():
    waits = subprocess.Popen(
        [*COMMAND, "assign", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    waits.stdin.write('{"name": "x"}\n')
    waits.stdin.flush()
    waits.stdout.readline()  # now it waits for more
    waits.send_signal(signal.SIGINT)
    _out, err = waits.communicate(timeout=LONG)
    assert (waits.returncode, err) == (130, "sparkrelay: interrupted\n")


BAD = """
from sparkrelay.assignment import AssignedTask, KafkaStreamsAssignment, TaskAssignment, TaskAssignor

class Exits(TaskAssignor):
    def assign(self, state):
        raise SystemExit(0)

class ExitsWhenMade(TaskAssignor):
    def __init__(self):
        raise SystemExit(0)
    def assign(self, state): ...

class Nothing(TaskAssignor):
    def assign(self, state): ...

class Nonsense(TaskAssignor):
    def assign(self, state):
        return TaskAssignment([None])

class LeavesOut(TaskAssignor):
    def assign(self, state):
        return TaskAssignment([KafkaStreamsAssignment.of(process, []) for process in state.clients])
"""


@pytest.fixture
def plan(group, tmp_path, capsys):
    file = tmp_path / "bad.py"
    file.write_text(BAD)

    def run(name, *options):
        code = command_line.run(["plan", "--state", str(group), "--assignor", f"{file}:{name}", *options])
        shown = capsys.readouterr()
        return code, shown.out, shown.err

    return run


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Exits", "failed: SystemExit: 0"),
        ("ExitsWhenMade", "cannot be made: SystemExit: 0"),
        ("Nothing", "returned None instead of a TaskAssignment"),
        ("Nonsense", "an entry None"),
    ],
)
def test_an_assignor_that_fails_cannot_be_planned_for(plan, name, message):
    code, out, err = plan(name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_a_file_that_ends_the_program_is_no_assignor(group, tmp_path, capsys):
    file = tmp_path / "script.py"
    file.write_text("import sys\nsys.exit(0)\n")
    assert command_line.run(["plan", "--state", str(group), "--assignor", f"{file}:Any"]) == 2
    assert "cannot be imported: SystemExit: 0" in capsys.readouterr().err


def test_tasks_that_nobody_runs_are_without_service(plan):
    code, out, _err = plan("LeavesOut")
    assert code == 0
    assert "for good: 0_0 0_1" in out


def test_settings_that_kafka_refuses_are_not_the_files_fault(group, capsys):
    assert command_line.run(["plan", "--state", str(group), "--warm-ups", "0"]) == 2
    shown = capsys.readouterr().err
    assert "max.warmup.replicas" in shown
    assert "does not describe" not in shown


@pytest.mark.parametrize("lag", ["5", None, [], {}, True, 1.5, float("inf"), -4, 1 << 63])
def test_a_lag_that_is_no_number_of_offsets_is_named(group, capsys, lag):
    written = json.loads(group.read_text())
    written["clients"][0]["lags"]["0_1"] = lag
    group.write_text(json.dumps(written))
    assert command_line.run(["plan", "--state", str(group)]) == 2
    shown = capsys.readouterr().err
    assert f"lag {lag!r} of task 0_1" in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize("count", [1001, 10**20])
def test_more_instances_than_a_group_can_have_are_refused(group, capsys, count):
    assert command_line.run(["plan", "--state", str(group), "--add", str(count)]) == 2
    assert f"--add {count}" in capsys.readouterr().err
