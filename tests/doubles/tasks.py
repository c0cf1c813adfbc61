"""Tasks in the state that a test begins with, brought there by the events that lead to it."""

from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.runtime.tasks.task import Task
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.topics.layout import TaskShape

#: What a task's records are written under.
LENT = ProducerIdentity("app-thread-0-0", 1, 0)


def task_of(
    id_,
    inputs=(),
    changelogs=None,
    directory=None,
    state_topics=frozenset(),
    *,
    watermark_idle_seconds=0.0,
    task_idle_seconds=None,
    **shape,
):
    """Return a new task; what is not named here belongs to its shape."""
    return Task(
        id_,
        TaskShape(tuple(inputs), changelogs or {}, state_topics, **shape),
        directory,
        watermark_idle_seconds=watermark_idle_seconds,
        task_idle_seconds=task_idle_seconds,
    )


def task_in(
    state, id_, inputs=(), changelogs=None, directory=None, *, positions=None, copied=None, ends=None, **settings
):
    """Return a task in a state; ``copied`` are the changelog offsets that it has, ``ends`` where they end."""
    changelogs = changelogs or {}
    task = task_of(id_, inputs, changelogs, directory, **settings)
    if state is TaskState.STANDBY:
        task.assigned_standby()
    elif state is not TaskState.CREATED:
        task.initialized(1, {p: (ends or {}).get(p, 0) for p in changelogs.values()}, {})
    if copied is not None:
        task.restore_progressed(copied, ends if state is TaskState.STANDBY else None)
    if state is TaskState.RUNNING:
        serve(task, positions)
    return task


def serve(task, positions=None):
    """Take a task into service that was initialized; or one that was not, too."""
    if task.state is TaskState.CREATED:
        initialize(task)
    if positions is not None:
        task.positioned(positions, {}, None)
    task.restored()


def initialize(task, ends=None):
    """Give a task a new task epoch."""
    listed = {p: (ends or {}).get(p, 0) for p in task.changelogs.values()}
    task.initialized(task.task_epoch + 1, listed, {})
    task.restore_begun()
