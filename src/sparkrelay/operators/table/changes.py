"""Filters of a table: they emit new rows that pass, and tombstones for rows that no longer pass.

The stateful step emits each changed row twice, its old and its new version (``hidden_columns.CHANGE``). The user's
steps see both. If the new row of a key passes, it is emitted; if only the old one does, a tombstone is; otherwise
nothing. Kafka Streams' ``KTableFilter`` does the same when it is sent old values. A tombstone has the columns of the
row that it deletes, since one of them may be the sink's key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker.context import laid_out, leg_tasks
from sparkrelay.runtime.worker.own.memory import freeze_loaded_objects
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.runtime.worker.task_steps import each_table, look_up, never_applied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand

NEW: Final = 1
OLD: Final = -1
#: Journal: old and new version of each changed row, as rows of the leg.
CHANGES: Final = "changes"
#: Journal: deleted rows, ``key, time``.
DELETIONS: Final = "deletions"
#: Journal: each version of a row within the micro-batch, ``key, time, value``.
VERSIONS: Final = "versions"
#: Journal of a table with a history: previous newest row of each key whose newest row changed, ``key, old``.
NEWEST: Final = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRunner(StepSpec):
    """Input of a leg that continues from the changes of another leg's store.

    Attributes:
        store: the store.
        contents: the store's contents, in words.
        output: Arrow schema of the rows: ``TableRunner.kept`` of the store's step.
    """

    store: str
    contents: str
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the micro-batch's changes of a store of an earlier wave's leg."""
        yield from each_table(self, batches, self._changes)

    def _changes(self, task: TaskCommand) -> pa.RecordBatch:
        found = look_up(self, task, self.store, self.contents, pa.array([], pa.binary()))
        if CHANGES not in found.beside:
            raise never_applied(task, self.store)
        rows = found.beside[CHANGES]
        return pa.RecordBatch.from_arrays(rows.columns, schema=self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredTableRunner(StepSpec):
    """Turns filtered changes of a table into rows and tombstones.

    Attributes:
        keys: key columns of the sink topic, if they are not the table's own.
        output: Arrow schema of the rows.
    """

    keys: tuple[str, ...]
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows and tombstones for the changes that passed the filters."""
        shares = share_out(leg_tasks(self), batches)
        freeze_loaded_objects()
        for share in shares:
            if share.batches:
                yield _settled(self, share.batches)


def _settled(spec: FilteredTableRunner, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(batches)
    change = rows.column(hidden_columns.CHANGE)
    new, old = rows.filter(pc.equal(change, NEW)), rows.filter(pc.equal(change, OLD))
    # A key belongs to one task, as it decides the partition. A sink's own key can change although the row passes.
    gone = old.filter(pc.invert(pc.is_in(_identity(spec, old), value_set=_identity(spec, new))))
    return pa.concat_batches([_laid_out(spec, new, deleted=False), _laid_out(spec, gone, deleted=True)])


def _identity(spec: FilteredTableRunner, rows: pa.RecordBatch) -> pa.Array:
    """Return the identity of rows in the sink: the table's key, and the sink's."""
    own = rows.column(hidden_columns.KEY)
    return key_bytes([own, *(rows.column(name) for name in spec.keys)]) if spec.keys else own


def _laid_out(spec: FilteredTableRunner, rows: pa.RecordBatch, *, deleted: bool) -> pa.RecordBatch:
    tombstones = pa.repeat(pa.scalar(deleted), rows.num_rows)
    columns = (tombstones if name == hidden_columns.TOMBSTONE else rows.column(name) for name in spec.output.names)
    return laid_out(columns, spec.output)
