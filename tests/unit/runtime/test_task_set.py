"""What a member tells the group of its local copies, while its tasks come and go."""

from types import SimpleNamespace

import pytest

from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.runtime.cleaner import Cleaner
from sparkrelay.runtime.in_service import InService
from sparkrelay.runtime.layout import Layout, TaskShape
from sparkrelay.runtime.orders import ReplayReport
from sparkrelay.runtime.task import TaskState
from sparkrelay.runtime.task_set import TaskSet
from sparkrelay.types import TaskId, TopicPartition

TASK = TaskId(0, 1)
INPUT, CHANGELOG = TopicPartition("orders", 1), TopicPartition("totals", 1)


class Replayer:
    """Doubles the replay thread: it reports what the test says."""

    def __init__(self):
        self.reports = {}

    def start(self):
        pass

    def assign(self, works):
        pass

    def release(self, tasks):
        pass

    def progress(self):
        return self.reports


@pytest.fixture
def replayer():
    return Replayer()


@pytest.fixture
def tasks(replayer, tmp_path):
    """A process that finds a copy of the task with 470 changelog offsets in its slot."""
    (tmp_path / str(TASK)).mkdir()

    def replay(round_, *, description):
        return [ReplayReport(order.task, {}, 3, {CHANGELOG: 470}) for slot in round_.slots for order in slot]

    layout = Layout({TASK: TaskShape((INPUT,), {"totals": CHANGELOG})}, {}, {})
    made = TaskSet(
        config=SimpleNamespace(application_id="app"),
        slot=SimpleNamespace(
            task_ids=lambda: [TASK], task_dir=lambda task: tmp_path / str(task), holds=lambda task: True
        ),
        process=SimpleNamespace(slots=1, replay=replay),
        replayer=replayer,
        in_service=InService(),
        transactions=None,
        topics=SimpleNamespace(layout=lambda: layout),
        cleaner=Cleaner(tmp_path, delay_seconds=600, now=0.0),
    )
    made.start()
    return made


def test_a_copy_that_was_found_is_told_of(tasks):
    assert tasks.offset_sums() == {TASK: 470}


@pytest.mark.parametrize("state", ["active", "standby"])
def test_a_copy_is_still_told_of_when_its_task_came_and_nothing_was_replayed_yet(tasks, state):
    """A rebalance that follows at once would else take the task from the one member that has its state."""
    tasks.follow(**{"active": [], "standby": [], state: [TASK]})
    assert tasks.offset_sums() == {TASK: 470}


def test_what_was_replayed_counts_from_then_on(tasks, replayer):
    tasks.follow(active=[], standby=[TASK])
    replayer.reports = {TASK: (ReplayReport(TASK, {}, 4, {CHANGELOG: 480}), {CHANGELOG: 500})}
    assert tasks.offset_sums() == {TASK: 480}


def test_a_running_task_has_everything(tasks):
    tasks.follow(active=[TASK], standby=[])
    (task,) = tasks.all()
    task.state = TaskState.RUNNING
    assert tasks.offset_sums() == {TASK: LATEST_OFFSET}
