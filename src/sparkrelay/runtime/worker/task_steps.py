"""What steps that read a task's store have in common: one task after the other, and whose failure it is."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import leg_tasks, release_unused_memory
from sparkrelay.runtime.worker.shares import share_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec

__all__ = ["each_task", "task_failure"]


def each_task(
    spec: StepSpec,
    batches: Iterable[pa.RecordBatch],
    step: Callable[[TaskCommand, Sequence[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield what a step makes of the rows of each task; a task without rows is passed over."""
    shares = share_out(leg_tasks(spec), batches)
    release_unused_memory()
    connections.close_unused()
    for share in shares:
        for task in share.tasks:
            if rows := share.rows_of(task):
                with task_failure(spec, task):
                    yield from step(task, rows)


@contextmanager
def task_failure(spec: StepSpec, task: TaskCommand) -> Iterator[None]:
    """Raise an error as the task's own, and let go of its store, which is opened anew.

    Raises:
        WorkerFailure: with the error.
    """
    try:
        yield
    except SparkRelayError as error:
        if task.directory is not None:
            connections.forget_store(task.directory)
        raise WorkerFailure(error, spec.failure_key, task.task) from None
