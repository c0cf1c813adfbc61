"""How tasks are brought up, and what a member reports to the group of its local copies while they come and go."""

import contextlib
import dataclasses
import logging
import threading
from types import SimpleNamespace

import pytest
from tests.doubles.clock import Clock
from tests.doubles.jobs import Jobs
from tests.doubles.state_updater import StateUpdater
from tests.doubles.tasks import initialize, serve
from tests.waiting import LONG

from sparkrelay.config import StreamsConfig
from sparkrelay.errors import StoreCorruptedException, StoreOutOfStepException, TimeoutException
from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.runtime.contract.commands import RestoreReport
from sparkrelay.runtime.contract.owners import Owner
from sparkrelay.runtime.slot.cleaner import Cleaner
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.thread import task_set as module
from sparkrelay.runtime.thread.task_set import TaskSet
from sparkrelay.runtime.topics.layout import TaskLayout, TaskShape
from sparkrelay.types import TaskId, TopicPartition

TASK = TaskId(0, 1)
INPUT, CHANGELOG = TopicPartition("orders", 1), TopicPartition("totals", 1)
OTHER_INPUT = TopicPartition("returns", 1)


@pytest.fixture
def state_updater():
    return StateUpdater()


@pytest.fixture
def jobs():
    return Jobs(copied={CHANGELOG: 470})


@pytest.fixture
def stopping():
    return threading.Event()


@pytest.fixture
def unstarted(state_updater, jobs, stopping, tmp_path):
    """The tasks of a thread that has looked at nothing yet."""
    (tmp_path / str(TASK)).mkdir()
    layout = TaskLayout({TASK: TaskShape((INPUT,), {"totals": CHANGELOG})}, {}, {}, {INPUT.topic: 1})
    return TaskSet(
        config=StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "h:1"}),
        slot=SimpleNamespace(
            task_ids=lambda: [TASK], task_dir=lambda task: tmp_path / str(task), holds=lambda task: True
        ),
        jobs=jobs,
        state_updater=state_updater,
        in_service=InService(),
        owner=Owner("me-0", 1),
        transactions=None,
        application=None,
        at_close=None,
        topics=SimpleNamespace(layout=lambda: layout),
        cleaner=Cleaner(tmp_path, delay_seconds=600, now=0.0),
        stopping=stopping,
    )


@pytest.fixture
def tasks(unstarted):
    unstarted.start()
    return unstarted


def test_a_copy_that_was_found_is_reported(tasks):
    assert tasks.offset_sums() == {TASK: 470}


@pytest.mark.parametrize("state", ["active", "standby"])
def test_a_copy_is_still_reported_when_its_task_came_and_nothing_was_restored_yet(tasks, state):
    """A rebalance that follows at once would else take the task from the one member that has its state."""
    tasks.follow(**{"active": [], "standby": [], state: [TASK]})
    assert tasks.offset_sums() == {TASK: 470}


@pytest.mark.parametrize("state", ["active", "standby"])
def test_a_task_that_stays_begins_anew_where_it_has_another_partition_to_read(tasks, state):
    """A topic got partitions, and another one had as many before: nothing moves, and nobody would read them."""
    assigned = {"active": [], "standby": [], state: [TASK]}
    tasks.follow(**assigned)
    (before,) = tasks.all()
    tasks.follow(**assigned)
    assert tasks.all() == [before]
    layout = tasks._topics.layout()
    layout.tasks[TASK] = dataclasses.replace(layout.tasks[TASK], inputs=(INPUT, OTHER_INPUT))
    tasks.follow(**assigned)
    (task,) = tasks.all()
    assert (task.inputs, before.state) == ((INPUT, OTHER_INPUT), TaskState.CLOSED)
    assert tasks.offset_sums() == {TASK: 470}


def test_what_was_restored_counts_from_then_on(tasks, state_updater):
    tasks.follow(active=[], standby=[TASK])
    copy = RestoreProgress(TASK, False, 0.0, None, {CHANGELOG: 500}, None)
    state_updater.standing = {TASK: copy}
    assert (tasks.offset_sums(), tasks.standby_lags()) == ({TASK: 470}, {}), "it was not opened yet"
    state_updater.standing = {TASK: dataclasses.replace(copy, offsets={CHANGELOG: 480})}
    assert (tasks.offset_sums(), tasks.standby_lags()) == ({TASK: 480}, {TASK: 20})


