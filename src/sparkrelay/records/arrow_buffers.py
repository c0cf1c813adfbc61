"""Arrow arrays as the addresses and NumPy arrays that compiled loops read and write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SHORT = frozenset({pa.binary().id, pa.string().id})
_LARGE = frozenset({pa.large_binary().id, pa.large_string().id})

NO_BYTES = np.empty(0, np.uint8)
#: Bytes of an array with offsets of 32 bits; also the elements of all its lists.
MAX_BINARY: Final = (1 << 31) - 1


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column if it has another type; Arrow's cast is not free for the same type."""
    return column if column.type == kind else column.cast(kind)


def is_short_binary(kind: pa.DataType) -> bool:
    """Return whether values are strings or bytes with offsets of 32 bits."""
    return kind.id in _SHORT


def is_large_binary(kind: pa.DataType) -> bool:
    """Return whether values are strings or bytes with offsets of 64 bits."""
    return kind.id in _LARGE


def is_variable(kind: pa.DataType) -> bool:
    """Return whether values are strings or bytes of variable length."""
    return kind.id in _SHORT or kind.id in _LARGE


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array, without a copy if it is one chunk."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def flatten(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return one plain array: chunks joined, dictionaries decoded."""
    if isinstance(array, pa.ChunkedArray):
        array = whole(array)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def validity_bytes(array: pa.Array) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return a byte a row, 1 where the value is not null; empty if no row is null."""
    if not array.null_count:
        return NO_BYTES
    valid: np.ndarray[Any, Any] = pc.is_valid(array).to_numpy(zero_copy_only=False).view(np.uint8)
    return valid


def validity_bitmap(valid: np.ndarray[Any, Any]) -> pa.Buffer | None:
    """Return Arrow's bitmap of a byte a row; None if no row is null."""
    # all() takes ten times as long, for few rows and for many.
    return None if 0 not in valid.tobytes() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers_of(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return integers, booleans, days or microseconds since 1970 as numbers of 64 bits; 0 for null."""
    kind = array.type
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    array = as_type(array, pa.int64())
    numbers: np.ndarray[Any, Any] = (array.fill_null(0) if array.null_count else array).to_numpy(zero_copy_only=False)
    return numbers


def array_of_numbers(kind: pa.DataType, numbers: np.ndarray[Any, Any], validity: pa.Buffer | None) -> pa.Array:
    """Undo :func:`numbers_of`, for floats too; they may come as numbers of 64 bits."""
    data = numbers
    if pa.types.is_boolean(kind):
        data = np.packbits(numbers.astype(bool), bitorder="little")
    elif pa.types.is_floating(kind) or pa.types.is_integer(kind):
        with np.errstate(over="ignore"):
            data = numbers.astype(kind.to_pandas_dtype(), copy=False)
    elif pa.types.is_date32(kind):
        data = numbers.astype(np.int32, copy=False)
    stored = pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind
    array = pa.Array.from_buffers(stored, len(numbers), [validity, pa.py_buffer(data)])
    return array if stored == kind else array.cast(kind, safe=False)


def no_columns(rows: int) -> pa.RecordBatch:
    """Return a batch of rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))


def offsets_of(lengths: np.ndarray[Any, Any], width: type[np.integer[Any]] = np.int64) -> np.ndarray[Any, Any]:
    """Return the offsets of adjacent values with these lengths: each start, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, width)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def items_of(lists: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], list[pa.Array]]:
    """Return the offsets of lists or maps, from 0 on, and their items: of maps the keys and the values."""
    # Without rows Java writes no offsets; those of a slice point into the whole child.
    offsets = np.array(lists.offsets if len(lists) else [0], np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    items = lists.values.slice(first, last - first)
    # ``keys`` of a map would begin with the child's buffers, wherever its entries begin.
    columns = [items.field(0), items.field(1)] if pa.types.is_map(lists.type) else [items]
    return offsets - first, [flatten(column) for column in columns]


def decimal_words(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the unscaled numbers of 128 bits, low half first, two words a row; anything for null."""
    data = array.buffers()[1]
    if data is None or not len(array):
        return np.zeros(2 * len(array), np.int64)
    return np.frombuffer(data, np.int64)[2 * array.offset : 2 * (array.offset + len(array))]


