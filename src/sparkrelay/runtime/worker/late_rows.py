"""The step that passes on what a grouping leaves out: rows whose window was over before the micro-batch.

It asks the grouping's store for the same watermark as the stateful step does, which no try of the batch changes. So
both agree on each row, whichever of the two legs runs first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import SparkRelayError
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import laid_out, leg_tasks, release_unused_memory
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.runtime.worker.watermarks import window_ends
from sparkrelay.state import BatchStamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import LateSpec

__all__ = ["late_leg"]


def late_leg(spec: LateSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are late, without their window."""
    shares = share_out(leg_tasks(spec), batches)
    release_unused_memory()
    connections.close_unused()
    for share in shares:
        for task in share.tasks:
            if not (rows := share.rows_of(task)):
                continue
            watermark = _watermark_before(spec, task)
            for batch in rows:
                late = batch.filter(pa.array(window_ends(batch.column(hidden_columns.WINDOW)) <= watermark))
                if late.num_rows:
                    yield laid_out((late.column(name) for name in spec.output.names), spec.output)


def _watermark_before(spec: LateSpec, task: TaskCommand) -> int:
    assert task.directory is not None, "a task with a store has a directory"
    stamp = BatchStamp(task.task_epoch, task.batch, task.committed, {}, {}, tries=task.tries)
    try:
        return connections.store(task.directory, map_limit=spec.map_limit).watermark_before(spec.store, batch=stamp)
    except SparkRelayError as error:
        connections.forget_store(task.directory)
        raise WorkerFailure(error, spec.failure_key, task.task) from None
