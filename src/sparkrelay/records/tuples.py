"""Tuples: several columns as one value a row, and back; ``docs/internals/records.md`` draws the bytes.

    version 0x01, then per column a tag and its content; a struct is a tag followed by its fields

The elements of all rows of a list are one array, which is written like columns; a row's list is the bytes from its
first to its last element. A map is a list of keys and values. So the loops run once for each level of lists, not for
each row.

Refused: Arrow's own IPC format a row (hundreds of bytes each), JSON (slow, not exact), lists without their size (they
would have to be read twice to count their elements).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records._native import over_rows
from sparkrelay.records.arrow_buffers import (
    MAX_BINARY,
    NO_BYTES,
    BinaryColumn,
    BinaryWriter,
    LoopMemory,
    array_of_numbers,
    decimal_words,
    flatten,
    items_of,
    numbers_of,
    offsets_of,
    validity_bitmap,
    validity_bytes,
)
from sparkrelay.records.key_loop import (
    BYTES,
    DECIMAL,
    FIELDS,
    FIXED,
    LIST,
    STRUCT,
    read_tuples,
    write_tuples,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Levels of lists and maps within each other.
MAX_DEPTH: Final = 16
#: A struct's number of fields is written as one byte.
_MOST_FIELDS: Final = 255
#: Of a list, at most: its tag, the count of its elements and their size.
_LIST_HEAD: Final = 11
_SHOWN: Final = 200
_NO_COUNTS: Final = np.empty(0, np.int64)

_READ_ERRORS: Final = (
    "",
    "does not start with tuple version 1",
    "ends too early",
    "has a column of another type",
    "has bytes after the last column",
    "has a list with an impossible size",
)

# Tags rise so that no valid tag is 0 (null) or 0xFF (which marks an escaped zero byte).
_TAG_STRUCT: Final = 0x70
_TAG_LIST: Final = 0x72
_TAG_MAP: Final = 0x74
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


def write_columns(arrays: Sequence[pa.Array], *, lists: bool, normal: bool) -> pa.Array:
    """Write columns of one length, each one plain array, as one tuple a row; a single column's null is null.

    Args:
        arrays: the columns.
        lists: accept lists and maps, whose bytes do not sort.
        normal: write ``-0.0`` as ``0.0`` and all NaNs as one.

    Raises:
        SerializationException: a column has a type that tuples cannot have.
    """
    writer = _Written(lists=lists, normal=normal, depth=0).tuples(arrays)
    if len(arrays) == 1 and arrays[0].null_count:
        writer.valid[:] = validity_bytes(arrays[0])
    return writer.finish(len(arrays[0]))


def read_columns(values: pa.Array, schema: pa.Schema) -> list[pa.Array]:
    """Read what write_columns() wrote from columns of these types; a null gives null in every column.

    Raises:
        SerializationException: a value is not what this schema writes; the message names the row.
    """
    column = BinaryColumn.of(values)
    rows, size = len(values), int(column.offsets[-1] - column.offsets[0])
    outputs = [_Output(field.type, rows, size) for field in schema]
    state = np.zeros(2, np.int64)
    starts, ends = column.offsets[:-1], column.offsets[1:]
    read_tuples(_table(outputs), _NO_COUNTS, starts, ends, column.address, column.valid, state)
    try:
        if state[0]:
            raise _Misfit(int(state[1]), _READ_ERRORS[state[0]])
        return [output.finish(rows) for output in outputs]
    except _Misfit as misfit:
        value = values[misfit.row].as_py()
        shown = repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}... ({len(value)} bytes)"
        raise SerializationException(
            f"the key of row {misfit.row} {misfit.reason}: {shown}; "
            f"expected a tuple of {', '.join(f'{field.name} {field.type}' for field in schema)}"
        ) from None


class _Misfit(Exception):  # noqa: N818 - never leaves this module
    """Bytes are not what the schema writes; ``row`` is that of the lists or values that are read together."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_map))


def _tag(kind: pa.DataType, *, lists: bool = True) -> tuple[int, int]:
    """Return the tag of a type and the size of its content (0: variable)."""
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return _TAG_TIMESTAMP_NTZ, 8
    for test, tag, width in _TAGS:
        if test(kind):
            return tag, width
    what, others = ("a row", "structs, arrays and maps") if lists else ("a key", "structs")
    raise SerializationException(
        f"{what} cannot have a column of type {kind}; use strings, binary, numbers, booleans, dates, timestamps, "
        f"decimals or {others} of them"
    )


