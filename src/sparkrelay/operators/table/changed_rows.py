"""Output rows for changed groups of a store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.table.changes import CHANGES, DELETIONS, NEW, OLD, VERSIONS
from sparkrelay.runtime.worker.context import laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from sparkrelay.operators.table.layout import Codec
    from sparkrelay.operators.table.run import TableRunner


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of some tasks, sorted by task and encoded key.

    This is the store's order: no value has to be reordered, and a slice of the changelog, which has the same order,
    restores keys that are adjacent in the store.

    Attributes:
        partitions: the task of each group.
        partial: partial results.
        keys: key columns.
        encoded: message keys.
        stored: keys in the store.
        versions: of one task, every change of its rows, for legs that look up the store; None without such legs.
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
        """Return the store keys of one task's groups."""
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


def changed_rows(  # noqa: PLR0917
    spec: TableRunner,
    codec: Codec,
    groups: Groups,
    old: pa.Array,
    results: list[pa.Array],
    results_before: Callable[[list[pa.Array]], list[pa.Array]] | None = None,
) -> tuple[pa.RecordBatch, Mapping[str, pa.RecordBatch]]:
    """Return the output rows, and the batches that other legs find in the journal.

    Args:
        spec: the stateful step.
        codec: the codec that merged.
        groups: the merged groups.
        old: the values before, or null.
        results: of the merge: values and timestamps; if rows can be deleted, also which are, and which changed.
        results_before: completes the results of old values, if they are not whole.
    """
    if not spec.deletes:
        values, deletes, changed = results, None, None
    else:
        *values, deletes, changed = results
    beside = {} if groups.versions is None else {VERSIONS: groups.versions}
    if spec.joined and deletes is not None:
        gone = pa.record_batch([groups.encoded, values[-1]], ["key", "time"])
        # An answer is also due for a row that did not exist.
        beside[DELETIONS] = gone.filter(deletes if spec.answers_deletions else pc.and_(deletes, changed))
    both = None
    if spec.changes or spec.kept is not None:
        schema = spec.output if spec.kept is None else spec.kept
        new = _laid_out(schema, groups, values, _constant(NEW, groups))
        # An old row is emitted with the time of its replacement or deletion.
        was = codec.results(old) if results_before is None else results_before(codec.results(old))
        before = _laid_out(schema, groups, [*was[:-1], values[-1]], _constant(OLD, groups))
        there = pc.is_valid(old)
        if deletes is not None and changed is not None:
            new, there = new.filter(pc.and_not(changed, deletes)), pc.and_(changed, there)
        # Old rows first: after a repartition topic, a table of newest rows keeps the last (joins by a foreign key).
        both = pa.concat_batches([before.filter(there), new])
        if spec.kept is not None:
            beside[CHANGES] = both
    if spec.changes:
        assert both is not None
        return both, beside
    marked = deletes if hidden_columns.TOMBSTONE in spec.output.names else None
    emitted = _laid_out(spec.output, groups, values, marked)
    return emitted if changed is None else emitted.filter(changed), beside


def _laid_out(schema: pa.Schema, groups: Groups, results: Sequence[pa.Array], last: pa.Array | None) -> pa.RecordBatch:
    """Return groups as output rows. The last of ``results`` is their newest timestamp."""
    *values, timestamps = results
    columns: list[Any] = [*groups.keys, *values, pa.array(groups.partitions), timestamps, groups.encoded]
    if last is not None:
        columns.append(last)
    return laid_out(columns, schema)


def _constant(value: int, groups: Groups) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), len(groups.encoded))
