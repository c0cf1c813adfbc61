"""`sparkrelay top`: a real endpoint looked at once, with hostile names, and whatever else answers."""

import datetime as dt
import json
import re

import pytest
from tests.ports import own_port

from sparkrelay.cli import app as command_line
from sparkrelay.observe.counters import Counters
from sparkrelay.observe.details import InstanceDetails
from sparkrelay.observe.endpoint import serve
from sparkrelay.observe.http_server import HttpServer
from sparkrelay.observe.instance_view import instance_view
from sparkrelay.observe.rebalance_stories import RebalanceStories
from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata, ThreadMetadata
from sparkrelay.types import TopicPartition

HOSTILE = "[red]\x1b]0;mine\x07\nall is well"
PROCESS = "aaaaaaaa-0000-0000-0000-000000000000"


def task(name, state, lag):
    at = TopicPartition("flights", 0)
    running = state == "running"
    return TaskMetadata(
        task_id=name,
        state=state,
        topic_partitions=frozenset([at]),
        committed_offsets={at: 60} if running else {},
        end_offsets={at: 60 + lag} if running else {},
        lag=lag,
        changelog_offsets={},
        changelog_end_offsets={},
        changelog_lag=lag,
        replay_began=None if running else dt.datetime.now(dt.UTC),
    )


def instance(*, state="RUNNING", trouble=None, tasks=(), standby=()):
    thread = ThreadMetadata(
        "t-1", "RUNNING", PROCESS, None, "c", "m", "r", frozenset(), "a", tuple(tasks), tuple(standby)
    )
    alive = state == "RUNNING"
    return InstanceSnapshot("delays", state, alive, alive, trouble, (thread,), Counters().totals())


@pytest.fixture
def shown(capsys, monkeypatch):
    """`shown(snapshot, **details)`: the exit code, and what is printed on a terminal of 120 columns."""
    monkeypatch.setenv("COLUMNS", "120")

    def show(snapshot, **details):
        with serve(lambda: snapshot, port=0, details=lambda: InstanceDetails(**details)) as endpoint:
            code = command_line.run(["top", f"http://127.0.0.1:{endpoint.port}/", "--once"])
        return code, capsys.readouterr().out

    return show


def test_it_shows_who_runs_what(shown):
    stories = RebalanceStories()
    stories.assigned("t-1", 4, why="bbbbbbbb joined", moves=[], active=1, standby=1)
    stories.in_service("t-1", 4, seconds=1.5, until_assigned=0.5)
    code, out = shown(
        instance(tasks=[task("0_10", "running", 0), task("0_2", "running", 1234)], standby=[task("0_3", "standby", 7)]),
        plan=["0_2", "0_10"],
        members={"aaaaaaaa": ""},
        rebalances=stories.entries,
    )
    assert code == 0
    assert "all is well: every task runs" in out
    assert re.search(r"aaaaaaaa +RUNNING +2 +0 +1 +0 +1,234", out)
    assert re.search(
        r"0_2 +1,234 +● active\n0_3 .*○ standby 7\n0_10 ", out.replace(" \n", "\n").replace("  \n", "\n")
    ), out
    assert "generation 4: because bbbbbbbb joined, in service after 1.5 s" in out


def test_what_is_wrong_is_said_and_is_an_exit_code(shown):
    code, out = shown(instance(state="ERROR", trouble=HOSTILE), plan=["0_0"], members={"aaaaaaaa": ""})
    assert code == 1
    assert "aaaaaaaa is ERROR" in out
    assert "✕ nowhere" in out
    assert "\x1b]" not in out
    assert "[red]" in out, "what others wrote is no markup"
    assert not re.search(r"^all is well", out, re.MULTILINE)


def test_a_task_that_an_instance_without_a_page_may_run_is_unknown(shown):
    code, out = shown(instance(), plan=["0_0"], members={"aaaaaaaa": "", "bbbbbbbb": ""})
    assert code == 1
    assert "bbbbbbbb: it has no page: set its metrics.port" in out
    assert "may run on an instance without a page: tasks 0_0" in out
    assert re.search(r"bbbbbbbb +unknown", out)
    assert re.search(r"0_0 +\? unknown", out)
    assert "nowhere" not in out


def test_late_rows_are_said_and_are_no_error(shown):
    report = {
        "timestamp": "2026-01-01T10:00:00.000Z", "batchId": 7, "numInputRows": 5, "durationMs": {},
        "stateOperators": [{"numRowsDroppedByWatermark": 2}], "sink": {"numOutputRows": 4},
        "sparkrelay": {"resident": True, "tasks": {"committed": ["0_0"], "again": {}, "reopened": {}}},
    }  # fmt: skip
    code, out = shown(instance(), reports=[report, report])
    assert code == 0
    assert "all is well: every task runs" in out
    assert "4 late rows were dropped in the newest micro-batches" in out


def test_the_lag_of_a_task_that_does_not_run_is_unknown(shown):
    _, out = shown(
        instance(tasks=[task("0_0", "running", 5), task("0_1", "restoring", 9)]),
        plan=["0_0", "0_1"],
        members={"aaaaaaaa": ""},
    )
    assert re.search(r"aaaaaaaa +RUNNING +1 +1 +0 +0 +unknown", out)
    assert re.search(r"0_0 +5 +● active", out)
    assert re.search(r"0_1 +unknown +◐ restoring", out)


@pytest.mark.parametrize("url", ["ftp://here:1", "http://", "http://here:many", "http://here:99999"])
def test_what_is_no_address_is_refused(url, capsys):
    assert command_line.run(["top", url, "--once"]) == 2
    assert "is not the address of a page" in capsys.readouterr().err


def group(view, **more):
    one = {"address": "", "processes": ["aaaaaaaa"], "own": True, "age": 0.0, "problem": None, "view": view}
    return {"application": "delays", "asked": "a", "now": 1, "missing": [], "unknown": [], "instances": [one | more]}


def of_lag(lag):
    view = instance_view(instance(tasks=[task("0_0", "running", 0)]), InstanceDetails())
    view["tasks"][0]["lag"] = lag
    return view


@pytest.mark.parametrize(
    "answer",
    [lambda: group(None), lambda: group(of_lag(1), age=None), lambda: group(of_lag(1), age=None, problem="x"),
     lambda: group(of_lag(10**400))],
)  # fmt: skip
def test_odd_answers_are_refused(answer, capsys):
    def application(_, start_response):
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(answer()).encode()]

    with HttpServer(application, host="127.0.0.1", port=0, name="odd") as server:
        assert command_line.run(["top", f"127.0.0.1:{server.port}", "--once"]) == 2
    assert "Ask another instance" in capsys.readouterr().err


def test_nobody_there(capsys):
    assert command_line.run(["top", f"127.0.0.1:{own_port()}", "--once"]) == 2
    assert "refused" in capsys.readouterr().err