def fixed_width(type_: pa.DataType, numbers: np.ndarray[Any, Any], count: int) -> pa.Array:
    """Return the first ``count`` numbers as a column without nulls, without a copy.

    ``pa.array`` would import pandas, if installed: half a second and 40 MB at the first record.
    """
    return pa.Array.from_buffers(type_, count, [None, pa.py_buffer(numbers)])


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """A string or binary array as loops read it.

    Attributes:
        address: the data buffer's.
        offsets: one more than there are rows.
        valid: a byte a row, empty if no row is null.
        owner: keeps the memory alive.
    """

    address: int
    offsets: np.ndarray[Any, np.dtype[np.int64]]
    valid: np.ndarray[Any, np.dtype[np.uint8]]
    owner: Any

    @classmethod
    def of(cls, array: pa.Array | pa.ChunkedArray) -> Self:
        """View an array; other binary layouts are cast to plain ``binary`` first.

        Raises:
            TypeError: the array holds neither strings nor bytes.
        """
        array = flatten(array)
        if pa.types.is_null(array.type):
            return cls.nulls(len(array))
        if not is_short_binary(array.type) and (
            pa.types.is_fixed_size_binary(array.type) or str(array.type) in {"binary_view", "string_view"}
        ):
            array = array.cast(pa.binary())
        if is_short_binary(array.type):
            width: Any = np.int32
        elif is_large_binary(array.type):
            width = np.int64
        else:
            raise TypeError(f"expected strings or bytes, got {array.type}")
        _, offsets, data = array.buffers()
        if offsets is None or not len(array):
            return cls(0, np.zeros(len(array) + 1, np.int64), validity_bytes(array), array)
        numbers = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        return cls(data.address if data else 0, numbers.astype(np.int64), validity_bytes(array), array)

    @classmethod
    def nulls(cls, rows: int) -> Self:
        """Stand for a column of nulls."""
        return cls(0, np.zeros(rows + 1, np.int64), np.zeros(rows, np.uint8), None)


class LoopMemory:
    """Memory that a loop reads by its addresses, kept alive."""

    def __init__(self) -> None:
        self._owners: list[Any] = []

    def address(self, data: np.ndarray[Any, Any] | bytes) -> int:
        """Keep data; return its address."""
        self._owners.append(data)
        # As ``ctypes.data`` has it, which takes seven times as long.
        return int(pa.py_buffer(data).address)

    def validity(self, array: pa.Array) -> int:
        """Return the address of a byte a row, 1 where the value is not null; 0 if no row is null."""
        valid = validity_bytes(array)
        return self.address(valid) if len(valid) else 0

    def binary(self, column: BinaryColumn) -> tuple[int, int]:
        """Keep strings or bytes; return the addresses of the data and of the offsets."""
        self._owners.append(column)
        return column.address, self.address(column.offsets)


class BinaryWriter:
    """An Arrow binary column under construction, as the buffers that a loop fills.

    The capacity is an upper bound: the unused rest is address space, not memory, and ``finish`` returns it.
    """

    def __init__(self, rows: int, capacity: int) -> None:
        """Allocate; a negative capacity means that the column is not wanted."""
        self._buffer = pa.allocate_buffer(max(capacity, 0), resizable=True)
        self.address = self._buffer.address if capacity >= 0 else -1
        self.offsets = np.zeros(rows + 1 if capacity >= 0 else 0, np.int64)
        self.valid = np.empty(rows if capacity >= 0 else 0, np.uint8)
        self.valid.fill(1)

    def finish(self, count: int, *, large: bool = False, text: bool = False) -> pa.Array:
        """Return the first ``count`` rows as binary, or as text whose encoding the caller has checked.

        The type is ``large_binary`` if asked for, and above 2 GiB.
        """
        size = int(self.offsets[count])
        large |= size > MAX_BINARY
        self._buffer.resize(size, shrink_to_fit=True)
        offsets = self.offsets[: count + 1] if large else self.offsets[: count + 1].astype(np.int32)
        plain, wide = (pa.string, pa.large_string) if text else (pa.binary, pa.large_binary)
        return pa.Array.from_buffers(
            wide() if large else plain(),
            count,
            [validity_bitmap(self.valid[:count]), pa.py_buffer(offsets), self._buffer],
        )
