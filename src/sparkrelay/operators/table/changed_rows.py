"""The rows that go on when groups of a store have changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.table.changes import CHANGES, DELETIONS, NEW, OLD, VERSIONS
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.operators.table.layout import Codec
    from sparkrelay.operators.table.run import TableRunner

__all__ = ["Groups", "changed_rows"]


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups of some tasks, task by task; a task's are in the order of their encoded keys.

    In the store's order, that is: old and new values are where they are wanted, and a slice of the changelog, which
    gets this order too, is of keys that lie together in the store that it restores.

    Attributes:
        partitions: of the task that each group is of.
        partial: their partial results.
        keys: their key columns.
        encoded: their message keys.
        stored: their keys in the store.
        versions: of one task, every change of its rows, for legs that look into the store; None if there are none.
    """

    partitions: NDArray[np.int32]
    partial: pa.Table
    keys: Sequence[pa.Array]
    encoded: pa.Array
    stored: pa.Array
    versions: pa.RecordBatch | None = None

    @classmethod
    def of_one(
        cls, partition: int, partial: pa.Table, keys: Sequence[pa.Array], encoded: pa.Array, stored: pa.Array
    ) -> Self:
        """Return the groups of one task."""
        return cls(np.full(len(encoded), partition, np.int32), partial, keys, encoded, stored)

    def keys_of(self, partition: int) -> pa.Array:
        """Return the keys in the store of one task's groups."""
        first, end = np.searchsorted(self.partitions, [partition, partition + 1]).tolist()
        return self.stored.slice(first, end - first)

    def of(self, partition: int, versions: pa.RecordBatch | None = None) -> Groups:
        """Return the groups of one task."""
        first, end = np.searchsorted(self.partitions, [partition, partition + 1]).tolist()
        count = end - first
        return Groups(
            self.partitions[first:end],
            self.partial.slice(first, count),
            [key.slice(first, count) for key in self.keys],
            self.encoded.slice(first, count),
            self.stored.slice(first, count),
            versions,
        )


def changed_rows(  # noqa: PLR0917 - what came of a merge
    spec: TableRunner,
    codec: Codec,
    groups: Groups,
    old: pa.Array,
    results: list[pa.Array],
    results_before: Callable[[list[pa.Array]], list[pa.Array]] | None = None,
) -> tuple[pa.RecordBatch, Mapping[str, pa.RecordBatch]]:
    """Return the rows that go on, and what other legs find in the journal.

    Args:
        spec: of the stateful step.
        codec: that has merged.
        groups: what was merged.
        old: the values before, null where there was none.
        results: of the merge: values and timestamps; else also which delete and which change anything.
        results_before: completes the results of old values, where not all is in these.
    """
    if not spec.deletes:
        values, deletes, changed = results, None, None
    else:
        *values, deletes, changed = results
    beside = {} if groups.versions is None else {VERSIONS: groups.versions}
    if spec.joined and deletes is not None:
        gone = pa.record_batch([groups.encoded, values[-1]], ["key", "time"])
        # An answer goes back for a row of which there was none here, too.
        beside[DELETIONS] = gone.filter(deletes if spec.answers_deletions else pc.and_(deletes, changed))
    both = None
    if spec.changes or spec.kept is not None:
        schema = spec.output if spec.kept is None else spec.kept
        new = _laid_out(schema, groups, values, _constant(NEW, groups))
        # What is replaced, or deleted, goes on with the time at which it was.
        was = codec.results(old) if results_before is None else results_before(codec.results(old))
        before = _laid_out(schema, groups, [*was[:-1], values[-1]], _constant(OLD, groups))
        there = pc.is_valid(old)
        if deletes is not None and changed is not None:
            new, there = new.filter(pc.and_not(changed, deletes)), pc.and_(changed, there)
        # What was goes first: behind a repartition topic a table of newest rows keeps what is (joins by a foreign key).
        both = pa.concat_batches([before.filter(there), new])
        if spec.kept is not None:
            beside[CHANGES] = both
    if spec.changes:
        assert both is not None, "both kinds of rows are laid out"
        return both, beside
    marked = deletes if hidden_columns.TOMBSTONE in spec.output.names else None
    emitted = _laid_out(spec.output, groups, values, marked)
    return emitted if changed is None else emitted.filter(changed), beside


def _laid_out(schema: pa.Schema, groups: Groups, results: Sequence[pa.Array], last: pa.Array | None) -> pa.RecordBatch:
    """Lay groups out as the rows that go on; the last result is their newest timestamp."""
    *values, timestamps = results
    columns: list[Any] = [*groups.keys, *values, pa.array(groups.partitions), timestamps, groups.encoded]
    if last is not None:
        columns.append(last)
    return laid_out(columns, schema)


def _constant(value: int, groups: Groups) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), len(groups.encoded))
