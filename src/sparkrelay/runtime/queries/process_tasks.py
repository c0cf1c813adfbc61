"""The tasks of an instance's processes, as queries see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import InvalidStateStoreException
from sparkrelay.runtime.queries.local_stores import ACTIVE, RESTORING, STANDBY, LocalTask
from sparkrelay.runtime.queries.metadata import GroupMetadata, LagInfo
from sparkrelay.runtime.tasks.ranges import behind
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.thread.membership import GroupHosts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.task import Task

__all__ = ["global_tasks", "group_metadata", "local_tasks", "partition_lags", "require_local"]


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


def partition_lags(processes: Iterable[ProcessThreads]) -> dict[str, dict[int, LagInfo]]:
    """Return how far each copy of a store's partition is: store -> partition -> lag."""
    found: dict[str, dict[int, LagInfo]] = {}
    for process in processes:
        for thread in process.threads:
            copies = thread.progress.copies()
            for task in thread.tasks.all():
                copy, running = copies.get(task.id), task.state is TaskState.RUNNING
                offsets = dict(task.copy.offsets if running or copy is None or copy.offsets is None else copy.offsets)
                ends = dict(task.copy.ends if copy is None else copy.ends)
                for store, changelog in task.changelogs.items():
                    at = offsets.get(changelog, 0)
                    # Who runs a task has all that is in its changelog.
                    end = at if running else ends.get(changelog)
                    lag = None if end is None else max(0, end - at)
                    found.setdefault(store, {})[task.id.partition] = LagInfo(at, end, lag)
    return found


def group_metadata(processes: Iterable[ProcessThreads]) -> GroupMetadata:
    """Return where the group's tasks are, by the newest assignment that a thread has."""
    threads = [thread for process in processes for thread in process.threads]
    layout = next((thread.tasks.layout for thread in threads if thread.tasks.layout is not None), None)
    hosts = next((thread.hosts for thread in threads if thread.hosts.active or thread.hosts.standby), GroupHosts())
    return GroupMetadata(layout, hosts)


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
