"""Key bytes: one or several columns to the key of a record, and back.

One string, binary, int or bigint column is written as by Kafka's own serializers, so that other programs can read it.
All other keys (several columns, a window, a date, a double) are *tuples*, whose bytes sort as the columns do, nulls
first (``records.tuples``).

Equal keys must have equal bytes, as bytes decide the partition and the place in the store: no variable lengths with a
choice, ``-0.0`` is written as ``0.0``, and all NaNs are one.

Refused: JSON (slow, not canonical), Avro (needs a schema registry), separators without escapes (keys could collide).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import flatten, is_variable
from sparkrelay.records.plain import read, write
from sparkrelay.records.tuples import read_columns, write_columns

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_plain_key(kind: pa.DataType) -> bool:
    """Return whether a single column of this type is written as by Kafka's own serializers."""
    return kind in {pa.int32(), pa.int64()} or is_variable(kind)


def key_bytes(columns: Sequence[pa.Array], *, normal: bool = True) -> pa.Array:
    """Write key columns as the keys of records.

    Args:
        columns: of one length.
        normal: write ``-0.0`` as ``0.0`` and all NaNs as one, so that equal keys have equal bytes. False for columns
            that are not a key and are read back unchanged; lists and maps are allowed then.

    Returns:
        A binary array. A null in a single column is a null key; among several columns it is part of the key.

    Raises:
        SerializationException: a column has a type that keys cannot have.
    """
    if not columns:
        raise ValueError("a key needs at least one column")
    arrays = [flatten(column) for column in columns]
    if any(len(array) != len(arrays[0]) for array in arrays):
        raise ValueError(
            f"key columns have {sorted({len(array) for array in arrays})} rows; they must be of one length"
        )
    if len(arrays) == 1 and is_plain_key(arrays[0].type):
        return write(arrays[0])
    return write_columns(arrays, lists=not normal, normal=normal)


def key_columns(keys: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Read what key_bytes() wrote from columns of these types; a null key gives null in every column.

    Raises:
        SerializationException: a key is not what this schema writes; the message names the row.
    """
    keys = flatten(keys)
    if len(schema) != 1 or not is_plain_key(schema.field(0).type):
        return read_columns(keys, schema)
    column, bad = read(keys, schema.field(0).type)
    if bad:
        raise SerializationException(f"the key of row {bad[0].index} {bad[0].reason}")
    return [column]
