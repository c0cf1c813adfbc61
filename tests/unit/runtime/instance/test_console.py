"""What an instance says on stderr, and when it leaves that to logging."""

import logging
import sys
import threading

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.observe.counters import Counters
from sparkrelay.observe.snapshot import InstanceSnapshot, TaskMetadata, ThreadMetadata
from sparkrelay.runtime.instance.console import Console
from sparkrelay.runtime.instance.lifecycle import (
    CREATED,
    ERROR,
    NOT_RUNNING,
    PENDING_ERROR,
    PENDING_SHUTDOWN,
    REBALANCING,
    RUNNING,
)

pytestmark = pytest.mark.usefixtures("spark")


def task(id_, state, lag):
    return TaskMetadata(id_, state, frozenset(), {}, {}, lag, {}, {}, None, None)


class Instance:
    def __init__(self):
        self.counters = Counters()
        self.trouble = None
        self.ready = True
        self.active = task("0_0", "running", 1200), task("0_1", "restoring", 50_000)

    def records(self, count):
        self.counters.batch(
            at=0.0, seconds=1.0, commit_seconds=None, records={"a": count}, rows_written=0, reopened=0, failed=False
        )

    def __call__(self):
        thread = ThreadMetadata(
            "t", "RUNNING", "p", None, "c", "m", "r", frozenset(), "a", self.active, (task("0_2", "standby", 3),)
        )
        fields = {"application_id": "delays", "state": "RUNNING", "alive": True, "trouble": self.trouble}
        if "ready" in InstanceSnapshot.__dataclass_fields__:
            fields["ready"] = self.ready
        return InstanceSnapshot(**fields, threads=(thread,), totals=self.counters.totals())


@pytest.fixture
def instance():
    return Instance()


@pytest.fixture
def make(instance, monkeypatch):
    # As in a script: pytest has handlers of its own.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    made = []

    def console(*, quiet=False, interval=60.0):
        made.append(Console("delays", quiet=quiet, read=instance, interval=interval))
        return made[-1]

    yield console
    for one in made:
        one.close()


def said(capsys):
    """Return the lines without their times."""
    return [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]


def test_a_life_is_a_few_lines(make, capsys):
    console = make()
    console.start("brokers b:9092")
    for new, old in [(REBALANCING, CREATED), (RUNNING, REBALANCING), (REBALANCING, RUNNING), (RUNNING, REBALANCING)]:
        console.on_state(new, old)
    console.on_state(PENDING_SHUTDOWN, RUNNING)
    console.on_state(NOT_RUNNING, PENDING_SHUTDOWN)
    first, running, stopping, stopped = said(capsys)
    assert first == "delays: starting with brokers b:9092"
    assert running.startswith("delays: RUNNING after ")
    assert running.endswith(" s: 2 active tasks, 1 standby")
    assert stopping == "delays: stopping"
    assert stopped.startswith("delays: stopped after ")
    assert stopped.endswith(" s: 2 tasks released")


def test_it_says_how_much_is_compiled(make, capsys):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json("n int")).where("n > 0")
    rows.groupBy("user").count().to("counts")
    make().compiling(builder.build())
    rows.to("out")
    make().compiling(builder.build())
    assert said(capsys) == ["delays: compiling 3 steps in 1 leg", "delays: compiling 4 steps in 2 legs"]


def test_a_failure_says_where_its_cause_is(make, capsys):
    console = make()
    console.start("brokers b:9092")
    console.on_state(PENDING_ERROR, RUNNING)
    console.on_state(ERROR, PENDING_ERROR)
    assert said(capsys)[-1].endswith("awaitTermination() and exception() have the cause")


def test_an_instance_that_never_started_says_nothing(make, capsys):
    console = make()
    console.on_state(PENDING_SHUTDOWN, CREATED)
    console.on_state(NOT_RUNNING, PENDING_SHUTDOWN)
    assert said(capsys) == []


def test_once_a_minute_it_says_how_it_is(make, instance, capsys, wait_until):
    console, lines = make(interval=0.01), []
    instance.records(61_234)
    instance.trouble = "no broker answers"
    console.start("brokers b:9092")
    wait_until(lambda: len(lines) > 2 or lines.extend(said(capsys)), "nothing was said")
    assert lines[1] == (
        "delays: RUNNING: 61,234 records in the last 0 s, lag at least 1,200, 2 active tasks, 1 standby; "
        "no broker answers"
    )
    assert " 0 records in the last" in lines[2]


@pytest.mark.parametrize(
    ("active", "ready", "lag"),
    [
        ((task("0_0", "running", 3), task("0_1", "running", 4)), True, "lag 7,"),
        ((task("0_0", "running", 0),), True, "lag 0,"),
        ((task("0_0", "running", None), task("0_1", "running", 4)), True, "lag at least 4,"),
        ((task("0_0", "created", None), task("0_1", "restoring", 9)), False, "lag unknown,"),
        ((), False, "lag unknown,"),
        ((), True, "lag 0,"),
    ],
)
def test_the_lag_of_tasks_that_do_not_run_is_unknown(active, ready, lag, make, instance, capsys, wait_until):
    instance.active, instance.ready = active, ready
    console, lines = make(interval=0.01), []
    console.start("brokers b:9092")
    wait_until(lambda: len(lines) > 1 or lines.extend(said(capsys)), "nothing was said")
    assert lag in lines[1]


def test_its_thread_ends_with_the_instance(make, instance, capsys, wait_until):
    console = make(interval=0.01)
    console.start("brokers b:9092")
    console.on_state(ERROR, PENDING_ERROR)
    threads = [thread for thread in threading.enumerate() if thread.name == "delays-console"]
    wait_until(lambda: not any(thread.is_alive() for thread in threads), "the thread goes on")


@pytest.mark.parametrize(("level", "shown"), [(logging.INFO, False), (logging.WARNING, True)])
def test_logging_that_shows_the_lines_is_left_alone(make, capsys, monkeypatch, level, shown):
    root, handler = logging.getLogger(), logging.NullHandler()
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(root, "level", level)
    monkeypatch.setattr(logging.getLogger("sparkrelay"), "level", logging.NOTSET)
    for logger in (root, logging.getLogger("sparkrelay.runtime.instance.console")):
        logger.manager._clear_cache()
    console = make()
    monkeypatch.setattr(root, "handlers", [handler])
    console.start("brokers b:9092")
    root.manager._clear_cache()
    assert bool(said(capsys)) is shown


def test_a_quiet_instance_logs_alone(make, capsys, caplog):
    with caplog.at_level(logging.INFO, "sparkrelay.runtime.instance.console"):
        logging.getLogger("sparkrelay.runtime.instance.console").addHandler(caplog.handler)
        make(quiet=True).start("brokers b:9092")
        logging.getLogger("sparkrelay.runtime.instance.console").removeHandler(caplog.handler)
    assert said(capsys) == []
    assert "starting with brokers b:9092" in caplog.text


def test_a_stderr_that_is_gone_keeps_nobody_from_working(make, monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    make().start("brokers b:9092")
