"""The tasks of an instance's processes, as queries see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import InvalidStateStoreException
from sparkrelay.runtime.queries.local_stores import ACTIVE, RESTORING, STANDBY, LocalTask
from sparkrelay.runtime.tasks.ranges import behind
from sparkrelay.runtime.tasks.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.task import Task

__all__ = ["global_tasks", "local_tasks", "require_local"]


def require_local(processes: Iterable[ProcessThreads]) -> None:
    """Refuse processes whose state is on executors.

    Raises:
        InvalidStateStoreException: it is.
    """
    for process in processes:
        if process.target.executor is not None:
            raise InvalidStateStoreException(
                "the state of this instance is on Spark's executors, where nobody answers queries yet; instances with "
                "a local[N] session answer them, and spark.read.format('sparkrelay-state') reads the changelogs of any"
            )


def local_tasks(processes: Iterable[ProcessThreads]) -> Iterator[LocalTask]:
    """Yield the tasks with state that threads have, as they are now. May be called from any thread."""
    for process in processes:
        for thread in process.threads:
            copies = thread.progress.copies()
            for task in thread.tasks.all():
                # Read once: its thread may take it further meanwhile.
                state, directory = task.state, task.directory
                if directory is None or state is TaskState.CLOSED:
                    continue
                running = state is TaskState.RUNNING
                yield LocalTask(
                    id=task.id,
                    directory=directory,
                    role=ACTIVE if running else STANDBY if state is TaskState.STANDBY else RESTORING,
                    committed=task.position.committed if running else None,
                    changelogs=dict(task.changelogs),
                    lag=0 if running else _lag(task, copies.get(task.id)),
                    width=task.width,
                )


def global_tasks(processes: Iterable[ProcessThreads]) -> Iterator[LocalTask]:
    """Yield the tasks that keep global tables."""
    for process in processes:
        for task in process.global_tasks:
            assert task.directory is not None, "a global table has a store"
            yield LocalTask(id=task.id, directory=task.directory, role=ACTIVE, committed=task.position.committed)


def _lag(task: Task, copy: RestoreProgress | None) -> int | None:
    if copy is not None:
        return copy.lag
    return behind(task.copy.offsets, task.copy.ends) if task.copy.ends else None
