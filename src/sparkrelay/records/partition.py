"""The partition of a record: murmur2 of its key bytes, as Java's producer chooses.

So topics are co-partitioned with those written by Java. (librdkafka's default, crc32, differs.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparkrelay.records._native import inline, kernel, load8
from sparkrelay.records.arrow_buffers import BinaryColumn

if TYPE_CHECKING:
    import pyarrow as pa

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2_partitions(keys: pa.Array, partitions: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Return the partition of each key, strings or bytes; -1 for a null key."""
    if partitions < 1:
        raise ValueError(f"partitions={partitions}; a topic has at least 1")
    column = BinaryColumn.of(keys)
    result = np.empty(len(keys), np.int32)
    _partitions(column.address, column.offsets, column.valid, partitions, result)
    return result


def split_by_partition(partitions: np.ndarray[Any, Any], n: int) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the rows of each of ``n`` partitions, in their order.

    Raises:
        ValueError: a partition is not in ``[0, n)``; rows without a key need one first.
    """
    rows = np.empty(len(partitions), np.int64)
    ends = np.zeros(n + 1, np.int64)
    wrong = _split(np.ascontiguousarray(partitions, np.int32), ends, rows)
    if wrong >= 0:
        raise ValueError(f"row {wrong} has partition {partitions[wrong]}, which is not within 0..{n - 1}")
    return [rows[ends[index] : ends[index + 1]] for index in range(n)]


@inline
def _murmur2(address: int, size: int) -> int:
    value = (_SEED ^ size) & _MASK
    position = address
    for _ in range(size >> 2):
        part = load8(position) | (load8(position + 1) << 8) | (load8(position + 2) << 16) | (load8(position + 3) << 24)
        part = (part * _MULTIPLIER) & _MASK
        part ^= part >> 24
        part = (part * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ part
        position += 4
    rest = size & 3
    if rest == 3:
        value ^= load8(position + 2) << 16
    if rest >= 2:
        value ^= load8(position + 1) << 8
    if rest >= 1:
        value ^= load8(position)
        value = (value * _MULTIPLIER) & _MASK
    value ^= value >> 13
    value = (value * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)


@kernel("void(int64, int64[::1], uint8[::1], int64, int32[::1])")
def _partitions(address: int, offsets: Any, valid: Any, partitions: int, result: Any) -> None:
    for row in range(len(result)):
        if len(valid) > 0 and valid[row] == 0:
            result[row] = -1
        else:
            # Java makes the hash positive by dropping its sign bit.
            result[row] = (_murmur2(address + offsets[row], offsets[row + 1] - offsets[row]) & 0x7FFFFFFF) % partitions


@kernel("int64(int32[::1], int64[::1], int64[::1])")
def _split(partitions: Any, ends: Any, rows: Any) -> int:
    count = len(ends) - 1
    for row in range(len(partitions)):
        if partitions[row] < 0 or partitions[row] >= count:
            return row
        ends[partitions[row] + 1] += 1
    for index in range(count):
        ends[index + 1] += ends[index]
    places = ends.copy()
    for row in range(len(partitions)):
        rows[places[partitions[row]]] = row
        places[partitions[row]] += 1
    return -1
