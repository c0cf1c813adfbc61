"""The command's own checks, before anything is started."""

import io
import subprocess
import sys
import tempfile

import pytest
from rich.console import Console

from sparkrelay.cli import app as command_line, demo as command
from sparkrelay.demo.screen import Screen
from sparkrelay.demo.story import QUICK, Pacing, Result, Story
from sparkrelay.errors import SparkRelayError


@pytest.fixture(autouse=True)
def no_story(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # logs that are kept, are kept there

    def refuse(self):
        raise AssertionError("a story was started")

    monkeypatch.setattr(Story, "run", refuse)


def fails_with(capsys, arguments, *words):
    assert command_line.run(["demo", *arguments]) == 1
    message = capsys.readouterr().err
    assert message.startswith("sparkrelay: ")
    for word in words:
        assert word in message


@pytest.mark.parametrize("number", ["-1", "9"])
def test_odd_numbers_of_executors_are_refused(capsys, number):
    fails_with(capsys, [f"--executors={number}"], f"--executors {number}", "give 0", "8")


def test_a_file_that_cannot_be_written_is_refused_first(capsys, tmp_path):
    fails_with(capsys, ["--json", str(tmp_path / "no" / "x.json")], "No such file", "x.json")


@pytest.mark.parametrize("path", ["no.such.module:Thing", "json:JSONDecoder", "nothing"])
def test_an_assignor_that_cannot_be_used_is_refused_first(capsys, path):
    fails_with(capsys, ["--assignor", path], "task.assignor.class", path.rpartition(":")[2])


RESULT = Result(
    records=336_776,
    exact=True,
    lost=0,
    overcounted=0,
    records_per_second=5000.0,
    joined_s=4.0,
    spark_start_s=6.0,
    takeover_s=7.0,
    executors=0,
    executor_takeover_s=None,
    instances=2,
    session_timeout_ms=6000,
    kafka_version="4.3.1",
    spark_version="4.3.0",
    rows_written=1,
    tasks_moved=4,
    tasks_taken_over=4,
    seconds=60.0,
    differences=(),
)


def shown(result):
    console = Console(file=io.StringIO(), width=110)
    console.print(command._summary(result))
    return console.file.getvalue()


def test_the_verdict_in_plain_words():
    import dataclasses

    assert "EXACT: one instance was killed, and every flight was counted once" in shown(RESULT)
    wrong = dataclasses.replace(RESULT, exact=False, lost=3, differences=("delays-by-origin EWR: batch 4, stream 1",))
    assert "NOT EXACT" in shown(wrong)
    assert "delays-by-origin EWR" in shown(wrong)
    assert "owned active tasks 4.0 s after" in shown(RESULT)
    assert "at rest, without active tasks, 4.0 s after" in shown(dataclasses.replace(RESULT, tasks_moved=0))


def test_the_outcome_is_written_and_decides_the_exit_code(monkeypatch, capsys, tmp_path):
    import dataclasses
    import json

    for exact in (True, False):
        monkeypatch.setattr(Story, "run", lambda self, exact=exact: dataclasses.replace(RESULT, exact=exact))
        assert command_line.run(["demo", "--quick", "--json", str(tmp_path / "x.json")]) == (0 if exact else 1)
        assert json.loads((tmp_path / "x.json").read_text())["exact"] is exact
    assert "The logs are in" in capsys.readouterr().out


def test_a_stage_that_takes_too_long_says_what_it_waited_for(monkeypatch):
    with Story(Screen(Console(file=io.StringIO())), pacing=QUICK) as story:
        story.board.add("A")
        with pytest.raises(SparkRelayError, match=r"waited 0 s in vain for: the moon\. \(A: starting Spark\)"):
            story._until("the moon", lambda: False, 0.2)
        logs = story.logs
        assert logs.is_dir()
    assert not logs.exists()


def report(story, name, batches=0, **tasks):
    story.board.apply(name, {"event": "state", "state": "RUNNING"})
    held = {task.removeprefix("t"): list(state) for task, state in tasks.items()}
    threads = [{"process": name, "executor": None, "tasks": held}]
    what = {"at": 0.0, "threads": threads, "behind": 0, "records": 0, "batches": batches}
    story.board.apply(name, {"event": "tasks", "status": "RUNNING", **what})


@pytest.fixture
def story():
    with Story(Screen(Console(file=io.StringIO())), pacing=QUICK, assignor="mine.py:Mine") as story:
        story.board.add("A")
        story.board.add("B")
        yield story


def test_an_instance_works_though_it_reads_no_flights(story):
    report(story, "A", batches=3, t0_0=("running", 0))
    report(story, "B", batches=0, t1_0=("running", 0))
    story.board.elapsed = 100.0
    assert not story._steady()
    report(story, "B", batches=1, t1_0=("running", 0))  # its task reads what A has repartitioned
    story.board.elapsed = 200.0
    assert story._steady()


def test_an_assignor_may_leave_the_newcomer_without_active_tasks(story):
    report(story, "A", batches=3, t0_0=("running", 0))
    report(story, "B", t0_0=("standby", 500))
    story.board.elapsed = 100.0
    assert not story._has_no_share("B")  # it warms up: a share may follow
    report(story, "B", t0_0=("standby", 0))
    assert not story._has_no_share("B")  # it has only just become warm
    story.board.elapsed = 200.0
    assert story._has_no_share("B")
    assert story._steady()
    report(story, "B", t0_0=("running", 0))
    story.board.elapsed = 300.0
    assert not story._has_no_share("B")


def test_who_is_left_without_work_is_not_killed(story):
    report(story, "A")
    report(story, "B", batches=3, t0_0=("running", 0))
    story.board.elapsed = 100.0
    assert not story._steady()


def test_a_stage_that_fails_names_the_assignor(story):
    with pytest.raises(SparkRelayError, match=r"The tasks are assigned by mine\.py:Mine"):
        story._until("the moon", lambda: False, 0.0)


def test_logs_are_kept_when_the_story_fails():
    with pytest.raises(SparkRelayError), Story(Screen(Console(file=io.StringIO())), pacing=Pacing()) as story:
        raise SparkRelayError("no")
    assert story.logs.is_dir()


def test_help_needs_nothing_heavy():
    script = (
        "import sys, sparkrelay.cli.demo\n"
        "print([name for name in ('pyspark', 'pyarrow', 'numba', 'kafka', 'pandas') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
