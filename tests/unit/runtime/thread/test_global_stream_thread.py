"""The thread that keeps global tables, on tables that say what the test wants."""

import threading
from types import SimpleNamespace

import pytest
from tests.waiting import LONG

from sparkrelay.client.new_records import News
from sparkrelay.errors import (
    SerializationException,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
    WakeupException,
)
from sparkrelay.runtime.batch.micro_batch import BatchOutcome
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.thread.global_stream_thread import GlobalStreamThread
from sparkrelay.types import TaskId

ID = TaskId(1, 0)
CONFIG = SimpleNamespace(max_batch_retries=2, poll_ms=10, default_api_timeout_ms=60_000)


class Tables:
    """Answers as the script says: an error is raised, anything else returned; then there is nothing more."""

    def __init__(self, *script, opening=()):
        self.positions = {}
        self.script, self.opening, self.filled = list(script), list(opening), False
        self.calls = []

    @property
    def complete(self):
        return not self.script or self.filled

    @property
    def left(self):
        return len(self.script)

    def open(self):
        self.calls.append("open")
        if self.opening:
            raise self.opening.pop(0)

    def widen(self):
        self.calls.append("widen")

    def advance(self):
        self.calls.append("advance")
        answer = self.script.pop(0) if self.script else None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self):
        self.calls.append("close")


class Topics:
    def __init__(self):
        self.interrupted = threading.Event()

    def interrupt(self):
        self.interrupted.set()

    def await_records(self, positions, *, timeout, over):
        if self.interrupted.wait(timeout):
            raise WakeupException("interrupted")
        return News()


@pytest.fixture
def start():
    made = []

    def run(tables):
        ended = threading.Event()
        thread = GlobalStreamThread(
            name="app-GlobalStreamThread", config=CONFIG, tables=tables, topics=Topics(), on_end=ended.set
        )
        thread.start()
        made.append((thread, ended))
        return thread

    yield run
    for thread, ended in made:
        thread.stop()
        assert ended.wait(LONG)
        assert thread.ended


def until_complete(thread):
    while not thread.wait_complete(0.01):
        pass


def test_tables_are_complete_once_all_is_read(start):
    tables = Tables(BatchOutcome(committed=[ID]), BatchOutcome(committed=[ID]))
    thread = start(tables)
    until_complete(thread)
    assert tables.calls[:4] == ["open", "widen", "advance", "advance"]
    assert not thread.failed


def test_brokers_and_batches_that_fail_for_a_while_are_waited_for(start):
    again = BatchOutcome(again={ID: JobFailed("a worker died")})
    tables = Tables(TimeoutException("silent"), again, JobFailed("x"), opening=[TimeoutException("silent")])
    until_complete(start(tables))
    assert tables.calls.count("open") == 2


@pytest.mark.parametrize(
    ("error", "kind"), [(SerializationException("bad record"), SerializationException), (OSError(5), StreamsException)]
)
def test_whoever_waits_is_given_what_ended_it(start, error, kind):
    tables = Tables(error, None)
    thread = start(tables)
    with pytest.raises(kind):
        until_complete(thread)
    assert thread.failed
    with pytest.raises(kind):
        thread.check()
    assert tables.calls[-1] == "close"


def test_jobs_that_go_on_failing_end_it(start):
    thread = start(Tables(opening=[JobFailed("no Python")] * 9))
    with pytest.raises(JobFailed, match="no Python"):
        until_complete(thread)


@pytest.mark.parametrize(("milliseconds", "lives"), [(60_000, True), (0, False)])
def test_a_topic_that_was_there_may_be_unknown_for_a_while(start, monkeypatch, wait_until, milliseconds, lives):
    monkeypatch.setattr(CONFIG, "default_api_timeout_ms", milliseconds)
    tables = Tables(BatchOutcome(committed=[ID]), UnknownTopicException("gone"), BatchOutcome(committed=[ID]))
    tables.filled = True
    thread = start(tables)
    wait_until(lambda: thread.failed or not tables.script, "it neither goes on nor ends")
    assert thread.failed != lives


def test_a_topic_that_was_never_there_is_not_waited_for(start):
    thread = start(Tables(opening=[UnknownTopicException("no such topic")]))
    with pytest.raises(UnknownTopicException):
        until_complete(thread)


def test_one_that_never_ran_counts_as_ended():
    thread = GlobalStreamThread(name="x", config=CONFIG, tables=Tables(), topics=Topics(), on_end=print)
    assert not thread.ended
    thread.give_up_unstarted()
    assert thread.ended