@pytest.mark.parametrize("then", ["stays", "active", "gone"])
def test_a_copy_that_was_set_aside_is_not_counted_on(tasks, state_updater, then):
    tasks.follow(active=[], standby=[TASK])
    copy = RestoreProgress(TASK, False, 0.0, {CHANGELOG: 480}, {CHANGELOG: 500}, 30)
    state_updater.standing = {TASK: copy}
    assert tasks.offset_sums() == {TASK: 480}
    state_updater.standing = {TASK: dataclasses.replace(copy, offsets={}, first_lag=None)}
    if then != "stays":
        tasks.follow(active=[TASK] if then == "active" else [], standby=[])
        state_updater.standing = {}
    assert tasks.offset_sums() == ({} if then == "gone" else {TASK: 0})


def test_a_running_task_whose_copy_is_set_aside_has_nothing(tasks):
    tasks.follow(active=[TASK], standby=[])
    (task,) = tasks.all()
    serve(task)
    task.restore_progressed({CHANGELOG: 480})
    task.copy_corrupt()
    tasks.reinitialize(task, StoreCorruptedException("a page is torn"))
    assert tasks.offset_sums() == {TASK: 0}


def test_a_running_task_has_everything(tasks):
    tasks.follow(active=[TASK], standby=[])
    (task,) = tasks.all()
    serve(task)
    assert tasks.offset_sums() == {TASK: LATEST_OFFSET}


def test_a_look_at_the_copies_that_gets_no_core_ends_with_a_stop_and_without_a_word(
    unstarted, jobs, stopping, monkeypatch, caplog
):
    monkeypatch.setattr("sparkrelay.runtime.spark.cancelling._AGAIN_SECONDS", 0.01)
    jobs.may_end, jobs.deaf = threading.Semaphore(0), 1
    starting = threading.Thread(target=unstarted.start)
    starting.start()
    assert jobs.slice_began.acquire(timeout=LONG)
    assert starting.is_alive()
    stopping.set()
    starting.join(LONG)
    assert not starting.is_alive()
    assert jobs.cancels >= 2
    assert unstarted.offset_sums() == {}
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_copies_that_cannot_be_looked_at_are_said(unstarted, jobs, caplog):
    jobs.cancelled = True
    unstarted.start()
    assert "local state could not be inspected: cancelled" in caplog.text


def test_a_look_at_the_copies_that_ends_by_itself_is_not_cancelled(tasks, jobs):
    assert jobs.cancels == 0


@pytest.mark.parametrize(
    ("error", "sums"),
    [(StoreCorruptedException("a page is torn"), {}), (StoreOutOfStepException("a batch came late"), {TASK: 480})],
)
@pytest.mark.parametrize("then", ["gone", "standby"])
def test_what_a_store_could_not_be_closed_for_is_said_and_a_damaged_one_is_not_counted_on(
    tasks, jobs, error, sums, then, caplog
):
    tasks.follow(active=[TASK], standby=[])
    (task,) = tasks.all()
    serve(task)
    task.restore_progressed({CHANGELOG: 480})
    jobs.unclosed = error
    tasks.follow(active=[], standby=[TASK] if then == "standby" else [])
    assert {id_: total for id_, total in tasks.offset_sums().items() if total} == sums
    assert f"task 0_1: its store could not be closed cleanly: {error}" in caplog.text


def test_a_copy_that_is_to_be_rebuilt_is_so_as_a_standby_too(tasks, state_updater):
    tasks.follow(active=[TASK], standby=[])
    (task,) = tasks.all()
    serve(task)
    task.copy_corrupt()
    tasks.reinitialize(task, StoreCorruptedException("a page is torn"))
    tasks.follow(active=[], standby=[TASK])
    assert [(work.task, work.wipe) for work in state_updater.works] == [(TASK, True)]
    tasks.offset_sums()
    assert task.copy.wipe, "if it becomes a task again before that was done"
    state_updater.standing = {TASK: RestoreProgress(TASK, False, 0.0, {}, {CHANGELOG: 500}, None)}
    tasks.offset_sums()
    assert not task.copy.wipe


class TaskInitializer:
    """Opens tasks at once; but not those that the test names. Notes what was tried."""

    def __init__(self):
        self.released = []
        self.without_leader, self.tried = {"open": set(), "serve": set()}, []

    def see(self, layout):
        pass

    def initialize(self, tasks):
        self._do("open", tasks)
        for task in tasks:
            initialize(task)

    def serve(self, ready):
        self._do("serve", [task for task, _ in ready])
        for task, _ in ready:
            task.restored()

    def start_over(self, tasks):
        for task in tasks:
            if task.state is TaskState.RESTORING:
                task.hindered_by_silence()

    def release(self, tasks, application=None):
        self.released += [task.id for task in tasks]

    def _do(self, what, tasks):
        ids = [task.id for task in tasks]
        self.tried.append((what, ids))
        if self.without_leader[what].intersection(ids):
            raise TimeoutException("a partition has no leader")


