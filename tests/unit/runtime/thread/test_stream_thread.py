"""The stream thread without a broker and without Spark: what it does in which order, and how it ends."""

import math
import threading
from types import SimpleNamespace

import pytest
from tests.doubles.tasks import task_of
from tests.waiting import LONG

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import (
    AuthorizationException,
    OffsetOutOfRangeException,
    ProducerFencedException,
    StoreOutOfStepException,
    StreamsException,
    TimeoutException,
    WakeupException,
)
from sparkrelay.runtime.batch.progress import ProgressLog
from sparkrelay.runtime.spark.executor_target import ExecutorLost
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.runtime.thread.stream_thread import StreamThread, ThreadCallbacks
from sparkrelay.runtime.thread.uncaught_exceptions import StreamThreadExceptionResponse
from sparkrelay.types import TaskId

TASK = TaskId(0, 0)


class StreamsMembership:
    """A member whose heartbeats the test answers."""

    stable = True
    member_id = "member"

    def __init__(self):
        self.heartbeats = 7
        self.at_poll = self.at_close = lambda: None
        self.interrupted, self.joined = threading.Event(), threading.Event()
        self.expected = 0
        self.asked = []
        self.woken = False
        self.alone = False

    def nobody_else(self):
        return self.alone

    def poll(self, timeout):
        self.at_poll()

    def expect_rebalance(self):
        self.expected += 1

    def ask(self, reason):
        self.asked.append(reason)

    def consider_follow_up(self, tasks):
        pass

    def note_service(self, *, all_up):
        pass

    def wakeup(self):
        self.woken = True

    def interrupt(self):
        self.interrupted.set()

    def start(self, tasks):
        self.joined.set()

    def close(self, *, for_good=False):
        self.for_good = for_good
        self.at_close()


class Tasks:
    """Notes which tasks are initialized."""

    all_up = True
    internal_topics = ()
    active = frozenset({TASK})

    def __init__(self):
        self.closed, self.initialized = [], []
        self.gone = None
        self.unclosed = None
        self.ended = []

    def start(self):
        pass

    def drop(self):
        self.ended.append("dropped")

    def close(self, *, clean, batches):
        self.ended.append("closed")
        if self.unclosed is not None:
            raise self.unclosed

    def reinitialize(self, task, reason):
        self.closed.append(task.id)

    def require_target(self):
        if self.gone is not None:
            raise self.gone

    def bring_up(self):
        self.initialized, self.closed = self.initialized + self.closed, []

    def clean_up(self):
        pass

    def running(self):
        return []


class Bench:
    def __init__(self, *, beside=False):
        self.failures, self.replaced, self.failure = [], [], None
        self.unopened = []
        self.prewarmed = threading.Event()
        self.prewarmed.set()
        self.membership, self.tasks, self.service = StreamsMembership(), Tasks(), InService()
        self.thread = StreamThread(
            number=0,
            name="app",
            config=StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "h:1"}),
            membership=self.membership,
            tasks=self.tasks,
            in_service=self.service,
            batches=SimpleNamespace(
                check=self.check,
                start=lambda: None,
                wait_prewarmed=self.prewarmed.wait,
            ),
            progress=ProgressLog("app").thread(),
            stopping=threading.Event(),
            open_transactions=self.open,
            beside=beside,
            callbacks=ThreadCallbacks(
                on_change=lambda: None,
                on_failure=lambda _, error: self.failures.append(error) or StreamThreadExceptionResponse.REPLACE_THREAD,
                on_unclosed=lambda _, error: (
                    self.failures.append(error) or StreamThreadExceptionResponse.SHUTDOWN_CLIENT
                ),
                on_replace=self.replaced.append,
            ),
        )

    def open(self):
        if self.unopened:
            raise self.unopened.pop(0)

    def check(self):
        if self.failure is not None:
            raise self.failure

    def fall_out(self, reason):
        self.service.put([task_of(id_=TASK, inputs=(), changelogs={}, directory=None)])
        self.service.look()
        self.service.done({TASK: reason})

    def turn(self):
        self.thread._retrying(self.thread._turn)
        return self.tasks.initialized


@pytest.fixture
def bench():
    return Bench()


def test_what_fell_out_of_service_is_opened_again(bench):
    bench.fall_out(StoreOutOfStepException("a batch came late"))
    assert bench.turn() == [TASK]


@pytest.mark.parametrize("failure", [OffsetOutOfRangeException("beyond the end"), TimeoutException("no leader")])
def test_what_cannot_be_purged_is_purged_another_time(bench, caplog, failure):
    purges = []

    def purge(before):
        purges.append(before)
        raise failure

    bench.membership.purge = purge
    bench.thread._purged_at = -math.inf
    bench.turn()
    bench.turn()
    assert len(purges) == 1
    assert str(failure) in caplog.text


