"""Distinct values of groups, for ``count(DISTINCT x)`` and the like: each is a key of the store, with nothing under it.

A group's state then stays as small as without DISTINCT, and a micro-batch writes the values that are new and no others.
Keys of such a store come in two kinds, told apart by one byte. It stands in front, or behind the end of their window,
which removes both kinds when it has expired:

    00, grouping columns -> state of the group
    01, length of the grouping columns (4 bytes), grouping columns, number of the aggregate (2 bytes), value -> nothing

Both go through journals, changelogs and restores as any key does.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.watermarks import message_keys
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.worker.context import whole
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.state.byte_arrays import drop_first, fixed, side_by_side
from sparkrelay.state.rows import SortedKeys
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sparkrelay.operators.aggregate.table_aggregates import TableAggregates
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state import MergeResult, Watermark
    from sparkrelay.state.aggregate import AggregateSpec
    from sparkrelay.state.view import StoreView

__all__ = ["DistinctValues", "counting", "has_distinct", "marked", "stored_groups", "value_rows"]

_GROUP: Final = b"\x00"
_VALUE: Final = b"\x01"
_FIRST: Final = "__sparkrelay_first"
_BYTES: Final = "__sparkrelay_value"
_EMPTY: Final = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """The distinct values that some rows have of one aggregate.

    Attributes:
        index: of the aggregate.
        partitions: of the task that each is of.
        groups: the store's key of each one's group.
        keys: the store's key of each.
        arguments: the values, by the names of the aggregate's columns.
    """

    index: int
    partitions: pa.Array
    groups: pa.Array
    keys: pa.Array
    arguments: pa.Table

    def of(self, partition: int) -> DistinctValues:
        """Return those of one task."""
        own = pc.equal(self.partitions, partition)
        return DistinctValues(
            self.index,
            self.partitions.filter(own),
            self.groups.filter(own),
            self.keys.filter(own),
            self.arguments.filter(own),
        )


def marked(ends: pa.Array | None, encoded: pa.Array) -> pa.Array:
    """Return the store's keys of groups: their encoded grouping columns, behind the ends of their windows."""
    fronts = [] if ends is None else [ends]
    return side_by_side(*fronts, pa.scalar(_GROUP, pa.binary()), encoded)


def value_keys(ends: pa.Array | None, encoded: pa.Array, index: int, values: pa.Array) -> pa.Array:
    """Return the store's keys of values, by their groups and the number of their aggregate."""
    fronts = [] if ends is None else [ends]
    sizes = fixed(pc.fill_null(pc.binary_length(encoded), 0).to_numpy(zero_copy_only=False).astype(">u4"), 4)
    number = pa.scalar(struct.pack(">H", index), pa.binary())
    return side_by_side(*fronts, pa.scalar(_VALUE, pa.binary()), sizes, encoded, number, values)


def has_distinct(spec: StateSpec) -> bool:
    """Return whether a store has keys of several kinds: also where values are collected (``collected_values``)."""
    return any(aggregate.distinct or aggregate.collects for aggregate in spec.aggregates)


def stored_groups(spec: StateSpec, stored: pa.RecordBatch) -> pa.RecordBatch:
    """Return the message keys of groups, and their states, out of ``key, value`` of a store."""
    keys, values = stored.columns
    if spec.watermark is not None:
        keys = message_keys(keys)
    if has_distinct(spec):
        of_group = pc.equal(pc.binary_slice(keys, 0, 1), pa.scalar(_GROUP, pa.binary()))
        keys, values = drop_first(keys.filter(of_group)), values.filter(of_group)
    return pa.record_batch([keys, values], ["key", "value"])


