"""Which message keys, and which partition, some values of the columns of a table's key are of."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.runtime.contract.specs import StateSpec

__all__ = ["key_rows", "message_keys", "partition_of"]


def key_rows(columns: Sequence[str], values: Mapping[str, Sequence[Any]], most: int) -> list[tuple[Any, ...]] | None:
    """Return all combinations of values of columns, without nulls; None if a column has none, or they are too many."""
    if not set(columns) <= set(values) or math.prod(len(values[name]) for name in columns) > most:
        return None
    return [row for row in itertools.product(*(values[name] for name in columns)) if None not in row]


def message_keys(spec: StateSpec, values: Mapping[str, Sequence[Any]], most: int) -> pa.Array | None:
    """Return the message keys of all combinations of values; None unless each column of the key has some.

    Args:
        spec: of the store.
        values: column -> its values. Those of a type that may be spelt in several ways are left alone.
        most: combinations; None for more.
    """
    return _encoded(spec, spec.keys, values, most)


def partition_of(spec: StateSpec, values: Mapping[str, Sequence[Any]], partitions: int) -> int | None:
    """Return the one partition that has rows with such values; None if it may be any.

    Rows behind a repartition topic are where its columns say. Whoever produces a topic of the user's may have a
    partitioner of his own.
    """
    if not spec.repartitioned_by or not set(spec.repartitioned_by) <= set(spec.keys):
        return None
    keys = _encoded(spec, spec.repartitioned_by, values, 1)
    return None if keys is None else int(murmur2_partitions(keys, partitions)[0])


def _encoded(
    spec: StateSpec, columns: Sequence[str], values: Mapping[str, Sequence[Any]], most: int
) -> pa.Array | None:
    rows = key_rows(columns, values, most)
    if rows is None:
        return None
    kinds = [spec.output.field(name).type for name in columns]
    if not all(map(_spelt_once, kinds)):
        return None
    wanted = [[row[at] for row in rows] for at in range(len(columns))]
    try:
        arrays = [pa.array(column, kind) for column, kind in zip(wanted, kinds, strict=True)]
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        return None
    if [array.to_pylist() for array in arrays] != wanted:
        # Rounded, say.
        return None
    return key_bytes(arrays).cast(pa.binary())


def _spelt_once(kind: pa.DataType) -> bool:
    plain = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_boolean)
    return any(is_kind(kind) for is_kind in plain)
