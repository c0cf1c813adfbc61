"""The tasks of an instance's processes, as queries need them."""

from __future__ import annotations

import functools
import itertools
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StateStoreException
from sparkrelay.operators.table.reading import StoreRead, read_store
from sparkrelay.runtime.queries.local_stores import ACTIVE, RESTORING, STANDBY, LocalTask
from sparkrelay.runtime.queries.metadata import GroupMetadata, LagInfo
from sparkrelay.runtime.spark.cancelling import cancelled_when
from sparkrelay.runtime.spark.executor_target import ExecutorLost
from sparkrelay.runtime.spark.jobs import REPORT_SCHEMA, RESTORE_POOL, JobFailed, run_job
from sparkrelay.runtime.tasks.ranges import behind
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.thread.membership import GroupHosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.operators.table.reading import StoreReading
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.task import Task

_QUERIES: Final = "sparkrelay-query"
_numbers = itertools.count(1)


def local_tasks(processes: Iterable[ProcessThreads], subtopology: int, timeout_s: float) -> Iterator[LocalTask]:
    """Yield the current stateful tasks of a subtopology. Thread-safe."""
    for process, task, copy in _tasks(processes):
        # The task's thread may change it: read each value once, and the epoch first, so that it never belongs to a
        # later initialization than the state.
        task_epoch, state, directory = task.task_epoch, task.state, task.directory
        if directory is None or state is TaskState.CLOSED or task.id.subtopology != subtopology:
            continue
        running = state is TaskState.RUNNING
        yield LocalTask(
            id=task.id,
            directory=directory,
            role=ACTIVE if running else STANDBY if state is TaskState.STANDBY else RESTORING,
            committed=task.position.committed if running else None,
            changelogs=dict(task.changelogs),
            lag=0 if running else _lag(task, copy),
            task_epoch=task_epoch if running else None,
            width=task.shape.width,
            read=_reading(process, timeout_s),
        )


def partition_lags(processes: Iterable[ProcessThreads]) -> dict[str, dict[int, LagInfo]]:
    """Return the lag of each copy of a store's partition: store -> partition -> lag."""
    found: dict[str, dict[int, LagInfo]] = {}
    for _, task, copy in _tasks(processes):
        running = task.state is TaskState.RUNNING
        offsets = dict(task.copy.offsets if running or copy is None or copy.offsets is None else copy.offsets)
        ends = dict(task.copy.ends if copy is None else copy.ends)
        for store, changelog in task.changelogs.items():
            at = offsets.get(changelog, 0)
            # A running task has everything in its changelog.
            end = at if running else ends.get(changelog)
            lag = None if end is None else max(0, end - at)
            known = found.setdefault(store, {}).get(task.id.partition)
            # Another process of the instance may have a better copy.
            if known is None or known.current_offset_position < at:
                found[store][task.id.partition] = LagInfo(at, end, lag)
    return found


def _tasks(processes: Iterable[ProcessThreads]) -> Iterator[tuple[ProcessThreads, Task, RestoreProgress | None]]:
    for process in processes:
        for thread in process.threads:
            copies = thread.progress.copies()
            for task in thread.tasks.all():
                yield process, task, copies.get(task.id)


def group_metadata(processes: Iterable[ProcessThreads]) -> GroupMetadata:
    """Return the hosts of the group's tasks, by the newest assignment of any thread."""
    # Read each once: a running thread may get a newer one. Ended threads keep their last one.
    known = [(thread.hosts, thread.tasks.layout) for process in processes for thread in process.threads]
    newest = sorted(known, key=lambda one: one[0].generation, reverse=True)
    layout = next((layout for _, layout in newest if layout is not None), None)
    return GroupMetadata(layout, newest[0][0] if newest else GroupHosts())


def global_tasks(processes: Iterable[ProcessThreads], subtopology: int, timeout_s: float) -> Iterator[LocalTask]:
    """Yield the tasks of global tables, like :func:`local_tasks`."""
    for process in processes:
        for task in process.global_tasks:
            if task.id.subtopology != subtopology:
                continue
            assert task.directory is not None, "a global table has a store"
            yield LocalTask(
                id=task.id,
                directory=task.directory,
                role=ACTIVE,
                committed=task.position.committed,
                task_epoch=task.task_epoch,
                read=_reading(process, timeout_s),
            )


def _reading(process: ProcessThreads, timeout_s: float) -> Callable[[TableRunner, StoreReading], StoreRead] | None:
    """Return a function that reads a store on an executor by a Spark job; None where the driver can read it."""
    target = process.target
    if target.executor is None:
        return None

    def read(spec: TableRunner, reading: StoreReading) -> StoreRead:
        # In a job group of its own, so that cancelling it cancels no other query.
        group, deadline = target.job_group(f"{_QUERIES}-{next(_numbers)}"), time.monotonic() + timeout_s
        try:
            frame = target.source(1).mapInArrow(functools.partial(read_store, spec), REPORT_SCHEMA)
            text = f"a query of store {spec.store} on {target.description}"
            # The job may have to wait for a micro-batch's core.
            with cancelled_when(lambda: time.monotonic() >= deadline, lambda: target.cancel(group)):
                (found,) = run_job(target, frame, reading, pool=RESTORE_POOL, group=group, description=text)
        except (JobFailed, ExecutorLost) as error:
            raise StateStoreException(str(error)) from error
        assert isinstance(found, StoreRead), "the step reports what it read"
        return found

    return read


def _lag(task: Task, copy: RestoreProgress | None) -> int | None:
    if copy is not None:
        return copy.lag
    return behind(task.copy.offsets, task.copy.ends) if task.copy.ends else None
