"""What steps that read a task's store share: tasks one by one, and attributed failures."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkrelay.errors import SparkRelayError, StoreOutOfStepException
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import drain, leg_tasks
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.state import BatchStamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec, StoreSpec
    from sparkrelay.state import Applied, LookedUp, TaskStore
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView


def each_task(
    spec: StepSpec,
    batches: Iterable[pa.RecordBatch],
    step: Callable[[TaskCommand, Sequence[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the output of a step for the rows of each task; tasks without rows are skipped."""
    shares = share_out(leg_tasks(spec), batches)
    connections.begin_step()
    for share in shares:
        for task in share.tasks:
            if rows := share.rows_of(task):
                with task_failure(spec, task):
                    yield from step(task, rows)


def each_table(
    spec: StepSpec, batches: Iterable[pa.RecordBatch], step: Callable[[TaskCommand], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the output of a step for each task's tables, maintained by legs of earlier waves; it gets no rows."""
    drain(batches)
    connections.begin_step()
    for task in leg_tasks(spec):
        with task_failure(spec, task):
            yield step(task)


def look_up(spec: StepSpec, task: TaskCommand, store: str, contents: str, keys: pa.Array) -> LookedUp:
    """Return the rows of a task's table for encoded keys, and the changes of the micro-batch.

    ``contents`` is what the table should hold, in words.
    """
    return look(spec, task, store, contents, lambda view: view.get(keys))


def look(
    spec: StepSpec, task: TaskCommand, store: str, contents: str, find: Callable[[StoreView], pa.Array]
) -> LookedUp:
    """Return what ``find`` finds in a task's table, and the changes of the micro-batch."""
    return task_store(spec, task).look(
        store, find, contents=contents, task_epoch=task.task_epoch, number=task.batch, tries=task.tries
    )


def task_store(spec: StepSpec, task: TaskCommand) -> TaskStore:
    """Return the state of a task with stores."""
    assert task.directory is not None, "a task with a store has a directory"
    return connections.store(task.directory, map_limit=spec.map_limit)


def store_after(spec: StepSpec, task: TaskCommand, applied: Applied) -> StoreAfter:
    """Return a store as left by a leg's applied part of a task's micro-batch."""
    return task_store(spec, task).after(applied, task_epoch=task.task_epoch)


def batch_stamp(spec: StoreSpec, task: TaskCommand) -> BatchStamp:
    """Return what a store compares with a leg's part of a task's batch."""
    topics = set(spec.topics)
    return BatchStamp(
        task_epoch=task.task_epoch,
        number=task.batch,
        committed=task.committed,
        ranges={partition: span for partition, span in task.ranges.items() if partition.topic in topics},
        positions_before={p: offset for p, offset in task.positions.items() if p.topic in topics},
        changelog_next=task.changelog_next,
        contents=spec.contents,
        skipped=task.skipped,
        tries=task.tries,
        topics={topic: id_ for topic, id_ in task.topic_ids.items() if topic in topics},
    )


def never_applied(task: TaskCommand, store: str) -> StoreOutOfStepException:
    """Return the error that a store lacks the changes of a micro-batch."""
    return StoreOutOfStepException(
        f"task {task.task}: store {store!r} has no changes of batch {task.batch}, try {task.tries}: they were undone, "
        "or never applied"
    )


@contextmanager
def task_failure(spec: StepSpec, task: TaskCommand) -> Iterator[None]:
    """Raise errors as WorkerFailure of the task, and close its store, which is opened again."""
    try:
        yield
    except SparkRelayError as error:
        if task.directory is not None:
            connections.forget_store(task.directory)
        raise WorkerFailure(error, spec.failure_key, task.task) from None