@pytest.fixture
def many(tasks, state_updater):
    """Four tasks that were just assigned; restoring takes no time."""
    ids = [TaskId(0, number) for number in range(4)]
    shapes = {id_: TaskShape((TopicPartition("orders", id_.partition),), {}) for id_ in ids}
    tasks._topics = SimpleNamespace(layout=lambda: TaskLayout(shapes, {}, {}, {}))
    tasks._initializer = TaskInitializer()
    tasks._jobs.require_session = tasks._slot.require_in_place = lambda: None
    tasks.follow(active=ids, standby=[])
    state_updater.take_restored = lambda: {
        task.id: RestoreReport(task.id, {}, 0, {}, task_epoch=task.task_epoch)
        for task in tasks.all()
        if task.state is TaskState.RESTORING
    }
    return tasks


def bring_up(tasks):
    """Bring tasks up as the stream thread does; return those that are in service."""
    with contextlib.suppress(TimeoutException):
        tasks.bring_up()
    return [task.id.partition for task in tasks.running()]


@pytest.mark.parametrize("hindered", ["open", "serve"])
def test_a_task_that_cannot_be_opened_keeps_no_other_one_from_service(many, hindered):
    initializer, bad = many._initializer, TaskId(0, 1)
    initializer.without_leader[hindered] = {bad}
    for _ in range(12):
        running = bring_up(many)
    assert running == [0, 2, 3]
    initializer.tried.clear()
    bring_up(many)
    assert [ids for _, ids in initializer.tried] == [[bad]], "each time it is tried once, and nothing else waits for it"
    initializer.without_leader[hindered] = set()
    bring_up(many)
    bring_up(many)
    assert len(many.running()) == 4
    assert not any(task.hindered for task in many.all())


def test_a_standby_that_was_hindered_as_a_task_does_not_slow_the_others(many):
    initializer, bad = many._initializer, TaskId(0, 1)
    initializer.without_leader["open"] = {bad}
    for _ in range(3):
        bring_up(many)
    many.follow(active=[TaskId(0, 0)], standby=[bad])
    many.follow(active=[TaskId(0, 0), TaskId(0, 2), TaskId(0, 3)], standby=[bad])
    initializer.tried.clear()
    bring_up(many)
    assert initializer.tried == [("open", [TaskId(0, 2), TaskId(0, 3)])]


def test_one_by_one_leaves_time_for_the_group(many, monkeypatch):
    initializer, clock = many._initializer, Clock()
    initializer.without_leader["open"] = {task.id for task in many.all()}
    bring_up(many)
    initializer.without_leader["open"] = set()
    monkeypatch.setattr(module, "time", clock)
    slow = initializer._do
    monkeypatch.setattr(initializer, "_do", lambda *args: (slow(*args), setattr(clock, "now", clock.now + 4.0)))
    counts = []
    for _ in range(20):
        initializer.tried.clear()
        bring_up(many)
        counts.append(len(initializer.tried))
    assert len(many.running()) == 4
    assert max(counts) <= 6, "12 seconds of serving and 12 of initializing"


def test_nothing_is_done_one_by_one_where_nothing_is_hindered(many):
    bring_up(many)
    bring_up(many)
    assert [(what, len(ids)) for what, ids in many._initializer.tried] == [("open", 4), ("serve", 4)]


def test_what_is_restored_is_served_before_others_are_initialized(many):
    bring_up(many)
    late = many.all()[3]
    late.fell_out()
    many._initializer.without_leader["open"] = {late.id}
    assert bring_up(many) == [0, 1, 2]


def test_a_broker_that_is_silent_to_all_is_asked_once_a_call(many):
    """The stream thread has to serve its group between two tries."""
    many._initializer.without_leader["open"] = {task.id for task in many.all()}
    for _ in range(5):
        many._initializer.tried.clear()
        bring_up(many)
        assert len(many._initializer.tried) == 1


def test_who_falls_out_while_it_is_served_is_not_opened_at_once(many):
    """It may have been fenced: initialized again before the group has answered, it would fence its new owner."""
    initializer = many._initializer
    bring_up(many)
    serve = initializer.serve
    initializer.serve = lambda ready: serve(ready[1:])  # the first one was given to InService
    initializer.tried.clear()
    bring_up(many)
    assert [what for what, _ in initializer.tried] == ["serve"]
