"""The watch over a cluster's executors: who comes gets a process, whose executor goes is closed."""

import math
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from sparkrelay.errors import DisconnectException, StateStoreException
from sparkrelay.runtime.contract.host_metadata import HostMetadata
from sparkrelay.runtime.process import processes
from sparkrelay.runtime.process.processes import ExecutorProcesses
from sparkrelay.runtime.slot.executor_cleaner import ExecutorCleaner
from sparkrelay.runtime.spark.executor_target import ExecutorLost
from sparkrelay.runtime.spark.executors import Executor
from sparkrelay.runtime.spark.jobs import JobFailed

pytestmark = pytest.mark.timeout(120)


class Executors:
    """Doubles Spark's: the executors that the test says are there."""

    def __init__(self, *ids):
        self.there = set(ids)
        self.undescribed = set()

    def ids(self):
        return frozenset(self.there)

    def alive(self, id_):
        return id_ in self.there

    def describe(self, ids):
        return [Executor(id_, "node", 1) for id_ in sorted(ids) if id_ in self.there - self.undescribed]


class Process:
    """Doubles ProcessThreads: one thread, which ends when it is stopped, or when its executor is gone."""

    made = ()
    #: What the next starts raise.
    unstartable: ClassVar[list] = []

    def __init__(self, context, target, slot, cleaner, host_metadata):
        self.target, self.slot, self.threads = target, slot, [object()]
        self.expecting = False
        assert host_metadata == slot.host_metadata
        assert isinstance(cleaner, ExecutorCleaner)
        self.started = self.stopped = self.released = self.discarded = False
        type(self).made = (*self.made, self)

    @property
    def ended(self):
        return self.stopped or self.target.lost

    def start(self):
        if type(self).unstartable:
            raise type(self).unstartable.pop()
        self.started = True

    def give_up_unstarted(self):
        self.given_up = True

    def stop(self):
        self.stopped = True

    def lose(self):
        self.target.lose()

    def expect_rebalance(self):
        self.expecting = True

    def release(self):
        self.released = True

    def discard(self):
        self.discarded = True


class Slots:
    """Doubles ExecutorSlot: what claiming gives, in order; then slots."""

    def __init__(self):
        self.answers = []
        self.gate = threading.Event()
        self.gate.set()

    def claim(self, target, state_dir, application_id):
        self.gate.wait()
        if self.answers:
            raise self.answers.pop(0)
        where = HostMetadata(f"host of {target.executor.id}")
        name = f"slot of {target.executor.id}"
        return SimpleNamespace(name=name, path=Path(name), host_metadata=where)