def value_rows(
    spec: StateSpec,
    rows: pa.Table,
    by: Sequence[str],
    encode: Callable[[pa.Table], tuple[pa.Array, pa.Array | None]],
    partition: int | None,
) -> list[DistinctValues]:
    """Return the distinct values of each aggregate that counts a group's values once.

    Args:
        spec: of the stateful step.
        rows: its input.
        by: the columns that make groups.
        encode: makes message keys of them, and what the store's keys begin with if they have windows that end.
        partition: of the one task that the rows are of; None if the first column of ``by`` says it.
    """
    found = []
    for index, aggregate in enumerate(spec.aggregates):
        if not aggregate.seen_once:
            continue
        arguments = _arguments(aggregate, rows)
        there = functools.reduce(pc.and_, (column.is_valid() for column in arguments.columns))
        arguments, keyed = arguments.filter(there), rows.select(list(by)).filter(there)
        # Equal values have equal bytes, and Arrow does not group by structs.
        values = key_bytes([whole(column) for column in arguments.columns])
        keyed = keyed.append_column(_BYTES, values).append_column(_FIRST, pa.array(np.arange(keyed.num_rows)))
        pairs = keyed.group_by([*by, _BYTES], use_threads=False).aggregate([(_FIRST, "min")])
        encoded, ends = encode(pairs)
        kept = pc.is_valid(encoded)
        same = None if partition is None else pa.repeat(pa.scalar(partition, pa.int32()), len(encoded))
        found.append(
            DistinctValues(
                index,
                (whole(pairs.column(by[0])) if same is None else same).filter(kept),
                marked(ends, encoded).filter(kept),
                value_keys(ends, encoded, index, whole(pairs.column(_BYTES))).filter(kept),
                arguments.take(whole(pairs.column(f"{_FIRST}_min")).filter(kept)),
            )
        )
    return found


def _arguments(aggregate: AggregateSpec, rows: pa.Table) -> pa.Table:
    assert aggregate.column is not None
    kinds = {aggregate.column: aggregate.input_type, **dict(aggregate.others)}
    return pa.table({name: as_type(whole(rows.column(name)), kind) for name, kind in kinds.items()})


def counting(  # noqa: PLR0917 - as they are needed
    codec: AggregateCodec | TableAggregates,
    groups: pa.Array,
    partial: pa.Table,
    values: Sequence[DistinctValues],
    merged: Callable[[pa.Table, pa.Array], MergeResult],
    watermark: Watermark | None,
    collected: Callable[[StoreView, pa.Array], Iterable[tuple[pa.Array, pa.Array, pa.Array]]],
) -> Callable[[StoreView], Changes]:
    """Return the operator that adds the values which a store has not seen yet, and merges what comes of them.

    Args:
        codec: of the aggregates.
        groups: the store's keys of the groups.
        partial: their partial results, without distinct values.
        values: of the same task.
        merged: merges full partial results with the states of their groups.
        watermark: of the store with the batch.
        collected: given the store and the groups' states before, says what changes beside them: keys, old values, new
            ones.
    """
    ordered = [SortedKeys.of(some.keys) for some in values]

    def operate(view: StoreView) -> Changes:
        full = partial
        changes = []
        for some, sorted_keys in zip(values, ordered, strict=True):
            new = pc.is_null(sorted_keys.as_given(view.get(sorted_keys.keys)))
            places = pc.index_in(some.groups.filter(new), value_set=groups)
            assert isinstance(codec, AggregateCodec), "in aggregates of a table's rows values are collected"
            full = codec.with_values(full, some.index, places, some.arguments.filter(new))
            keys = some.keys.filter(new)
            changes.append((keys, pa.nulls(len(keys), pa.binary()), pa.repeat(_EMPTY, len(keys))))
        by_group = SortedKeys.of(groups)
        old = by_group.as_given(view.get(by_group.keys))
        changes += collected(view, old)
        result = merged(full, old)
        keys, before, after = (pa.concat_arrays(some) for some in zip((groups, old, result.new), *changes, strict=True))
        return Changes(keys, before, after, watermark, result.emitted, result.beside, SortedKeys.of(keys))

    return operate
