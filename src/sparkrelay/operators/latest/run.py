"""Tables of newest rows in workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changes import NEW
from sparkrelay.operators.table.grouping import GroupColumns, GroupedRunner, Grouping, encoded_groups
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sparkrelay.operators.latest.layout import LatestLayout
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Watermark


class Counts(Protocol):
    """Selects valid answers of a join by a foreign key (``foreign_join``)."""

    def counting(self, runner: LatestRunner, task: TaskCommand, rows: pa.Table) -> NDArray[np.bool_]:
        """Return which of a task's rows are valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRunner(GroupedRunner):
    """Runs a step that keeps the newest row of each key.

    Attributes:
        answers: selects valid answers, if the input is answers of a join by a foreign key.
    """

    layout: LatestLayout
    answers: Counts | None = None

    @property
    def answers_deletions(self) -> bool:
        """Whether the input is changes of a table, whose old rows are deleted (joins by a foreign key)."""
        return hidden_columns.CHANGE in self.input.names

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Grouping:
        """Return the groups of the tasks' rows."""
        return Grouping(self, share, self._newest(share, rows) if self.answers_deletions else rows, watermarks)

    def versions(self, share: Share, rows: pa.Table) -> Mapping[int, pa.RecordBatch] | None:
        """Return partition -> each row as a version of its key, if a leg that looks up the store has input."""
        read = {partition.topic for task in share.tasks for partition in task.ranges}
        if read.isdisjoint(self.looked_up_by):
            return None
        keys = key_bytes([whole(rows.column(key)) for key in self.layout.keys.names])
        columns = [keys, whole(rows.column(hidden_columns.PARTITION_TIME)), self.layout.codec.values(rows)]
        versions = pa.record_batch(columns, ["key", "time", "value"])
        partitions = whole(rows.column(hidden_columns.PARTITION))
        return {task.task.partition: versions.filter(pc.equal(partitions, task.task.partition)) for task in share.tasks}

    def stored_rows(self, rows: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Return the store's keys and values of rows; null deletes."""
        columns = GroupColumns(self.layout.keys, rows)
        groups, _, encoded = encoded_groups(self, columns, columns.flat)
        return encoded, self.layout.codec.values(groups)

    def _newest(self, share: Share, rows: pa.Table) -> pa.Table:
        """Return changes of a table as new rows and tombstones. Old rows of a key precede its new row.

        Raises:
            StoreOutOfStepException: the left table's store is not at the batch's position.
        """
        if self.answers is not None and rows.num_rows:
            kept = np.zeros(rows.num_rows, dtype=bool)
            partitions = whole(rows.column(hidden_columns.PARTITION)).to_numpy(zero_copy_only=False)
            for task in share.tasks:
                own = np.flatnonzero(partitions == task.task.partition)
                if len(own):
                    kept[own] = self.answers.counting(self, task, rows.take(pa.array(own)))
            rows = rows.filter(pa.array(kept))
        deletes = pc.not_equal(rows.column(hidden_columns.CHANGE), NEW)
        return rows.set_column(rows.schema.get_field_index(hidden_columns.TOMBSTONE), hidden_columns.TOMBSTONE, deletes)
