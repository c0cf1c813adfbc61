"""Distinct values of groups, for ``count(DISTINCT x)`` and the like: each is a key of the store without a value.

A group's state is as small as without DISTINCT, and a micro-batch writes new values only. The first byte distinguishes
two kinds of keys. It follows the end of the window, if any, so both kinds expire with the window:

    00, grouping columns -> state of the group
    01, length of the grouping columns (4 bytes), grouping columns, index of the aggregate (2 bytes), value -> nothing

Journals, changelogs and restores treat both alike.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.state.byte_arrays import side_by_side
from sparkrelay.state.key_parts import KeyPart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.state.aggregate import AggregateSpec

#: Prefix of a group's message key.
GROUP: Final = b"\x00"
_VALUE: Final = b"\x01"
_GROUP: Final = KeyPart(4)
_FIRST: Final = "__sparkrelay_first"
_BYTES: Final = "__sparkrelay_value"


@dataclass(frozen=True, slots=True)
class DistinctValues:
    """Distinct values of one aggregate.

    Attributes:
        index: the aggregate's index.
        partitions: the task of each value.
        groups: the store's key of each value's group.
        keys: the store's key of each value.
        arguments: the values, in the aggregate's columns.
    """

    index: int
    partitions: pa.Array
    groups: pa.Array
    keys: pa.Array
    arguments: pa.Table

    def of(self, partition: int) -> DistinctValues:
        """Return the values of one task."""
        own = pc.equal(self.partitions, partition)
        return DistinctValues(
            self.index,
            self.partitions.filter(own),
            self.groups.filter(own),
            self.keys.filter(own),
            self.arguments.filter(own),
        )


def marked(ends: pa.Array | None, encoded: pa.Array) -> pa.Array:
    """Return the store's keys of groups, after the ends of their windows."""
    fronts = [] if ends is None else [ends]
    return side_by_side(*fronts, GROUP, encoded)


def value_keys(ends: pa.Array | None, encoded: pa.Array, index: int, values: pa.Array) -> pa.Array:
    """Return the store's keys of values."""
    fronts = [] if ends is None else [ends]
    return side_by_side(*fronts, _VALUE, _GROUP.of_all(encoded), struct.pack(">H", index), values)


def value_rows(
    aggregates: Sequence[AggregateSpec],
    rows: pa.Table,
    by: Sequence[str],
    encode: Callable[[pa.Table], tuple[pa.Array, pa.Array | None]],
    partition: int | None,
) -> list[DistinctValues]:
    """Return the distinct values of each aggregate that counts a group's values once.

    Args:
        aggregates: all aggregates of the step.
        rows: its input.
        by: the grouping columns.
        encode: computes message keys and the ends of windows, if any.
        partition: the only task; None if the first column of ``by`` is the task.
    """
    found = []
    for index, aggregate in enumerate(aggregates):
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
