"""Key bytes: what a record's key says of one or several columns, and back.

One string, binary, int or bigint column is written as Kafka's own serialisers would, so that other programs read it.
Everything else (several columns, a window, a date, a double) is a *tuple*, whose bytes sort as the columns do, nulls
first; its layout is drawn in ``docs/internals/records.md``:

    version 0x01, then per column a tag and its content; a struct is a tag followed by its fields

Equal keys must have equal bytes, because bytes decide the partition and the place in the store: hence no variable
lengths with a choice, ``-0.0`` is written as ``0.0``, and all NaNs are one. Refused: JSON (slow, not canonical), Avro
(needs a schema registry to be read), separators without escapes (two different keys could collide).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, BinaryWriter, flatten, validity_bitmap, validity_bytes
from sparkrelay.records.key_loop import BYTES, DECIMAL, FIELDS, FIXED, STRUCT, read_tuples, write_tuples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["is_plain_key", "is_text", "key_bytes", "key_columns", "plain_misfit", "plain_misfits"]

_READ_ERRORS: Final = (
    "",
    "does not start with tuple version 1",
    "ends too early",
    "has a column of another type",
    "has bytes behind the last column",
)

# Tags rise so that no valid tag is 0 (null) or 0xFF (which marks an escaped zero byte).
_TAG_STRUCT: Final = 0x70
_TAGS: Final[tuple[tuple[Any, int, int], ...]] = (
    (pa.types.is_int8, 0x11, 1),
    (pa.types.is_int16, 0x12, 2),
    (pa.types.is_int32, 0x14, 4),
    (pa.types.is_int64, 0x18, 8),
    (pa.types.is_boolean, 0x20, 1),
    (pa.types.is_float32, 0x24, 4),
    (pa.types.is_float64, 0x28, 8),
    (pa.types.is_date32, 0x34, 4),
    (pa.types.is_timestamp, 0x38, 8),
    (pa.types.is_decimal128, 0x60, 16),
    (pa.types.is_string, 0x50, 0),
    (pa.types.is_large_string, 0x50, 0),
    (pa.types.is_binary, 0x51, 0),
    (pa.types.is_large_binary, 0x51, 0),
)
_TAG_TIMESTAMP_NTZ: Final = 0x39

_BIG_ENDIAN_WIDTH: Final = {pa.int32(): 4, pa.int64(): 8}


def is_plain_key(kind: pa.DataType) -> bool:
    """Return whether a single column of this type is written as Kafka's own serialisers would."""
    return kind in _BIG_ENDIAN_WIDTH or _is_bytes(kind)


def key_bytes(columns: Sequence[pa.Array], *, normal: bool = True) -> pa.Array:
    """Write key columns as the keys of records.

    Args:
        columns: of one length; one string, binary, int32 or int64 column is written as Kafka would, others as tuples.
        normal: write ``-0.0`` as ``0.0`` and all NaNs as one, so that equal keys have equal bytes. False for columns
            that are no key and come back as they are.

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
    rows = len(arrays[0])
    leaves: list[list[int]] = []
    owners: list[Any] = []
    capacity = rows + sum(_add_column(array, leaves, owners, normal=normal) for array in arrays)
    writer = BinaryWriter(rows, capacity)
    write_tuples(np.array(leaves, np.int64).reshape(-1, FIELDS), rows, writer.address, writer.offsets)
    if len(arrays) == 1 and arrays[0].null_count:
        writer.valid[:] = validity_bytes(arrays[0])
    return writer.finish(rows, large=capacity > _MAX_BINARY)


def key_columns(keys: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Read what key_bytes() wrote from columns of these types; a null key gives null in every column.

    Raises:
        SerializationException: a key is not what this schema writes; the message names the row.
    """
    keys = flatten(keys)
    if len(schema) == 1 and is_plain_key(schema.field(0).type):
        return [_read_plain(keys, schema.field(0).type)]
    column = BinaryColumn.of(keys)
    rows, size = len(keys), int(column.offsets[-1] - column.offsets[0])
    outputs = [_Output(field.type, rows, size) for field in schema]
    leaves = np.array([leaf for output in outputs for leaf in output.leaves()], np.int64).reshape(-1, FIELDS)
    state = np.zeros(2, np.int64)
    read_tuples(leaves, rows, column.address, column.offsets, column.valid, state)
    if state[0]:
        raise SerializationException(
            f"the key of row {state[1]} {_READ_ERRORS[state[0]]}: {keys[int(state[1])].as_py()!r}; "
            f"expected a tuple of {', '.join(f'{field.name} {field.type}' for field in schema)}"
        )
    return [output.finish(rows) for output in outputs]