class _Written(LoopMemory):
    """The write loop's table of columns, and the owners of the memory in it."""

    def __init__(self, *, lists: bool, normal: bool, depth: int) -> None:
        super().__init__()
        self._lists = lists
        self._normal = normal
        self._depth = depth
        self._leaves: list[list[int]] = []

    def tuples(self, arrays: Sequence[pa.Array]) -> BinaryWriter:
        """Write columns, a tuple a row."""
        rows, versioned = len(arrays[0]), self._depth == 0
        writer = BinaryWriter(rows, rows * versioned + sum(map(self._add, arrays)))
        leaves = np.array(self._leaves, np.int64).reshape(-1, FIELDS)
        over_rows(rows, write_tuples, leaves, rows, versioned, writer.address, writer.offsets)
        return writer

    def _add(self, array: pa.Array) -> int:
        """Add a column to the table; returns its most bytes."""
        kind, rows = array.type, len(array)
        valid_address = self.validity(array)
        if pa.types.is_struct(kind):
            return self._add_struct(array, valid_address)
        if self._lists and _is_list(kind):
            return self._add_list(array, valid_address)
        tag, width = _tag(kind, lists=self._lists)
        if not width:
            column = BinaryColumn.of(array)
            self._leaves.append([BYTES, tag, 0, *self.binary(column), valid_address, 0])
            return rows * 2 + 2 * int(column.offsets[-1] - column.offsets[0])
        values = self.address(decimal_words(array) if width == 16 else _ordered(array, normal=self._normal))
        self._leaves.append([DECIMAL if width == 16 else FIXED, tag, width, values, 0, valid_address, 0])
        return rows * (1 + width)

    def _add_struct(self, array: pa.Array, valid_address: int) -> int:
        fields = array.type.num_fields
        if fields > _MOST_FIELDS:
            raise SerializationException(f"a struct of {fields} fields cannot be written; {_MOST_FIELDS} are possible")
        at = len(self._leaves)
        self._leaves.append([])
        size = len(array) * 2 + sum(self._add(flatten(array.field(index))) for index in range(fields))
        inside = len(self._leaves) - at - 1
        self._leaves[at] = [STRUCT, _TAG_STRUCT, fields, 0, 0, valid_address, inside]
        return size

    def _add_list(self, array: pa.Array, valid_address: int) -> int:
        if self._depth == MAX_DEPTH:
            raise SerializationException(f"arrays and maps are nested deeper than {MAX_DEPTH} levels")
        rows, is_map = len(array), pa.types.is_map(array.type)
        ends, columns = items_of(array)
        written = _Written(lists=True, normal=self._normal, depth=self._depth + 1).tuples(columns)
        bytes_ends = written.offsets[ends]
        size = int(bytes_ends[-1])
        if size > MAX_BINARY and int(np.diff(bytes_ends).max()) > MAX_BINARY:
            raise SerializationException(f"an array or a map takes more than {MAX_BINARY} bytes")
        self._owners.append(written)
        addresses = self.address(ends), written.address, self.address(bytes_ends), valid_address
        self._leaves.append([LIST, _TAG_MAP if is_map else _TAG_LIST, *addresses, 0])
        return rows * _LIST_HEAD + size


