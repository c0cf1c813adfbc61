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


def answer(*arguments, **settings):
    return subprocess.run([*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, text=True, check=False, **settings)


@pytest.fixture(params=["plan", "plan as JSON"])
def command(request, group):
    return {
        "plan": ["plan", "--state", group, "--add", "1"],
        "plan as JSON": ["plan", "--state", group, "--add", "1", "--json"],
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


def test_ctrl_c_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "group")
    waits = subprocess.Popen(
        [*COMMAND, "plan", "--state", str(tmp_path / "group"), "--add", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with (tmp_path / "group").open("w"):  # the command has opened it too, and waits for what comes
        waits.send_signal(signal.SIGINT)
        _out, err = waits.communicate(timeout=LONG)
    assert (waits.returncode, err) == (130, "sparkrelay: interrupted\n")
