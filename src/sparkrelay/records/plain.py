"""What Kafka's serializers write, and back: numbers big endian, booleans as a byte, texts and UUIDs in UTF-8.

Strings, bytes, ints and bigints are also written so as keys of one column (:mod:`keys`). The other types are not: as
keys they have bytes that sort.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import (
    MAX_BINARY,
    BinaryColumn,
    as_type,
    flatten,
    is_large_binary,
    validity_bitmap,
    validity_bytes,
)
from sparkrelay.records.bad_record import BadRecord
from sparkrelay.records.formats import Boolean, Double, Float, Integer, Long, OneColumn, Raw, Short, String, Uuid

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Formats of one column -> the type that it has.
PLAIN_TYPES: Final[Mapping[type[OneColumn], pa.DataType]] = {
    Raw: pa.binary(),
    String: pa.string(),
    Integer: pa.int32(),
    Long: pa.int64(),
    Short: pa.int16(),
    Float: pa.float32(),
    Double: pa.float64(),
    Boolean: pa.bool_(),
    Uuid: pa.string(),
}
#: Type -> NumPy's name of its bytes.
_FIXED: Final[Mapping[pa.DataType, str]] = {
    pa.int16(): ">i2",
    pa.int32(): ">i4",
    pa.int64(): ">i8",
    pa.float32(): ">f4",
    pa.float64(): ">f8",
    pa.bool_(): ">u1",
}
_UUID: Final = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$"


def declared_schema(form: OneColumn, place: str) -> pa.Schema:
    """Return the one column."""
    return pa.schema([(form.only_column(place), PLAIN_TYPES[type(form)])])


def decode(
    values: pa.Array, form: OneColumn, place: str, schema: pa.Schema | None
) -> tuple[dict[str, pa.Array], list[BadRecord]]:
    """Read the one column."""
    del schema
    column, bad = plain_to_column(values, type(form))
    return {form.only_column(place): column}, bad


def encode(rows: pa.RecordBatch, form: OneColumn, left_out: pa.Array | None) -> pa.Array:
    """Write the one column."""
    del left_out
    column = flatten(rows.column(0))
    if isinstance(form, Uuid) and len(wrong := _no_uuids(column)):
        raise SerializationException(
            f"column {rows.schema.names[0]!r} cannot be written as {form}: {column[int(wrong[0])].as_py()!r} is no UUID"
        )
    return write(column)


def plain_to_column(values: pa.Array, form: type[OneColumn]) -> tuple[pa.Array, list[BadRecord]]:
    """Read what one of Kafka's serializers wrote.

    Returns:
        The column, and the bad records in order, which are null in it.
    """
    column, bad = read(flatten(values), PLAIN_TYPES[form])
    if form is Uuid and len(wrong := _no_uuids(column)):
        bad += [BadRecord(int(row), f"is {column[int(row)].as_py()[:60]!r}, which is no UUID") for row in wrong]
        column = null_at(column, wrong)
        bad.sort(key=lambda one: one.index)
    return column, bad


def read(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[BadRecord]]:
    """Read a plain array of bytes to one of :data:`PLAIN_TYPES`; null stays null.

    Returns:
        The column, and the bad records in order, which are null in it.
    """
    if kind in _FIXED:
        return _read_fixed(values, kind)
    try:
        # Arrow looks for itself whether it is text.
        return as_type(values, kind), []
    except pa.ArrowInvalid:
        wrong = [row for row, value in enumerate(values.to_pylist()) if not is_text(value)]
        bad = [BadRecord(row, f"is not UTF-8 text: {values[row].as_py()[:40]!r}; read it as binary") for row in wrong]
        return null_at(values, wrong).cast(kind), bad


def write(array: pa.Array) -> pa.Array:
    """Write a plain array of one of :data:`PLAIN_TYPES`; null stays null."""
    kind = array.type
    if kind not in _FIXED:
        # Nothing is copied, and a cast takes ten times as long for a key alone.
        return array.view(pa.large_binary() if is_large_binary(kind) else pa.binary())
    code = np.dtype(_FIXED[kind])
    numbers = array.cast(pa.uint8()) if pa.types.is_boolean(kind) else array
    data = np.asarray(numbers.fill_null(0)).astype(code)
    offsets = np.arange(len(array) + 1, dtype=np.int64) * code.itemsize
    large = int(offsets[-1]) > MAX_BINARY
    validity = validity_bitmap(validity_bytes(array)) if array.null_count else None
    return pa.Array.from_buffers(
        pa.large_binary() if large else pa.binary(),
        len(array),
        [validity, pa.py_buffer(offsets if large else offsets.astype(np.int32)), pa.py_buffer(data)],
    )


def is_text(value: bytes | str | None) -> bool:
    """Return whether bytes are UTF-8; null and str are."""
    try:
        return value is None or isinstance(value, str) or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _read_fixed(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, list[BadRecord]]:
    column, code = BinaryColumn.of(values), np.dtype(_FIXED[kind])
    rows, width = len(values), code.itemsize
    present = column.valid.astype(bool) if len(column.valid) else np.ones(rows, bool)
    good = present & (np.diff(column.offsets) == width)
    starts = column.offsets[:-1][good]
    whole = len(starts) == rows
    bytes_ = np.frombuffer(values.buffers()[2] or b"", np.uint8) if len(starts) else np.empty(0, np.uint8)
    if whole and rows:
        data = bytes_[starts[0] : starts[0] + rows * width].reshape(rows, width)
    else:
        data = np.zeros((rows, width), np.uint8)
        data[good] = bytes_[starts[:, None] + np.arange(width)]
    if pa.types.is_boolean(kind):
        good &= data[:, 0] < 2
        numbers: np.ndarray[Any, Any] = np.packbits(data[:, 0].astype(bool), bitorder="little")
    else:
        numbers = np.ascontiguousarray(data).view(code)[:, 0].astype(code.newbyteorder("="))
    bad = [BadRecord(int(row), _why(values[int(row)].as_py(), kind, width)) for row in np.flatnonzero(present & ~good)]
    validity = validity_bitmap(good.view(np.uint8))
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(numbers)]), bad


def _why(value: bytes, kind: pa.DataType, width: int) -> str:
    if len(value) == width:
        return f"is {value!r}; a boolean is written as a byte 0 or 1"
    return f"has {len(value)} bytes: {value[:40]!r}; {kind} is written as {width}, big endian"


def _no_uuids(texts: pa.Array) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Return the rows whose text is not a UUID; nulls never are."""
    fits = pc.fill_null(pc.match_substring_regex(texts, _UUID), True)
    return np.flatnonzero(~fits.to_numpy(zero_copy_only=False))


def null_at(column: pa.Array, rows: list[int] | np.ndarray[Any, Any]) -> pa.Array:
    """Return a column with nulls in some rows."""
    place = np.arange(len(column))
    return column.take(pa.array(place, mask=np.isin(place, rows)))
