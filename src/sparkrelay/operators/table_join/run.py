"""Joins of tables by key in workers: emits the changes of the joined rows.

Other legs keep the tables and ran in earlier waves of the same micro-batch. Their stores have the rows after the
micro-batch; their journals have the changed rows before it. So joined rows before and after are known without being
stored, as in ``KTable.join`` of Kafka Streams, whose processors query the other side's store. If a micro-batch changes
both sides of a key, the joined row changes once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changes import NEW, OLD
from sparkrelay.operators.table.joined_rows import JoinedTables, joined_rows, touched_keys
from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.task_steps import each_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinRunner(StepSpec):
    """Joins tables of one key that other legs keep.

    Attributes:
        tables: the tables.
        joined: how they are joined; tables by their index in ``tables``.
        keys: Arrow schema of the key columns.
        output: Arrow schema of output rows: key columns, the tables' others, hidden ones.
    """

    tables: tuple[TableRunner, ...]
    joined: JoinedTables
    keys: pa.Schema
    output: pa.Schema

    @property
    def changes(self) -> bool:
        """Whether the old version of a changed row is emitted, too (``hidden_columns.CHANGE``)."""
        return hidden_columns.CHANGE in self.output.names

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of the joined rows, a task at a time."""
        yield from each_table(self, batches, self._changed)

    def _changed(self, task: TaskCommand) -> pa.RecordBatch:
        keys = touched_keys(self, self.tables, task)
        rows = joined_rows(self, self.tables, self.joined, task, keys)
        changed = rows.changed & (rows.was | rows.is_)
        if self.changes:
            kinds = ((OLD, changed & rows.was, rows.were), (NEW, changed & rows.is_, rows.are))
            parts = [_laid_out(self, task, keys, rows.times, columns, which, kind) for kind, which, columns in kinds]
        else:
            kept = ((False, changed & rows.is_, rows.are), (True, changed & rows.was & ~rows.is_, rows.were))
            parts = [_laid_out(self, task, keys, rows.times, columns, which, gone) for gone, which, columns in kept]
        return pa.concat_batches(parts)


def _laid_out(  # noqa: PLR0917
    spec: TableJoinRunner,
    task: TaskCommand,
    keys: pa.Array,
    times: NDArray[np.int64],
    columns: tuple[pa.Array, ...],
    which: NDArray[np.bool_],
    last: Any,
) -> pa.RecordBatch:
    """Return some of the rows as output rows; ``last`` is their last column: the kind of change, or tombstone."""
    some = pa.array(np.flatnonzero(which))
    keys = keys.take(some)
    count = len(keys)
    names = spec.output.names[len(spec.keys) :]
    given: dict[str, pa.Array] = {
        **dict(zip(spec.keys.names, key_columns(keys, spec.keys), strict=True)),
        **{name: column.take(some) for name, column in zip(names, columns, strict=False)},
        hidden_columns.PARTITION: pa.repeat(pa.scalar(task.task.partition, pa.int32()), count),
        hidden_columns.TIMESTAMP: pa.array(times[which]),
        hidden_columns.KEY: keys,
        spec.output.names[-1]: pa.repeat(pa.scalar(last), count),
    }
    return laid_out((given[name] for name in spec.output.names), spec.output)
