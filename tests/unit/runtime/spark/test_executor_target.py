"""A target: what its jobs are called, and how it learns that nothing runs there any more."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.spark import executor_target as targets
from sparkrelay.runtime.spark.executor_target import ExecutorLost, ExecutorTarget
from sparkrelay.runtime.spark.executors import Executor


class Java:
    """Doubles the JVM's SparkContext."""

    def __init__(self):
        self.stopped, self.asked, self.closed = False, 0, []

    def sc(self):
        return self

    def isStopped(self):
        self.asked += 1
        if isinstance(self.stopped, Exception):
            raise self.stopped
        return self.stopped

    def cancelJobGroupAndFutureJobs(self, group):
        self.closed.append(group)


@pytest.fixture
def java():
    return Java()


@pytest.fixture
def spark(java):
    return SimpleNamespace(sparkContext=SimpleNamespace(_jsc=java, _gateway=SimpleNamespace()))


@pytest.fixture
def executors():
    """Doubles Executors: one that is there until the test says otherwise."""
    executors = SimpleNamespace(there=True)
    executors.alive = lambda id_: executors.there
    return executors


@pytest.fixture
def target(spark, executors):
    return ExecutorTarget.on(spark, Executor("7", "node", 1), executors)


def test_what_is_closed_with_a_place_is_open_at_the_next_one_of_that_executor(target, java):
    """Spark refuses all later jobs of a group that was closed."""
    group = target.job_group("slot")
    later = target.renewed()
    assert target.job_group("slot") == group
    target.lose()
    assert java.closed == [group]
    assert later.job_group("slot") != group


def test_the_groups_of_the_driver_are_called_as_they_are(spark):
    assert ExecutorTarget(spark, spark_partitions=2).job_group("batch") == "batch"


def test_the_jvm_is_not_asked_at_each_turn(target, java, monkeypatch):
    monkeypatch.setattr(targets, "_ASK_SECONDS", 3600.0)
    target.require()
    java.stopped = True
    target.require()
    assert java.asked == 1
    with pytest.raises(StreamsException, match="it was stopped in its JVM"):
        target.require_alive()


def test_a_stop_is_noticed_by_who_looks_again(target, java, monkeypatch):
    monkeypatch.setattr(targets, "_ASK_SECONDS", 0.0)
    target.require()
    java.stopped = True
    with pytest.raises(StreamsException, match="it was stopped in its JVM"):
        target.require()


def test_a_jvm_that_does_not_answer_is_gone(target, java):
    java.stopped = Py4JError("connection refused")
    with pytest.raises(StreamsException, match="the Spark session is gone .*refused"):
        target.require()


def test_after_a_failed_job_it_is_asked_whether_the_executor_lives(target, executors):
    target.require_alive()
    executors.there = False
    target.require()
    for _ in range(2):
        with pytest.raises(ExecutorLost, match="executor 7 on node is gone"):
            target.require_alive()


def test_that_the_session_was_stopped_comes_before_that_its_executors_are_gone(target, java, executors):
    java.stopped, executors.there = True, False
    with pytest.raises(StreamsException, match="it was stopped in its JVM"):
        target.require_alive()
    assert not target.lost