_MAX_BINARY: Final = (1 << 31) - 1


def _is_bytes(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string,
                                       pa.types.is_large_binary))  # fmt: skip


def _tag(kind: pa.DataType) -> tuple[int, int]:
    """Return the tag of a type and the size of its content; 0 means variable."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return _TAG_TIMESTAMP_NTZ, 8
    for test, tag, width in _TAGS:
        if test(kind):
            return tag, width
    raise SerializationException(
        f"a key cannot have a column of type {kind}; use strings, binary, numbers, booleans, dates, timestamps, "
        "decimals or structs of them"
    )


def _plain(array: pa.Array) -> pa.Array:
    if array.type not in _BIG_ENDIAN_WIDTH:
        return array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    width = _BIG_ENDIAN_WIDTH[array.type]
    values = np.asarray(array.fill_null(0)).astype(f">i{width}")
    offsets = np.arange(len(array) + 1, dtype=np.int64) * width
    large = len(array) * width > _MAX_BINARY
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
    wrong = plain_misfits(keys, kind)
    if len(wrong):
        row = int(wrong[0])
        raise SerializationException(f"the key of row {row} {plain_misfit(keys[row].as_py(), kind)}")
    if kind not in _BIG_ENDIAN_WIDTH:
        return keys.cast(kind)
    width = _BIG_ENDIAN_WIDTH[kind]
    if keys.null_count:
        numbers = [None if key is None else int.from_bytes(key, "big", signed=True) for key in keys.to_pylist()]
        return pa.array(numbers, kind)
    if not len(keys):
        return pa.array([], kind)
    start = int(BinaryColumn.of(keys).offsets[0])
    return pa.array(np.frombuffer(keys.buffers()[2], f">i{width}", len(keys), start).astype(f"=i{width}"))


def _add_column(array: pa.Array, leaves: list[list[int]], owners: list[Any], *, normal: bool) -> int:
    """Describe a column for the write loop; returns the bytes that it can take at most."""
    kind, rows = array.type, len(array)
    valid = validity_bytes(array)
    owners += (array, valid)
    valid_address = valid.ctypes.data if len(valid) else 0
    if pa.types.is_struct(kind):
        at = len(leaves)
        leaves.append([])
        fields = [flatten(array.field(index)) for index in range(kind.num_fields)]
        size = rows * 2 + sum(_add_column(field, leaves, owners, normal=normal) for field in fields)
        leaves[at] = [STRUCT, _TAG_STRUCT, kind.num_fields, 0, 0, valid_address, len(leaves) - at - 1]
        return size
    tag, width = _tag(kind)
    if not width:
        column = BinaryColumn.of(array)
        owners.append(column)
        leaves.append([BYTES, tag, 0, column.address, column.offsets.ctypes.data, valid_address, 0])
        return rows * 2 + 2 * int(column.offsets[-1] - column.offsets[0])
    values = _decimal_halves(array) if width == 16 else _ordered(array, normal=normal)
    owners.append(values)
    leaves.append([DECIMAL if width == 16 else FIXED, tag, width, values.ctypes.data, 0, valid_address, 0])
    return rows * (1 + width)


def _ordered(array: pa.Array, *, normal: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return integers that sort as the values do, as signed numbers of the width that they are written with."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    elif pa.types.is_floating(kind):
        numbers = np.asarray(array.fill_null(0))
        if normal:
            numbers = numbers + 0.0  # turns -0.0 into 0.0
            numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.int32 if kind == pa.float32() else np.int64).astype(np.int64)
        limit = (1 << 31) - 1 if kind == pa.float32() else (1 << 63) - 1
        # Negative floats sort backwards as integers: flip all bits but the sign.
        return np.where(bits < 0, bits ^ limit, bits)
    return np.asarray(array.fill_null(0)).astype(np.int64)


def _unordered(numbers: np.ndarray[Any, Any], kind: pa.DataType) -> np.ndarray[Any, Any]:
    """Undo _ordered() for floats."""
    if kind == pa.float32():
        return np.where(numbers < 0, numbers ^ ((1 << 31) - 1), numbers).astype(np.int32).view(np.float32)
    return np.where(numbers < 0, numbers ^ ((1 << 63) - 1), numbers).view(np.float64)


def _decimal_halves(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the unscaled 128-bit numbers, low half first, two a row."""
    data = array.buffers()[1]
    return np.frombuffer(data, np.int64)[array.offset * 2 : (array.offset + len(array)) * 2].copy()