@pytest.fixture
def slots(monkeypatch):
    slots = Slots()
    Process.made = ()
    monkeypatch.setattr(processes, "ExecutorSlot", slots)
    monkeypatch.setattr(processes, "ProcessThreads", Process)
    monkeypatch.setattr(processes, "start_workers", lambda target: None)
    monkeypatch.setattr(processes, "quiet_executors", lambda spark: None)
    monkeypatch.setattr(processes, "_LOOK_SECONDS", 0.005)
    monkeypatch.setattr(processes, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(processes, "_LEAVE_SECONDS", 0.05)
    return slots


@pytest.fixture
def watch(slots, wait_until):
    """`watch(executors)` makes the processes; what failed stands in `watch.failures`. All watches end with the test."""
    made = []

    def make(executors):
        jvm = SimpleNamespace(poll=lambda: None)
        java = SimpleNamespace(cancelJobGroupAndFutureJobs=lambda group: None, isStopped=lambda: make.stopped)
        jsc = SimpleNamespace(sc=lambda: java)
        context = SimpleNamespace(_jsc=jsc, _gateway=SimpleNamespace(proc=jvm))
        config = SimpleNamespace(
            state_dir="/state",
            state_cleanup_delay_ms=600_000,
            application_id="app",
            executor_wait_timeout_ms=3_600_000,
            max_poll_interval_ms=1000,
        )
        made.append(
            ExecutorProcesses(
                SimpleNamespace(sparkContext=context),
                SimpleNamespace(config=config),
                executors,
                on_change=lambda: [each.tidy() for each in made],
                on_failure=make.failures.append,
            )
        )
        return made[-1]

    make.failures = []
    make.stopped = False
    yield make
    slots.gate.set()
    for each in made:
        each.stop()
        if each._watch.ident is not None:
            # Real processes have threads, which say when they end.
            wait_until(lambda each=each: each.tidy() and not each._watch.is_alive(), "the watch still runs")


def started(watch, *there):
    """Return these executors, and the processes on them, under watch."""
    executors = Executors(*there)
    watched = watch(executors)
    watched.build()
    watched.start()
    return executors, watched


def ids(watched):
    return sorted(process.target.executor.id for process in watched.all)


def test_each_executor_that_is_there_gets_a_process(watch):
    watched = watch(Executors("0", "1"))
    watched.build()
    assert ids(watched) == ["0", "1"]
    assert not any(process.started for process in watched.all)
    watched.start()
    assert all(process.started for process in watched.all)


def test_who_comes_later_gets_a_process_once_spark_can_describe_it(watch, wait_until):
    executors, watched = started(watch, "0")
    executors.undescribed.add("1")
    executors.there.add("1")
    executors.undescribed.clear()
    wait_until(lambda: ids(watched) == ["0", "1"], "no process for executor 1")
    assert all(process.started for process in watched.all)


def test_a_process_that_cannot_start_ends_the_instance(watch, wait_until, monkeypatch):
    """It was left half begun, and a stop waited for it without end."""
    executors, _ = started(watch, "0")
    monkeypatch.setattr(Process, "unstartable", [RuntimeError("can't start new thread")])
    executors.there.add("1")
    wait_until(lambda: watch.failures, "nobody is notified")
    assert [str(error) for error in watch.failures] == ["can't start new thread"]
    late = Process.made[1]
    wait_until(lambda: late.released, "the process is still there")
    assert (late.stopped, late.given_up) == (True, True)


def test_a_lost_executor_takes_its_process_only(watch, wait_until):
    executors, watched = started(watch, "0", "1")
    gone = next(process for process in watched.all if process.target.executor.id == "0")
    executors.there = {"1", "2"}
    wait_until(lambda: gone.target.lost, "the target of executor 0 is open")
    watched.tidy()
    wait_until(lambda: ids(watched) == ["1", "2"], "no process for executor 2")
    assert gone.released
    assert not gone.stopped


def test_without_any_executor_the_instance_waits(watch, wait_until):
    executors, watched = started(watch, "0")
    executors.there = set()
    wait_until(lambda: watched.all[0].target.lost, "the target of executor 0 is open")
    assert watched.tidy() is False
    assert "waiting" in watched.blocked
    executors.there = {"1"}
    wait_until(lambda: ids(watched) == ["1"], "no process for executor 1")
    assert watched.blocked == ""
    assert watch.failures == []


def test_without_any_executor_for_too_long_the_instance_fails(watch, wait_until):
    executors, watched = started(watch, "0")
    watched._context.config.executor_wait_timeout_ms = 50
    executors.there = set()
    wait_until(lambda: watched.all[0].target.lost, "the target of executor 0 is open")
    watched.tidy()
    wait_until(lambda: watch.failures, "nobody is notified")
    (failure,) = watch.failures
    assert "no executor has worked for this instance for 0.05 s (executor.wait.timeout.ms): Spark has none" in str(
        failure
    )
    assert "have a supervisor restart this instance" in str(failure)


def test_an_executor_that_never_becomes_a_process_does_not_keep_the_instance_waiting(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    watched._context.config.executor_wait_timeout_ms = 50
    slots.gate.clear()
    executors.there = {"1"}
    wait_until(lambda: watched._making, "nothing is made")
    watched.tidy()
    assert watched.blocked == "an executor is being made ready"
    wait_until(lambda: watch.failures, "nobody is notified")
    assert "one exists, but does not become ready" in str(watch.failures[0])


def test_an_executor_that_works_ends_the_wait(watch, wait_until):
    _, watched = started(watch, "0")
    watched._context.config.executor_wait_timeout_ms = 50
    watched._idle_since = 1.0
    wait_until(lambda: watched._idle_since is None, "the wait goes on beside a process")
    assert watch.failures == []


def test_brokers_that_are_away_do_not_count_as_a_wait_for_executors(watch, slots, wait_until):
    watched = watch(Executors("0"))
    watched.build()
    watched._running, watched._idle_since = True, 1.0
    target = watched.all[0].target
    watched._making_failed(target.executor, DisconnectException("the broker is away"))
    assert watched._idle_since is None
    assert watch.failures == []


def test_a_job_that_does_not_end_blocks_the_instance(watch, monkeypatch):
    watched = watch(Executors("0", "1"))
    watched.build()
    now = time.monotonic()
    monkeypatch.setattr("sparkrelay.runtime.spark.executor_target.time.monotonic", lambda: now)
    with watched.all[0].target.under_way("the Spark job 'batch 7'"):
        now += 1.0
        assert watched.blocked == ""
        now += 1.0
        assert watched.blocked == (
            "on executor 0 on node the Spark job 'batch 7' has not ended for 2 s (max.poll.interval.ms=1000)"
        )
    assert watched.blocked == ""


def test_a_session_that_spark_has_stopped_is_no_wait_for_an_executor(watch, wait_until):
    executors, _ = started(watch, "0")
    watch.stopped = True
    executors.there = set()
    wait_until(lambda: watch.failures, "nobody is notified")
    assert "the Spark session is gone: it was stopped in its JVM" in str(watch.failures[0])


def test_a_thread_that_died_with_its_executor_is_no_failure(watch):
    watched = watch(Executors("0", "1"))
    watched.build()
    first, second = watched.all
    assert watched.lost(first.threads[0], ExecutorLost("gone"))
    assert first.target.lost
    assert not watched.lost(second.threads[0], ValueError("user code"))
    assert not second.target.lost


def test_the_others_expect_a_rebalance_when_an_executor_is_gone(watch):
    watched = watch(Executors("0", "1", "2"))
    watched.build()
    first, *others = watched.all
    assert watched.lost(first.threads[0], ExecutorLost("gone"))
    assert not first.expecting
    assert all(process.expecting for process in others)


def test_a_start_says_what_made_it_fail_and_may_be_tried_again(watch, slots):
    watched = watch(Executors("0", "1"))
    slots.answers = [StateStoreException("state.dir cannot be written to")]
    with pytest.raises(StateStoreException):
        watched.build()
    watched.discard()
    assert all(process.discarded for process in Process.made)
    watched.build()
    assert ids(watched) == ["0", "1"]


@pytest.mark.parametrize("passing", [JobFailed("a worker died"), DisconnectException("the broker is away")])
def test_a_process_that_could_not_be_made_is_tried_again(watch, slots, wait_until, passing):
    executors, watched = started(watch, "0")
    slots.answers = [passing, passing]
    executors.there.add("1")
    wait_until(lambda: ids(watched) == ["0", "1"], "no process for executor 1")
    assert watch.failures == []


def test_an_executor_that_cannot_be_used_ends_no_process_on_another_one(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    slots.answers = [StateStoreException("state.dir cannot be written to")] * 3
    executors.there.add("1")
    wait_until(lambda: "state.dir cannot be written to" in watched.trouble, "nothing is said")
    wait_until(lambda: ids(watched) == ["0", "1"], "no process for executor 1")
    assert watched.trouble == ""
    assert watch.failures == []


def test_an_executor_that_cannot_be_used_ends_the_instance_if_there_is_no_other_one(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    slots.gate.clear()
    slots.answers = [StateStoreException("state.dir cannot be written to")]
    executors.there = {"1"}
    wait_until(lambda: watched.all[0].target.lost and watched._making, "nothing is made")
    slots.gate.set()
    wait_until(lambda: watch.failures, "nobody is notified")


def test_an_executor_that_cannot_be_used_ends_nothing_while_another_one_is_made(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    slots.gate.clear()
    slots.answers = [StateStoreException("state.dir cannot be written to")]
    executors.there = {"1", "2"}
    wait_until(lambda: watched.all[0].target.lost and len(watched._making) == 2, "nothing is made")
    slots.gate.set()
    watched.tidy()
    wait_until(lambda: ids(watched) == ["1", "2"], "they are not tried again")
    assert watch.failures == []


@pytest.mark.parametrize(("tries", "pause"), [(1, 2.0), (5, 32.0), (2000, 60.0)])
def test_pauses_grow_to_their_bound(tries, pause):
    failure = processes._Failure(tries, 100.0, "state.dir cannot be written to")
    assert failure.pause == pause
    assert failure.waits(100.0 + failure.pause - 1, math.inf)
    assert not failure.waits(100.0 + failure.pause, math.inf)
    assert not failure.waits(102.0, 2.0), "nobody waits so long while nothing runs"


def test_of_an_executor_that_is_gone_nothing_is_said(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    slots.answers = [StateStoreException("state.dir cannot be written to")] * 100
    executors.there.add("1")
    wait_until(lambda: watched.trouble, "nothing is said")
    executors.there.remove("1")
    wait_until(lambda: watched.trouble == "", "it is still said")


def test_an_executor_that_dies_while_its_process_is_made_is_forgotten(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    slots.gate.clear()
    executors.there.add("1")
    wait_until(lambda: watched._making, "nothing is made")
    (target, thread) = watched._making["1"]
    executors.there.remove("1")
    wait_until(lambda: target.lost, "its target is open")
    slots.gate.set()
    thread.join()
    assert ids(watched) == ["0"]
    assert [process.discarded for process in Process.made] == [False, True]


def test_a_stop_ends_all_and_what_is_being_made_is_discarded(watch, slots, wait_until):
    executors, watched = started(watch, "0")
    slots.gate.clear()
    executors.there.add("1")
    wait_until(lambda: watched._making, "nothing is made")
    target, _ = watched._making["1"]
    watched.stop()
    wait_until(lambda: target.lost, "its jobs go on")
    assert not watched.tidy()
    slots.gate.set()
    wait_until(watched.tidy, "it does not end")
    assert [process.discarded for process in Process.made] == [False, True]
    assert Process.made[0].released
