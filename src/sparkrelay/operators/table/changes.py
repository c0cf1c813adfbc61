"""What the filters of a table make of its changes: new rows that pass, and deletions of those that pass no more.

The stateful step emits each changed row twice: as it was and as it is (``hidden_columns.CHANGE``). The user's steps
see both. Of a key whose new row has passed, that goes on; of one where only the old row has, a tombstone; of others
nothing. So is Kafka Streams' ``KTableFilter`` where it is sent old values. A tombstone has the columns of the row that
it deletes, of which one may be the sink's key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.specs import StepSpec
from sparkrelay.runtime.worker.context import laid_out, leg_tasks
from sparkrelay.runtime.worker.memory import freeze_loaded_objects
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.runtime.worker.task_steps import each_table, look_up, never_applied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand

__all__ = ["CHANGES", "DELETIONS", "NEW", "NEWEST", "OLD", "VERSIONS", "ChangesRunner", "FilteredTableRunner"]

NEW: Final = 1
OLD: Final = -1
#: What a stateful step leaves in its journal: each changed row as it was and as it is, laid out as rows of its leg.
CHANGES: Final = "changes"
#: Which rows a stateful step has deleted, and when: ``key, time``.
DELETIONS: Final = "deletions"
#: Each version of a row within the micro-batch: ``key, time, value``.
VERSIONS: Final = "versions"
#: What the newest row of each key was whose newest row has changed, of a table with a history: ``key, old``.
NEWEST: Final = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesRunner(StepSpec):
    """How a leg goes on from the changes of a store that another one keeps.

    Attributes:
        store: the store.
        contents: what it holds, in words.
        output: Arrow schema of the rows, ``TableRunner.kept`` of the keeper's.
    """

    store: str
    contents: str
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the micro-batch has changed in a store that a leg of an earlier wave keeps."""
        yield from each_table(self, batches, self._changes)

    def _changes(self, task: TaskCommand) -> pa.RecordBatch:
        found = look_up(self, task, self.store, self.contents, pa.array([], pa.binary()))
        if CHANGES not in found.beside:
            raise never_applied(task, self.store)
        rows = found.beside[CHANGES]
        return pa.RecordBatch.from_arrays(rows.columns, schema=self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredTableRunner(StepSpec):
    """What a table's filters leave of the changes of its rows.

    Attributes:
        keys: columns that make the key in the sink topic, where that is not the table's own.
        output: Arrow schema of the rows.
    """

    keys: tuple[str, ...]
    output: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what goes on of the changes that have passed a table's filters."""
        shares = share_out(leg_tasks(self), batches)
        freeze_loaded_objects()
        for share in shares:
            if share.batches:
                yield _settled(self, share.batches)


def _settled(spec: FilteredTableRunner, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(batches)
    change = rows.column(hidden_columns.CHANGE)
    new, old = rows.filter(pc.equal(change, NEW)), rows.filter(pc.equal(change, OLD))
    # A key is in one task: it decides the partition. One of the sink's own may have moved on although the row passes.
    gone = old.filter(pc.invert(pc.is_in(_identity(spec, old), value_set=_identity(spec, new))))
    return pa.concat_batches([_laid_out(spec, new, deleted=False), _laid_out(spec, gone, deleted=True)])


def _identity(spec: FilteredTableRunner, rows: pa.RecordBatch) -> pa.Array:
    """Return what a row is found by where it is written: the table's key, and the sink's."""
    own = rows.column(hidden_columns.KEY)
    return key_bytes([own, *(rows.column(name) for name in spec.keys)]) if spec.keys else own


def _laid_out(spec: FilteredTableRunner, rows: pa.RecordBatch, *, deleted: bool) -> pa.RecordBatch:
    tombstones = pa.repeat(pa.scalar(deleted), rows.num_rows)
    columns = (tombstones if name == hidden_columns.TOMBSTONE else rows.column(name) for name in spec.output.names)
    return laid_out(columns, spec.output)
