"""Key bytes: what a record's key says of one or several columns, and back.

One string, binary, int or bigint column is written as Kafka's own serialisers would, so that other programs read it.
Everything else (several columns, a window, a date, a double) is a *tuple*, whose bytes sort as the columns do, nulls
first (``records.tuples``).

Equal keys must have equal bytes, because bytes decide the partition and the place in the store: hence no variable
lengths with a choice, ``-0.0`` is written as ``0.0``, and all NaNs are one. Refused: JSON (slow, not canonical), Avro
(needs a schema registry to be read), separators without escapes (two different keys could collide).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import (
    BinaryColumn,
    as_type,
    flatten,
    is_large_binary,
    is_short_binary,
    validity_bitmap,
    validity_bytes,
)
from sparkrelay.records.tuples import MAX_BINARY, read_columns, write_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["is_plain_key", "is_text", "key_bytes", "key_columns", "plain_misfit", "plain_misfits"]

_BIG_ENDIAN_WIDTH: Final = {pa.int32(): 4, pa.int64(): 8}


def is_plain_key(kind: pa.DataType) -> bool:
    """Return whether a single column of this type is written as Kafka's own serialisers would."""
    return kind in _BIG_ENDIAN_WIDTH or _is_bytes(kind)


def key_bytes(columns: Sequence[pa.Array], *, normal: bool = True) -> pa.Array:
    """Write key columns as the keys of records.

    Args:
        columns: of one length; one string, binary, int32 or int64 column is written as Kafka would, others as tuples.
        normal: write ``-0.0`` as ``0.0`` and all NaNs as one, so that equal keys have equal bytes. False for columns
            that are no key and come back as they are; among them may be lists and maps.

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
        return _plain(arrays[0])
    return write_columns(arrays, lists=not normal, normal=normal)


def key_columns(keys: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Read what key_bytes() wrote from columns of these types; a null key gives null in every column.

    Raises:
        SerializationException: a key is not what this schema writes; the message names the row.
    """
    keys = flatten(keys)
    if len(schema) == 1 and is_plain_key(schema.field(0).type):
        return [_read_plain(keys, schema.field(0).type)]
    return read_columns(keys, schema)


def _is_bytes(kind: pa.DataType) -> bool:
    return is_short_binary(kind) or is_large_binary(kind)


def _plain(array: pa.Array) -> pa.Array:
    if array.type not in _BIG_ENDIAN_WIDTH:
        # Nothing is copied, and a cast takes ten times as long for a key alone.
        return array.view(pa.large_binary() if is_large_binary(array.type) else pa.binary())
    width = _BIG_ENDIAN_WIDTH[array.type]
    values = np.asarray(array.fill_null(0)).astype(f">i{width}")
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    large = len(array) * width > MAX_BINARY
    validity = validity_bitmap(validity_bytes(array)) if array.null_count else None
    return pa.Array.from_buffers(
        pa.large_binary() if large else pa.binary(),
        len(array),
        [validity, pa.py_buffer(offsets if large else offsets.astype(np.int32)), pa.py_buffer(values)],
    )


def plain_misfits(keys: pa.Array, kind: pa.DataType) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the rows whose bytes are not what a plain column of this type is written as; nulls never are."""
    column = BinaryColumn.of(keys)
    if kind in _BIG_ENDIAN_WIDTH:
        wrong = np.diff(column.offsets) != _BIG_ENDIAN_WIDTH[kind]
        return np.flatnonzero(wrong & column.valid.astype(bool) if len(column.valid) else wrong)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return np.empty(0, np.intp)
    try:
        keys.cast(kind)
    except pa.ArrowInvalid:
        return np.flatnonzero([not is_text(key) for key in keys.to_pylist()])
    return np.empty(0, np.intp)


def is_text(value: bytes | str | None) -> bool:
    """Return whether bytes are UTF-8; null and str are."""
    try:
        return value is None or isinstance(value, str) or value.decode() is not None
    except UnicodeDecodeError:
        return False


def plain_misfit(value: bytes, kind: pa.DataType) -> str:
    """Say why bytes are not a plain column of this type."""
    if kind in _BIG_ENDIAN_WIDTH:
        return f"has {len(value)} bytes: {value[:40]!r}; {kind} is written as {_BIG_ENDIAN_WIDTH[kind]}, big endian"
    return f"is not UTF-8 text: {value[:40]!r}; read it as binary"


def _read_plain(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    numbers_wanted = kind in _BIG_ENDIAN_WIDTH
    if not numbers_wanted:
        # Arrow looks for itself whether it is text.
        with contextlib.suppress(pa.ArrowInvalid):
            return as_type(keys, kind)
    wrong = plain_misfits(keys, kind)
    if len(wrong):
        row = int(wrong[0])
        raise SerializationException(f"the key of row {row} {plain_misfit(keys[row].as_py(), kind)}")
    if not numbers_wanted:
        return keys.cast(kind)
    width = _BIG_ENDIAN_WIDTH[kind]
    if keys.null_count:
        numbers = [None if key is None else int.from_bytes(key, "big", signed=True) for key in keys.to_pylist()]
        return pa.array(numbers, kind)
    if not len(keys):
        return pa.array([], kind)
    start = int(BinaryColumn.of(keys).offsets[0])
    return pa.array(np.frombuffer(keys.buffers()[2], f">i{width}", len(keys), start).astype(f"=i{width}"))
