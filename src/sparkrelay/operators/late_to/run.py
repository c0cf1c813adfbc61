"""The step that emits the rows that a grouping drops: their window closed before the micro-batch.

It reads the same watermark from the grouping's store as the stateful step, and no attempt of the batch changes it. So
both agree on every row, whichever leg runs first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.operators.lateness import windows_over
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.event_times import window_ends
from sparkrelay.runtime.worker.task_steps import each_task, task_store
from sparkrelay.state import BatchStamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRowsRunner(StepSpec):
    """Emits the late rows of another leg's grouping.

    Attributes:
        store: the grouping's store.
        output: Arrow schema of output rows.
    """

    store: str
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the late rows, without their window."""
        yield from each_task(self, batches, self._late)

    def _late(self, task: TaskCommand, batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        stamp = BatchStamp(task.task_epoch, task.batch, task.committed, {}, {}, tries=task.tries)
        watermark = task_store(self, task).header_before(stamp).watermark(self.store, stamp.committed)
        for batch in batches:
            late = batch.filter(pa.array(windows_over(window_ends(batch.column(hidden_columns.WINDOW)), watermark)))
            if late.num_rows:
                yield laid_out((late.column(name) for name in self.output.names), self.output)
