"""Which tasks of a Spark partition a step processes together.

Each of Arrow's operations costs some microseconds, whatever its input. So the tasks of a small micro-batch are
processed together; those of a large one one by one, and the rows of each are released before the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand

#: Most rows of a Spark partition whose tasks are processed together.
_SMALL: Final = 4_096


@dataclass(frozen=True, slots=True)
class Share:
    """Tasks that are processed together.

    Attributes:
        tasks: at least one, ordered by partition.
        batches: their rows, each task's in offset order; the hidden partition column identifies the task.
        counts: partition -> number of rows; none with 0.
    """

    tasks: Sequence[TaskCommand]
    batches: Sequence[pa.RecordBatch]
    counts: Mapping[int, int]

    def rows_in(self, task: TaskCommand) -> int:
        """Return the number of rows of a task."""
        return self.counts.get(task.task.partition, 0)

    def rows_of(self, task: TaskCommand) -> list[pa.RecordBatch]:
        """Return the rows of a task alone; no batch is empty."""
        return rows_by_partition(self.batches).get(task.task.partition, [])


def share_out(tasks: Sequence[TaskCommand], batches: Iterable[pa.RecordBatch]) -> Iterator[Share]:
    """Read all input and group it; every task is in one share."""
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
    """Return the task partition of each row."""
    partitions: np.ndarray[tuple[int], np.dtype[np.int32]] = rows.column(hidden_columns.PARTITION).to_numpy(
        zero_copy_only=False
    )
    return partitions


def rows_by_partition(batches: Iterable[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
    """Return the rows of each partition that has some, without copies if each batch has one partition."""
    rows: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        partitions = partitions_of(batch)
        first = int(partitions[0])
        if (partitions == first).all():
            # The usual case, without copies.
            rows.setdefault(first, []).append(batch)
            continue
        for partition in np.unique(partitions).tolist():
            rows.setdefault(partition, []).append(batch.filter(pa.array(partitions == partition)))
    return rows
