"""Walk the headers of record batches (message format v2) without touching their records.

So control batches, aborted transactions, unwanted offsets and damaged batches do not reach the record loop. The walk is
compiled: batches of a hundred records are common, and a header costs Python more than a hundred records cost the loop.

A batch, big endian: base offset i64, length i32 (of what follows), leader epoch i32, magic i8, CRC-32C u32 (of what
follows), attributes i16, last offset delta i32, base timestamp i64, maximal timestamp i64, producer id i64, producer
epoch i16, base sequence i32, record count i32, records.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.records._native import inline, kernel, load8

HEADER_SIZE: Final = 61
MIN_RECORD_SIZE: Final = 7

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20

# Columns of the table that walk() fills, one row a batch.
START: Final = 0
STOP: Final = 1
BASE_OFFSET: Final = 2
LAST_OFFSET: Final = 3
BASE_TIMESTAMP: Final = 4
MAX_TIMESTAMP: Final = 5
ATTRIBUTES: Final = 6
PRODUCER_ID: Final = 7
COUNT: Final = 8
CRC: Final = 9
ADDRESS: Final = 10
SIZE: Final = 11
STATUS: Final = 12
LEADER_EPOCH: Final = 13
COLUMNS: Final = 14

STATUS_TEXT: Final = (
    "",
    "its length is shorter than a header",
    "it is in an older message format",
    "its offsets are negative or overflow",
    "it starts before the end of the batch before it",
    "its record count is negative or more than its bytes can hold",
)
OLD_FORMAT: Final = 2


@inline
def _big_endian(address: int, size: int) -> int:
    value = 0
    for index in range(size):
        value = (value << 8) | load8(address + index)
    return value


@inline
def _signed32(value: int) -> int:
    return value - 0x100000000 if value >= 0x80000000 else value


@kernel("int64(int64, int64, int64[:, ::1])")
def _walk(address: int, size: int, table: Any) -> int:
    count = 0
    position = 0
    floor = 0
    while position + 17 <= size and count < len(table):
        row = table[count]
        start = address + position
        length = _signed32(_big_endian(start + 8, 4))
        magic = load8(start + 16)
        row[START] = position
        row[STOP] = position + 12 + length
        row[BASE_OFFSET] = _big_endian(start, 8)
        row[CRC] = magic
        # Old formats have length and magic at the same places, but another minimal length.
        if magic < 2 and length >= 14:
            row[STATUS] = 2
            return count + 1
        if length < HEADER_SIZE - 12:
            row[STATUS] = 1
            return count + 1
        if position + 12 + length > size:
            break
        if magic != 2:
            row[STATUS] = 2
            return count + 1
        row[LEADER_EPOCH] = _signed32(_big_endian(start + 12, 4))
        row[CRC] = _big_endian(start + 17, 4)
        row[ATTRIBUTES] = _big_endian(start + 21, 2)
        delta = _signed32(_big_endian(start + 23, 4))
        row[LAST_OFFSET] = row[BASE_OFFSET] + delta
        row[BASE_TIMESTAMP] = _big_endian(start + 27, 8)
        row[MAX_TIMESTAMP] = _big_endian(start + 35, 8)
        row[PRODUCER_ID] = _big_endian(start + 43, 8)
        records = _signed32(_big_endian(start + 57, 4))
        row[COUNT] = records
        row[ADDRESS] = start + HEADER_SIZE
        row[SIZE] = 12 + length - HEADER_SIZE
        row[STATUS] = 0
        if row[BASE_OFFSET] < 0 or delta < 0 or row[LAST_OFFSET] < 0 or row[LAST_OFFSET] == 0x7FFFFFFFFFFFFFFF:
            row[STATUS] = 3
        elif row[BASE_OFFSET] < floor:
            row[STATUS] = 4
        elif (
            records < 0
            or records - 1 > delta
            or (row[ATTRIBUTES] & CODEC_MASK == 0 and records * MIN_RECORD_SIZE > row[SIZE])
        ):
            row[STATUS] = 5
        count += 1
        if row[STATUS] != 0:
            return count
        floor = row[LAST_OFFSET] + 1
        position += 12 + length
    return count


def walk(data: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a table with one row for each complete batch; a cut-off batch at the end is left out.

    The walk ends at the first row whose STATUS is not 0: nothing after a broken header can be trusted. CRC of a batch
    in another format is its magic number.
    """
    table = np.zeros((64, COLUMNS), np.int64)
    address = pa.py_buffer(data).address  # five times as fast as NumPy's ctypes
    while True:
        count = _walk(address, len(data), table)
        if count < len(table):
            return table[:count]
        table = np.zeros((len(table) * 8, COLUMNS), np.int64)


def end_offset(data: memoryview, start: int) -> int | None:
    """Return the offset after the last whole batch, ``start`` if there is none, None if a header is broken."""
    if not data:
        return start
    table = walk(np.frombuffer(data, np.uint8))
    if not len(table):
        return start
    last = table[-1]
    return None if last[STATUS] else max(start, int(last[LAST_OFFSET]) + 1)


def in_front_of(data: memoryview, offset: int) -> memoryview:
    """Return the batches before the one with ``offset``, or before the first broken one."""
    for row in walk(np.frombuffer(data, np.uint8)):
        if row[STATUS] or row[LAST_OFFSET] >= offset:
            return data[: int(row[START])]
    return data
