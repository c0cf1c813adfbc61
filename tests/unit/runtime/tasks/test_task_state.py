"""Which event may come to a task when: the table that is drawn is the one that is checked."""

import re

import pytest
from hypothesis import given, strategies as st
from tests.doubles.tasks import initialize, task_in, task_of

from sparkrelay.errors import IllegalTransitionException
from sparkrelay.runtime.tasks import task_state
from sparkrelay.runtime.tasks.task import new_task_epoch
from sparkrelay.runtime.tasks.task_state import TRANSITIONS, TaskEvent, TaskState
from sparkrelay.types import TaskId, TopicPartition

INPUT, CHANGELOG = TopicPartition("orders", 0), TopicPartition("app-counts-changelog", 0)
ACTIVE = {TaskState.CREATED, TaskState.RESTORING, TaskState.RUNNING}
DO = {
    TaskEvent.ASSIGNED_STANDBY: lambda task: task.assigned_standby(),
    TaskEvent.ASSIGNED_ACTIVE: lambda task: task.assigned_active(),
    TaskEvent.INITIALIZED: lambda task: initialize(task, {CHANGELOG: 9}),
    TaskEvent.RESTORED: lambda task: task.restored(),
    TaskEvent.HINDERED: lambda task: task.hindered_by_silence(),
    TaskEvent.FELL_OUT: lambda task: task.fell_out(),
    TaskEvent.BATCH_BEGUN: lambda task: task.batch_begun({INPUT: (0, 5)}),
    TaskEvent.BATCH_COMMITTED: lambda task: task.batch_committed(),
    TaskEvent.BATCH_ABORTED: lambda task: task.batch_aborted(),
    TaskEvent.WITHDRAWN: lambda task: task.withdrawn(),
}


def a_task(state=TaskState.CREATED):
    return task_in(state, TaskId(0, 0), (INPUT,), {"counts": CHANGELOG}, "/nowhere")


def test_the_drawing_is_the_table():
    drawn = {}
    for line in task_state.__doc__.splitlines():
        if found := re.match(r"    ([A-Z_]+) +([A-Zany][A-Za-z, ]*?)(?: --> ([A-Z]+))?(?:  +.*)?$", line):
            event, sources, target = found.groups()
            states = (
                set(TaskState) - {TaskState.CLOSED}
                if sources.startswith("any")
                else {TaskState[name.strip()] for name in sources.split(",")}
            )
            drawn[TaskEvent[event]] = frozenset(states), None if target is None else TaskState[target]
    assert drawn == TRANSITIONS


@pytest.mark.parametrize("event", TaskEvent)
@pytest.mark.parametrize("state", [state for state in TaskState if state is not TaskState.CLOSED])
def test_an_event_comes_when_the_table_says_so_or_is_refused(state, event):
    task = a_task(state)
    if event in {TaskEvent.BATCH_COMMITTED, TaskEvent.BATCH_ABORTED} and state is TaskState.RUNNING:
        task.batch_begun({INPUT: (0, 5)})
    sources, target = TRANSITIONS[event]
    if state in sources:
        DO[event](task)
        assert task.state is (target or state)
    else:
        with pytest.raises(
            IllegalTransitionException, match=f"task 0_0: {event.name} is not allowed in state {state.name}"
        ):
            DO[event](task)
        assert task.state is state


def test_a_batch_of_a_task_that_was_lost_ends_in_peace():
    """Nobody waits for it: the stream thread has dropped the task by then."""
    task = a_task(TaskState.RUNNING)
    task.withdrawn()
    task.batch_begun({INPUT: (0, 5)})
    task.batch_aborted()
    task.batch_begun({INPUT: (0, 5)})
    task.batch_committed()
    assert (task.state, task.position.batch, task.position.committed) == (TaskState.CLOSED, 1, 1)
    with pytest.raises(
        IllegalTransitionException, match="oldest first: .*WITHDRAWN: RUNNING -> CLOSED; BATCH_BEGUN in"
    ):
        task.restored()


@given(st.lists(st.sampled_from(list(TaskEvent)), max_size=60))
def test_whatever_comes_a_task_has_a_batch_only_where_it_may(events):
    task, under_way = a_task(), False
    for event in events:
        if event in {TaskEvent.BATCH_COMMITTED, TaskEvent.BATCH_ABORTED} and not under_way:
            continue
        try:
            DO[event](task)
        except IllegalTransitionException:
            assert task.state not in TRANSITIONS[event][0]
            continue
        under_way = event is TaskEvent.BATCH_BEGUN
        assert task.history[-1].startswith(event.name)
        if task.state is TaskState.STANDBY:
            assert (task.attempt.ranges, task.attempt.failures) == (None, 0)
        if task.state is TaskState.RUNNING:
            assert task.task_epoch > 0
        if event in {TaskEvent.INITIALIZED, TaskEvent.FELL_OUT, TaskEvent.BATCH_COMMITTED}:
            assert task.attempt.ranges is None
        assert task.position.committed <= task.position.batch


def test_task_epochs_are_given_out_once():
    seen = {new_task_epoch() for _ in range(1000)}
    assert len(seen) == 1000
    assert min(seen) > 0, "0 is nobody's"
    assert max(seen) < 1 << 63, "the header keeps 64 bits, signed"


def test_a_copy_that_is_rebuilt_counts_for_nothing_until_it_is():
    task = a_task(TaskState.RUNNING)
    task.restore_progressed({CHANGELOG: 7})
    assert task.copy_corrupt()
    task.fell_out()
    assert (task.offset_sum, task.copy.wipe) == (0, True)
    initialize(task)
    assert not task.copy.wipe
    task.restored()
    assert not task.copy_corrupt(), "the same batch, and a copy that was just rebuilt"


def test_a_stateless_task_has_nothing_to_restore_or_close():
    task = task_of(TaskId(0, 0), (INPUT,), {}, None)
    initialize(task)
    assert task.close_command() is None
    assert task.assigned_standby() is None