class _Output:
    """A column that the read loop fills."""

    def __init__(self, kind: pa.DataType, rows: int, size: int) -> None:
        self._kind = kind
        self._children: list[_Output] = []
        self._writer: BinaryWriter | None = None
        self._tag, self._width = _TAG_STRUCT, 0
        self._values = np.empty(0, np.int64)
        if pa.types.is_struct(kind):
            self._children = [_Output(kind.field(i).type, rows, size) for i in range(kind.num_fields)]
        else:
            self._tag, self._width = _tag(kind)
            if self._width:
                self._values = np.zeros(rows * (2 if self._width == 16 else 1), np.int64)
            else:
                self._writer = BinaryWriter(rows, size)
        self._valid = self._writer.valid if self._writer else np.ones(rows, np.uint8)

    def leaves(self) -> Iterator[list[int]]:
        valid = self._valid.ctypes.data
        if self._writer:
            yield [BYTES, self._tag, 0, self._writer.address, self._writer.offsets.ctypes.data, valid, 0]
        elif self._width:
            yield [
                DECIMAL if self._width == 16 else FIXED,
                self._tag,
                self._width,
                self._values.ctypes.data,
                0,
                valid,
                0,
            ]
        else:
            inner = [leaf for child in self._children for leaf in child.leaves()]
            yield [STRUCT, self._tag, len(self._children), 0, 0, valid, len(inner)]
            yield from inner

    def finish(self, rows: int) -> pa.Array:
        kind = self._kind
        validity = validity_bitmap(self._valid)
        if self._children:
            children = [child.finish(rows) for child in self._children]
            return pa.Array.from_buffers(kind, rows, [validity], children=children)
        if self._writer:
            large = int(self._writer.offsets[rows]) > _MAX_BINARY
            try:
                return self._writer.finish(rows, large=large).cast(kind)
            except pa.ArrowInvalid as error:
                raise SerializationException(f"a key column is not UTF-8 text: {error}; read it as binary") from error
        if self._width == 16:
            return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(self._values)])
        if pa.types.is_boolean(kind):
            bits = pa.py_buffer(np.packbits(self._values.astype(bool), bitorder="little"))
            return pa.Array.from_buffers(kind, rows, [validity, bits])
        if pa.types.is_floating(kind):
            return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(_unordered(self._values, kind))])
        numbers = self._values if self._width == 8 else self._values.astype(f"=i{self._width}")
        if pa.types.is_timestamp(kind):
            micros = pa.Array.from_buffers(pa.timestamp("us", kind.tz), rows, [validity, pa.py_buffer(numbers)])
            return micros.cast(kind, safe=False)
        return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(numbers)])
