"""The step of a foreign-key join that answers rows which reference a row of its task (KIP-213).

Other legs keep the left table's rows by foreign key, and the tables of the right side. Every left row that the
micro-batch wrote is answered, even if it is unchanged: its earlier answer may have been dropped as outdated
(``outdated_answers``). When a right row changes, all left rows that reference it are answered.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.foreign_join.outdated_answers import NO_ROW
from sparkrelay.operators.table.changes import NEW, OLD
from sparkrelay.operators.table.joined_rows import NEVER, JoinedTables, joined_rows, touched_keys
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.records.tuples import write_columns
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.task_steps import each_table, task_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.contract.commands import TaskCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignJoinRunner(StepSpec):
    """Answers the rows of a table that reference rows of this task.

    Attributes:
        referencing: the table of left rows by foreign key.
        tables: the tables of which the right table is made.
        joined: how they are joined; tables by their index in ``tables``.
        how: ``inner`` or ``left``.
        keys: Arrow schema of the key of ``referencing``: the foreign key, then the rest of the left table's key.
        foreign: number of columns of the foreign key.
        own: names of the left table's key columns.
        output: Arrow schema of the answers: the left table's columns, the right one's without its key, with ``left``
            whether the right table has a row, hidden ones.
    """

    referencing: TableRunner
    tables: tuple[TableRunner, ...]
    joined: JoinedTables | int
    how: str
    keys: pa.Schema
    foreign: int
    own: tuple[str, ...]
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the answers of the micro-batch, a task at a time."""
        yield from each_table(self, batches, self._answers)

    def _answers(self, task: TaskCommand) -> pa.RecordBatch:
        written = touched_keys(self, [self.referencing], task)
        keys = pc.unique(pa.chunked_array([written, _naming_changed_rows(self, task)])).sort()
        left = joined_rows(self, [self.referencing], 0, task, keys)
        columns = dict(zip(self.keys.names, key_columns(keys, self.keys), strict=True))
        named = [columns[name] for name in self.keys.names[: self.foreign]]
        # A key with a null matches nothing.
        whole = functools.reduce(pc.and_, (column.is_valid() for column in named))
        foreign = pc.if_else(whole, key_bytes(named).cast(pa.binary()), pa.scalar(None, pa.binary()))
        wanted = pc.unique(foreign.drop_null())
        right = joined_rows(self, self.tables, self.joined, task, wanted)
        at = pc.index_in(foreign, value_set=wanted)
        found = pc.fill_null(pa.array(right.is_).take(at), False)
        matched = np.asarray(found.to_numpy(zero_copy_only=False), dtype=bool)
        # The time of a deleted row is that of its deletion.
        times = np.maximum(
            left.times, pc.fill_null(pa.array(right.times).take(at), NEVER).to_numpy(zero_copy_only=False)
        )
        there = left.is_ if self.how == "left" else left.is_ & matched
        own = self.referencing.layout.row.names
        theirs = self.output.names[len(self.keys) + len(own) :]
        kinds = np.where(there, NEW, np.where(left.is_, NO_ROW, OLD)).astype(np.int32)
        given = {
            **dict(zip(theirs, (*(column.take(at) for column in right.are), found), strict=False)),
            **dict(zip(own, left.are, strict=True)),
            **columns,
            hidden_columns.PARTITION: pa.repeat(pa.scalar(task.task.partition, pa.int32()), len(keys)),
            hidden_columns.TIMESTAMP: pa.array(np.where(left.is_, times, left.times)),
            hidden_columns.KEY: key_bytes([columns[name] for name in self.own]),
            hidden_columns.CHANGE: pa.array(kinds),
        }
        return laid_out((given[name] for name in self.output.names), self.output)


def _naming_changed_rows(spec: ForeignJoinRunner, task: TaskCommand) -> pa.Array:
    """Return the keys of left rows that reference a row of the right table changed by the micro-batch."""
    touched = touched_keys(spec, spec.tables, task)
    right = joined_rows(spec, spec.tables, spec.joined, task, touched)
    changed = touched.filter(pa.array(right.changed & (right.was | right.is_)))
    schema = pa.schema([spec.keys.field(index) for index in range(spec.foreign)])
    beginnings = write_columns(key_columns(changed, schema), lists=False, normal=True).to_pylist()
    found = task_store(spec, task).look(
        spec.referencing.store,
        lambda view: view.keys_beginning(beginnings),
        contents=spec.referencing.contents,
        task_epoch=task.task_epoch,
    )
    return found.values
