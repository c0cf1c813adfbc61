"""Which tasks of a Spark partition a step works on together.

A step of Arrow's costs some microseconds to start, whatever it is given. So the tasks of a small micro-batch are worked
on together; those of a large one each for itself, and its rows are let go before the next one's turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand

__all__ = ["Share", "partitions_of", "rows_by_partition", "share_out"]

#: Rows of a Spark partition up to which its tasks are worked on together.
_SMALL: Final = 4_096


@dataclass(frozen=True, slots=True)
class Share:
    """Tasks that are worked on together.

    Attributes:
        tasks: at least one, in the order of their partitions.
        batches: their rows, in the order of each task's offsets; the hidden partition column says whose a row is.
        counts: partition -> how many rows it has; 0 is left out.
    """

    tasks: Sequence[TaskCommand]
    batches: Sequence[pa.RecordBatch]
    counts: Mapping[int, int]

    def rows_in(self, task: TaskCommand) -> int:
        """Return how many rows a task has."""
        return self.counts.get(task.task.partition, 0)

    def rows_of(self, task: TaskCommand) -> list[pa.RecordBatch]:
        """Return a task's rows without the other tasks'; no batch is empty."""
        return rows_by_partition(self.batches).get(task.task.partition, [])


def share_out(tasks: Sequence[TaskCommand], batches: Iterable[pa.RecordBatch]) -> Iterator[Share]:
    """Read all input, and yield it by the tasks that are worked on together; every task is in one share."""
    rows = [batch for batch in batches if batch.num_rows]
    tasks = sorted(tasks, key=lambda task: task.task.partition)
    if len(tasks) > 1 and sum(batch.num_rows for batch in rows) > _SMALL:
        by_partition = rows_by_partition(rows)
        del rows
        for task in tasks:
            own = by_partition.pop(task.task.partition, [])
            yield Share([task], own, {task.task.partition: sum(batch.num_rows for batch in own)})
    elif tasks:
        counts = np.bincount(np.concatenate([partitions_of(batch) for batch in rows])) if rows else np.empty(0, int)
        yield Share(tasks, rows, {partition: count for partition, count in enumerate(counts.tolist()) if count})


def partitions_of(rows: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the partition of the task that each row is of."""
    partitions: np.ndarray[tuple[int], np.dtype[np.int32]] = rows.column(hidden_columns.PARTITION).to_numpy(
        zero_copy_only=False
    )
    return partitions


def rows_by_partition(batches: Iterable[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """Return the rows of each partition that has some, none of them copied where a batch is of one partition."""
    rows: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        partitions = partitions_of(batch)
        first = int(partitions[0])
        if (partitions == first).all():
            # The usual case, in which nothing is copied.
            rows.setdefault(first, []).append(batch)
            continue
        for partition in np.unique(partitions).tolist():
            rows.setdefault(partition, []).append(batch.filter(pa.array(partitions == partition)))
    return rows