def test_who_may_not_purge_is_reported(bench):
    def purge(_):
        raise AuthorizationException("DELETE on topic app-repartition")

    bench.membership.purge = purge
    bench.thread._purged_at = -math.inf
    with pytest.raises(AuthorizationException):
        bench.turn()


def test_who_was_expelled_does_not_run_until_the_group_has_answered_again(bench, wait_until):
    """It has no tasks then, and all of none are in service."""
    seen, answers = [], iter([True, False, True])

    def poll():
        # What the turn before has come to.
        seen.append((bench.thread.running, bench.thread.state))
        bench.membership.stable = next(answers, None)
        if bench.membership.stable is None:
            bench.thread.stop()

    bench.membership.at_poll = poll
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "the thread did not end")
    assert seen[1:] == [(True, "RUNNING"), (False, "PARTITIONS_REVOKED"), (True, "RUNNING")]


def test_a_member_without_an_assignment_opens_nothing(bench):
    """What it was given may be another's."""
    bench.fall_out(StoreOutOfStepException("a batch came late"))
    bench.membership.stable = False
    assert bench.turn() == []
    bench.membership.stable = True
    assert bench.turn() == [TASK]


def test_it_is_reported_that_tasks_are_not_up_while_the_broker_hinders_them(bench, wait_until):
    seen = []

    def bring_up():
        seen.append(bench.thread.state)
        if len(seen) == 2:
            bench.tasks.all_up = False
            raise TimeoutException("a partition has no leader")
        if len(seen) == 3:
            bench.thread.stop()

    bench.tasks.bring_up = bring_up
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "the thread did not end")
    assert seen[1:] == ["RUNNING", "PARTITIONS_ASSIGNED"]


def test_a_fenced_owner_initializes_nothing_before_a_heartbeat_sent_since_was_answered(bench):
    bench.fall_out(ProducerFencedException("another owner"))
    assert bench.turn() == bench.turn() == []
    bench.membership.heartbeats += 1
    assert bench.turn() == [], "that one was under way before"
    bench.membership.heartbeats += 1
    assert bench.turn() == [TASK]


def test_partitions_that_nobody_reads_are_asked_for_once(bench):
    for unread in ("orders has 3", "orders has 3", "orders has 4", None, "orders has 5"):
        bench.thread.progress.unread = unread
        bench.turn()
    assert bench.membership.asked == ["orders has 3", "orders has 4", "orders has 5"]


def test_what_hindered_tasks_that_have_left_hinders_nobody(bench):
    """An instance that was cut off comes back as a standby alone, and nobody looks at inputs there."""
    progress = bench.thread.progress
    progress.trouble("no broker answers")
    progress.lags_now, progress.unread = {"orders-0": 500}, "orders has 3"
    bench.turn()
    assert (progress.hindered, progress.lags_now, progress.unread) == (
        *("no broker answers", {"orders-0": 500}),
        "orders has 3",
    ), "a task is here, and its next look says more"
    bench.tasks.active, bench.membership.stable = frozenset(), False
    bench.turn()
    assert progress.hindered == "no broker answers", "it does not know its tasks yet"
    bench.membership.stable = True
    bench.turn()
    assert (progress.hindered, progress.lags_now, progress.unread) == (None, {}, None)


def test_what_the_heartbeat_brought_is_acted_on_first(bench):
    """The second answer says that we are no member any more: the poll takes our tasks away."""
    bench.fall_out(ProducerFencedException("another owner"))
    bench.turn()

    def answered_in_the_poll():
        bench.membership.heartbeats += 2

    bench.membership.at_poll = answered_in_the_poll
    assert bench.turn() == [], "it was not known before the poll"
    bench.membership.at_poll = bench.tasks.closed.clear
    assert bench.turn() == []


def test_the_group_is_joined_once_the_workers_are_up(bench, wait_until):
    """With state of former runs it is given tasks at once, which others then do not run any more."""
    bench.prewarmed.clear()
    bench.thread.start()
    assert not bench.membership.joined.wait(0.3)  # a thread that joins too soon has joined by then, unless it is slow
    bench.prewarmed.set()
    assert bench.membership.joined.wait(LONG)
    bench.thread.stop()
    wait_until(lambda: bench.thread.ended, "the thread did not end")


def test_a_group_without_others_is_joined_beside_the_prewarm(bench, wait_until):
    """Nobody runs the tasks meanwhile, so they need not wait for the one before the other."""
    bench.membership.alone = True
    bench.prewarmed.clear()
    bench.thread.start()
    assert bench.membership.joined.wait(LONG)
    bench.thread.stop()
    wait_until(lambda: bench.thread.ended, "the thread did not end")


