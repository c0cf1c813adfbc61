"""What is said of tasks in each state."""

import datetime as dt

import pytest
from tests.doubles.tasks import task_in

from sparkrelay.runtime.instance.metadata import describe_tasks
from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId, TopicPartition

INPUTS = TopicPartition("orders", 0), TopicPartition("orders", 1)
CHANGELOG = TopicPartition("app-counts-changelog", 0)


def task(state, number=0, *, stateful=True, **more):
    changelogs = {"counts": CHANGELOG} if stateful else {}
    return task_in(state, TaskId(0, number), INPUTS, changelogs, "/nowhere" if stateful else None, **more)


def described(one, *, ends=None, copy=None):
    active, standby = describe_tasks([one], ends or {}, {} if copy is None else {one.id: copy})
    (found,) = (*active, *standby)
    assert found in (standby if one.state is TaskState.STANDBY else active)
    return found


def copy(*, at=40, restoring=True):
    return RestoreProgress(
        TaskId(0, 0), restoring, 1_700_000_000.0, None if at is None else {CHANGELOG: at}, {CHANGELOG: 100}, 80
    )


def test_a_running_task_has_offsets_ends_and_the_lag_between():
    one = task(TaskState.RUNNING, positions={INPUTS[0]: 10, INPUTS[1]: 20}, copied={CHANGELOG: 7})
    found = described(one, ends={INPUTS[0]: 15, INPUTS[1]: 20, TopicPartition("other", 0): 99})
    assert (found.task_id, found.state, found.topic_partitions) == ("0_0", "running", frozenset(INPUTS))
    assert found.committed_offsets == {INPUTS[0]: 10, INPUTS[1]: 20}
    assert found.end_offsets == {INPUTS[0]: 15, INPUTS[1]: 20}
    assert (found.lag, found.changelog_lag, found.replay_began) == (5, 0, None)
    assert found.changelog_offsets == {CHANGELOG: 7}
    one.position.offsets[INPUTS[0]] = 15
    assert found.committed_offsets[INPUTS[0]] == 10
    with pytest.raises(TypeError):
        found.committed_offsets[INPUTS[0]] = 1


def test_ends_are_as_old_as_the_last_look_and_never_behind_the_task():
    one = task(TaskState.RUNNING, positions={INPUTS[0]: 10, INPUTS[1]: 20})
    found = described(one, ends={INPUTS[0]: 9, INPUTS[1]: 20})
    assert (found.end_offsets[INPUTS[0]], found.lag) == (10, 0)
    assert described(one, ends={INPUTS[0]: 15}).lag is None


@pytest.mark.parametrize("state", [TaskState.RESTORING, TaskState.STANDBY])
def test_a_copy_has_its_lag_and_when_it_began(state):
    found = described(task(state, copied={CHANGELOG: 3}), copy=copy(restoring=state is TaskState.RESTORING))
    assert found.changelog_offsets == {CHANGELOG: 40}
    assert found.changelog_end_offsets == {CHANGELOG: 100}
    assert (found.lag, found.changelog_lag) == (60, 60)
    assert found.replay_began == dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
    assert (found.committed_offsets, found.end_offsets) == ({}, {})


def test_a_lag_that_is_not_known_is_none():
    assert described(task(TaskState.STANDBY), copy=copy(at=None)).changelog_lag is None
    assert described(task(TaskState.STANDBY)).changelog_lag is None
    assert described(task(TaskState.CREATED), copy=copy()).replay_began is None
    assert described(task(TaskState.CREATED, stateful=False)).changelog_lag == 0


def test_a_restored_task_that_is_not_in_service_yet():
    one = task(TaskState.RESTORING, copied={CHANGELOG: 100}, ends={CHANGELOG: 100})
    assert described(one).changelog_lag == 0


def test_tasks_come_in_order():
    tasks = [task(TaskState.RUNNING, number) for number in (10, 2, 0)]
    active, _ = describe_tasks(tasks, {}, {})
    assert [one.task_id for one in active] == ["0_0", "0_2", "0_10"]
