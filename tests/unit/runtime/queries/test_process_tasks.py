"""What queries see of the tasks of an instance's threads, while these go on."""

from types import SimpleNamespace

import pytest

from sparkrelay.protocol import HostInfo
from sparkrelay.runtime.queries.local_stores import ACTIVE, RESTORING
from sparkrelay.runtime.queries.process_tasks import group_metadata, local_tasks
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.thread.membership import GroupHosts
from sparkrelay.types import TaskId, TopicPartition


class Task(SimpleNamespace):
    """A task that is opened once more as soon as somebody has looked at its state."""

    def __init__(self, state):
        super().__init__(id=TaskId(0, 1), directory="0_1", changelogs={}, task_epoch=5)
        self.shape = SimpleNamespace(width=2)
        self.position, self.copy = SimpleNamespace(committed=7), SimpleNamespace(offsets={}, ends={})
        self._state = state

    @property
    def state(self):
        self.task_epoch += 1
        return self._state


def process(*threads):
    return SimpleNamespace(threads=threads, target=SimpleNamespace(executor=None))


def seen(task):
    thread = SimpleNamespace(progress=SimpleNamespace(copies=dict), tasks=SimpleNamespace(all=lambda: [task]))
    (found,) = local_tasks([process(thread)], 0, 1.0)
    return found


def test_a_task_epoch_is_that_of_the_opening_that_was_seen_in_service():
    """That of a later one would let a copy answer that is on its way up."""
    found = seen(Task(TaskState.RUNNING))
    assert (found.role, found.task_epoch) == (ACTIVE, 5)


def test_a_copy_that_is_not_in_service_is_taken_as_it_is():
    found = seen(Task(TaskState.RESTORING))
    assert (found.role, found.task_epoch) == (RESTORING, None)


@pytest.mark.parametrize("generations", [(3, 4), (4, 3), (-1, 4), (4, -1)])
def test_hosts_are_those_of_the_newest_assignment(generations):
    """A thread that has died keeps its last one until its successor is there."""
    partition = TopicPartition("orders", 0)
    shape = SimpleNamespace(inputs=[partition], width=1, stores=())

    def thread(generation):
        known = {} if generation < 0 else {HostInfo("host", generation): [partition]}
        layout = None if generation < 0 else SimpleNamespace(tasks={TaskId(0, 0): shape})
        return SimpleNamespace(hosts=GroupHosts(known, {}, generation), tasks=SimpleNamespace(layout=layout))

    made = process(*map(thread, generations))
    assert group_metadata([made]).hosts_of(0, 0) == (HostInfo("host", 4), frozenset())
    assert group_metadata([]).hosts_of(0, 0) == (None, frozenset())