def test_beside_others_of_its_process_that_run_the_tasks_the_prewarm_is_waited_for(wait_until):
    """They go on with them until then."""
    bench = Bench(beside=True)
    bench.membership.alone = True
    bench.prewarmed.clear()
    bench.thread.start()
    assert not bench.membership.joined.wait(0.3)  # a thread that joins too soon has joined by then, unless it is slow
    bench.prewarmed.set()
    assert bench.membership.joined.wait(LONG)
    bench.thread.stop()
    assert bench.thread.wait(LONG)


@pytest.mark.parametrize("asked", ["stop", "remove"])
def test_who_is_removed_leaves_for_good(bench, asked):
    """Who is stopped may come back, as a static member."""
    bench.thread.start()
    assert bench.membership.joined.wait(LONG)
    assert not bench.thread.wait(0)
    getattr(bench.thread, asked)()
    assert bench.thread.wait(LONG)
    assert bench.membership.for_good is bench.thread.removed is (asked == "remove")


def test_callbacks_of_those_that_work_for_a_thread_are_its_own(bench):
    current = {}
    for name in ("app", "app-batch", "app-restore", "app1-batch", "other"):
        looking = threading.Thread(target=lambda name=name: current.update({name: bench.thread.is_current}), name=name)
        looking.start()
        looking.join(LONG)
    assert current == {"app": True, "app-batch": True, "app-restore": True, "app1-batch": False, "other": False}


def test_a_thread_that_lost_its_executor_in_the_prewarm_does_not_join(bench, wait_until):
    bench.tasks.gone = ExecutorLost("executor 1 is gone")
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "the thread did not end")
    assert not bench.membership.joined.is_set()
    assert bench.failures == [bench.tasks.gone]


@pytest.mark.parametrize("users", [True, False])
def test_a_traceback_is_shown_of_what_the_users_code_raised(bench, wait_until, caplog, users):
    bench.failure = StreamsException("task assignor Mine failed: 'NoneType' object has no attribute 'id'")
    bench.failure.__cause__ = AttributeError("'NoneType' object has no attribute 'id'") if users else None
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "the thread did not end")
    (record,) = [record for record in caplog.records if "stream thread dies" in record.message]
    assert "task assignor Mine failed" in record.message
    assert bool(record.exc_info) is users


def test_stopping_does_not_wait_for_the_prewarm(bench, wait_until):
    bench.prewarmed.clear()
    bench.thread.start()
    bench.thread.stop()
    wait_until(lambda: bench.thread.ended, "the thread did not end")


def test_a_dead_thread_gets_a_successor(bench, wait_until):
    bench.failure = ValueError("user code")
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "it does not end")
    assert (bench.failures, bench.replaced) == ([bench.failure], [bench.thread])


def test_beside_a_batch_that_cannot_be_ended_nobody_takes_its_place(bench, wait_until):
    bench.failure = ValueError("user code")
    bench.tasks.unclosed = StreamsException("the micro-batch neither ended nor could Spark cancel it")
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "it does not end")
    assert (bench.failures, bench.replaced) == ([bench.failure, bench.tasks.unclosed], [])


def test_stopping_breaks_off_what_a_silent_broker_is_asked(bench, wait_until):
    asked = threading.Event()

    def ask():
        asked.set()
        assert bench.membership.interrupted.wait(LONG)
        raise WakeupException("interrupted")

    bench.tasks.bring_up = ask
    bench.thread.start()
    assert asked.wait(LONG)
    bench.thread.stop()
    wait_until(lambda: bench.thread.ended, "it does not end")
    assert (bench.failures, bench.replaced) == ([], [])


def test_who_is_past_serving_is_not_broken_off(bench, wait_until):
    """A thread that dies may have to ask the whole application to end, and to lead the rebalance that announces it."""
    bench.failure = ValueError("user code")
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "it does not end")
    bench.thread.stop()
    assert not bench.membership.interrupted.is_set()


def test_who_lost_its_executor_leaves_before_its_batch_has_ended(bench, wait_until):
    bench.failure = ExecutorLost("gone")
    bench.membership.at_close = lambda: bench.tasks.ended.append("left")
    bench.thread.start()
    wait_until(lambda: bench.thread.ended, "it goes on")
    assert bench.tasks.ended == ["dropped", "left", "closed", "left"]


def test_who_knows_of_a_coming_rebalance_looks_for_it_once(bench):
    bench.thread.expect_rebalance()
    assert bench.membership.woken
    bench.turn()
    bench.turn()
    assert bench.membership.expected == 1


def test_a_thread_that_is_never_started_has_ended_once_it_is_discarded(bench):
    assert not bench.thread.started
    bench.thread.discard()
    assert bench.thread.ended
