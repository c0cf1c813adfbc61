"""CRC-32C of many rows at once, each over its key and its value.

A row's checksum begins with a number that its table gives, and takes the length of the key in between: so a row that
turns up in another table, or is cut elsewhere into key and value, has another one. :func:`checksum` is the same for one
row. Rows of many bytes are left to the library, which has the processor's own instruction for it; a call for each row
would cost more than the rest of what is done to a short one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import crc32c
import numpy as np

from sparkrelay.records._native import inline, kernel, load8, load64
from sparkrelay.records.arrow_buffers import BinaryColumn

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

__all__ = ["CHECKSUM_BYTES", "checksum", "checksums", "first_damaged"]

#: Of a checksum behind a value.
CHECKSUM_BYTES: Final = 4
_POLYNOMIAL: Final = 0x82F63B78
_ALL: Final = 0xFFFFFFFF
#: Bytes of a row from which on the library is faster.
_LONG: Final = 900


def checksum(seed: int, key: bytes, value: bytes) -> int:
    """Return the checksum of one row, 32 bits."""
    return int(crc32c.crc32c(value, crc32c.crc32c(key, seed) ^ len(key)))


def checksums(seed: int, keys: pa.Array, values: pa.Array) -> NDArray[np.uint32]:
    """Return the checksum of each row; 0 where the value is null.

    Args:
        seed: the table's number, 32 bits.
        keys: bytes, none null.
        values: bytes.
    """
    key, value = BinaryColumn.of(keys), BinaryColumn.of(values)
    found = np.zeros(len(keys), np.uint32)
    if _are_long(value):
        pairs = zip(_views(keys, key), _views(values, value), strict=True)
        for row, (name, content) in enumerate(pairs):
            if not len(value.valid) or value.valid[row]:
                found[row] = checksum(seed, name, content)
    else:
        _checksums(key.address, key.offsets, value.address, value.offsets, value.valid, seed, _TABLES, found)
    return found


def first_damaged(seed: int, keys: pa.Array, values: pa.Array) -> int | None:
    """Return the first row whose value does not end with the row's checksum, little endian; None if all do.

    Args:
        seed: the table's number, 32 bits.
        keys: bytes, none null.
        values: bytes with the checksum behind them; null ones are passed over.
    """
    key, value = BinaryColumn.of(keys), BinaryColumn.of(values)
    if not _are_long(value):
        row = _first_damaged(key.address, key.offsets, value.address, value.offsets, value.valid, seed, _TABLES)
        return None if row < 0 else int(row)
    for row, (name, content) in enumerate(zip(_views(keys, key), _views(values, value), strict=True)):
        if not len(value.valid) or value.valid[row]:
            end = content[-CHECKSUM_BYTES:]
            wanted = checksum(seed, name, content[:-CHECKSUM_BYTES])
            if len(end) < CHECKSUM_BYTES or wanted != int.from_bytes(end, "little"):
                return row
    return None


def _are_long(values: BinaryColumn) -> bool:
    offsets = values.offsets
    return bool(offsets[-1] - offsets[0] > _LONG * (len(offsets) - 1))


def _views(array: pa.Array, column: BinaryColumn) -> Any:
    """Yield the bytes of each row without a copy."""
    data = array.buffers()[2]
    view = memoryview(data if data is not None else b"")
    starts = column.offsets.tolist()
    return (view[start:stop] for start, stop in itertools.pairwise(starts))


def _make_tables() -> NDArray[np.int64]:
    """Return the tables by which eight bytes are taken at once (Kounavis and Berry, "slicing by 8")."""
    tables = np.zeros((8, 256), np.int64)
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        tables[0, byte] = value
    for depth in range(1, 8):
        before = tables[depth - 1]
        tables[depth] = before >> 8 ^ tables[0, before & 255]
    return tables


_TABLES: Final = _make_tables()


@inline
def _crc(address: int, size: int, crc: int, tables: Any) -> int:
    crc ^= _ALL
    end = address + size
    while address + 8 <= end:
        word = load64(address) ^ crc
        crc = (
            tables[7, word & 255]
            ^ tables[6, (word >> 8) & 255]
            ^ tables[5, (word >> 16) & 255]
            ^ tables[4, (word >> 24) & 255]
            ^ tables[3, (word >> 32) & 255]
            ^ tables[2, (word >> 40) & 255]
            ^ tables[1, (word >> 48) & 255]
            ^ tables[0, (word >> 56) & 255]
        )
        address += 8
    while address < end:
        crc = tables[0, (crc ^ load8(address)) & 255] ^ (crc >> 8)
        address += 1
    return crc ^ _ALL


@inline
def _row(key: int, key_size: int, value: int, value_size: int, seed: int, tables: Any) -> int:  # noqa: PLR0917
    return _crc(value, value_size, _crc(key, key_size, seed, tables) ^ key_size, tables)


@kernel("void(int64, int64[::1], int64, int64[::1], uint8[::1], int64, int64[:, ::1], uint32[::1])")
def _checksums(  # noqa: PLR0917 - a loop's addresses
    keys: int, key_ends: Any, values: int, value_ends: Any, valid: Any, seed: int, tables: Any, found: Any
) -> None:
    for row in range(len(found)):
        if len(valid) == 0 or valid[row]:
            key, value = key_ends[row], value_ends[row]
            found[row] = _row(
                keys + key, key_ends[row + 1] - key, values + value, value_ends[row + 1] - value, seed, tables
            )


@kernel("int64(int64, int64[::1], int64, int64[::1], uint8[::1], int64, int64[:, ::1])")
def _first_damaged(  # noqa: PLR0917 - a loop's addresses
    keys: int, key_ends: Any, values: int, value_ends: Any, valid: Any, seed: int, tables: Any
) -> int:
    for row in range(len(key_ends) - 1):
        if len(valid) == 0 or valid[row]:
            key, value, size = key_ends[row], value_ends[row], value_ends[row + 1] - value_ends[row] - 4
            if size < 0:
                return row
            end = values + value + size
            stored = load8(end) | load8(end + 1) << 8 | load8(end + 2) << 16 | load8(end + 3) << 24
            if stored != _row(keys + key, key_ends[row + 1] - key, values + value, size, seed, tables):
                return row
    return -1