def _ordered(array: pa.Array, *, normal: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return signed integers that sort as the values do, and fit their width."""
    kind = array.type
    if not pa.types.is_floating(kind):
        return numbers_of(array)
    numbers = np.asarray(array.fill_null(0))
    if normal:
        numbers = numbers + 0.0  # turns -0.0 into 0.0
        numbers[np.isnan(numbers)] = np.nan
    bits = numbers.view(np.int32 if kind == pa.float32() else np.int64).astype(np.int64)
    limit = (1 << 31) - 1 if kind == pa.float32() else (1 << 63) - 1
    # Negative floats sort backwards as integers: flip all bits but the sign.
    return np.where(bits < 0, bits ^ limit, bits)


def _unordered(numbers: np.ndarray[Any, Any], kind: pa.DataType) -> np.ndarray[Any, Any]:
    """Undo _ordered() for floats."""
    if kind == pa.float32():
        return np.where(numbers < 0, numbers ^ ((1 << 31) - 1), numbers).astype(np.int32).view(np.float32)
    return np.where(numbers < 0, numbers ^ ((1 << 63) - 1), numbers).view(np.float64)


class _Output:
    """A column that the read loop fills."""

    def __init__(self, kind: pa.DataType, rows: int, size: int) -> None:
        """Allocate rows; ``size`` is that of all their bytes."""
        self._kind = kind
        self._children: list[_Output] = []
        self._writer: BinaryWriter | None = None
        self._tag, self._width = _TAG_STRUCT, 0
        self._values = np.empty(0, np.int64)
        self._lists: list[np.ndarray[Any, np.dtype[np.int64]]] = []
        if pa.types.is_struct(kind):
            self._children = [_Output(kind.field(i).type, rows, size) for i in range(kind.num_fields)]
        elif _is_list(kind):
            self._tag = _TAG_MAP if pa.types.is_map(kind) else _TAG_LIST
            self._lists = [np.zeros(rows, np.int64) for _ in range(3)]
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
        elif self._lists:
            yield [LIST, self._tag, *(numbers.ctypes.data for numbers in self._lists), valid, 0]
        elif self._width:
            what = DECIMAL if self._width == 16 else FIXED
            yield [what, self._tag, self._width, self._values.ctypes.data, 0, valid, 0]
        else:
            inner = [leaf for child in self._children for leaf in child.leaves()]
            yield [STRUCT, self._tag, len(self._children), 0, 0, valid, len(inner)]
            yield from inner

    def finish(self, rows: int) -> pa.Array:
        """Return the column; raises _Misfit if bytes of its lists are not their elements."""
        kind = self._kind
        validity = validity_bitmap(self._valid)
        if pa.types.is_struct(kind):
            children = [child.finish(rows) for child in self._children]
            return pa.Array.from_buffers(kind, rows, [validity], children=children)
        if self._lists:
            return self._finish_lists(rows, validity)
        if self._writer:
            try:
                return self._writer.finish(rows).cast(kind)
            except pa.ArrowInvalid as error:
                raise SerializationException(f"a key column is not UTF-8 text: {error}; read it as binary") from error
        if self._width == 16:
            return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(self._values)])
        numbers = _unordered(self._values, kind) if pa.types.is_floating(kind) else self._values
        return array_of_numbers(kind, numbers, validity)

    def _finish_lists(self, rows: int, validity: pa.Buffer | None) -> pa.Array:
        kind = self._kind
        counts, starts, ends = self._lists
        offsets = offsets_of(counts)
        total = int(offsets[-1])
        if total > MAX_BINARY and not pa.types.is_large_list(kind):
            raise SerializationException(f"a column of type {kind} has {total} elements at once, {MAX_BINARY} at most")
        fields = [kind.key_field, kind.item_field] if pa.types.is_map(kind) else [kind.value_field]
        outputs = [_Output(field.type, total, int((ends - starts).sum())) for field in fields]
        state = np.zeros(2, np.int64)
        read_tuples(_table(outputs), counts, starts, ends, 0, NO_BYTES, state)
        if state[0]:
            raise _Misfit(int(state[1]), _READ_ERRORS[state[0]])
        try:
            columns = [output.finish(total) for output in outputs]
            if pa.types.is_map(kind) and columns[0].null_count:
                raise _Misfit(pc.index(columns[0].is_null(), pa.scalar(True)).as_py(), "has a map with a null key")
        except _Misfit as misfit:
            # Its row is that of an element.
            raise _Misfit(int(np.searchsorted(offsets, misfit.row, side="right")) - 1, misfit.reason) from None
        elements = columns[0]
        if pa.types.is_map(kind):
            elements = pa.Array.from_buffers(pa.struct(fields), total, [None], children=columns)
        held = pa.py_buffer(offsets if pa.types.is_large_list(kind) else offsets.astype(np.int32))
        return pa.Array.from_buffers(kind, rows, [validity, held], children=[elements])


def _table(outputs: Sequence[_Output]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the read loop's table of columns."""
    return np.array([leaf for output in outputs for leaf in output.leaves()], np.int64).reshape(-1, FIELDS)
