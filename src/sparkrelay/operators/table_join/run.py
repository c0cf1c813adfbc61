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
from sparkrelay.operators.table.joined_rows import JoinedTables, JoinRunner, joined_rows, touched_keys
from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.worker.context import laid_out

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class TableJoinRunner(JoinRunner):
    """Joins tables of one key that other legs keep.

    Attributes:
        tables: the tables.
        joined: how they are joined; tables by their index in ``tables``.
        keys: Arrow schema of the key columns.
        output: key columns, the tables' others, hidden ones.
    """

    tables: tuple[TableRunner, ...]
    joined: JoinedTables
    keys: pa.Schema

    def changed(self, task: TaskCommand) -> pa.RecordBatch:
        """Return the changed rows of a task."""
        keys = touched_keys(self, self.tables, task)
        rows = joined_rows(self, self.tables, self.joined, task, keys)
        parts = self.parts(rows.was, rows.is_, rows.changed & (rows.was | rows.is_))
        return pa.concat_batches(
            [
                _laid_out(self, task, keys, rows.times, rows.are if now else rows.were, which, last)
                for which, now, last in parts
            ]
        )


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
