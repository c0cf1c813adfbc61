"""What queries see of the tasks of an instance's threads, while these go on."""

from types import SimpleNamespace

from sparkrelay.runtime.queries.local_stores import ACTIVE, RESTORING
from sparkrelay.runtime.queries.process_tasks import local_tasks
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.types import TaskId


class Task(SimpleNamespace):
    """A task that is opened once more as soon as somebody has looked at its state."""

    def __init__(self, state):
        super().__init__(id=TaskId(0, 1), directory="0_1", changelogs={}, width=2, task_epoch=5)
        self.position, self.copy = SimpleNamespace(committed=7), SimpleNamespace(offsets={}, ends={})
        self._state = state

    @property
    def state(self):
        self.task_epoch += 1
        return self._state


def process(*threads):
    return SimpleNamespace(threads=threads, target=SimpleNamespace(executor=None))


def seen(task):
    thread = SimpleNamespace(
        progress=SimpleNamespace(copies=dict), tasks=SimpleNamespace(all=lambda: [task], layout=None)
    )
    (found,) = local_tasks([process(thread)], 0, 1.0)
    return found


def test_a_task_epoch_is_that_of_the_opening_that_was_seen_in_service():
    """That of a later one would let a copy answer that is on its way up."""
    found = seen(Task(TaskState.RUNNING))
    assert (found.role, found.task_epoch) == (ACTIVE, 5)


def test_a_copy_that_is_not_in_service_is_taken_as_it_is():
    found = seen(Task(TaskState.RESTORING))
    assert (found.role, found.task_epoch) == (RESTORING, None)
