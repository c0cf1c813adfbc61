"""The compiled loops that read the records of a batch. Every length is checked before it is used.

A record: length varint (of what follows), attributes i8, timestamp delta varlong, offset delta varint, key length
varint (-1: null) and key, value length varint (-1: null) and value, header count varint, and per header: key length
varint and key, value length varint (-1: null) and value.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any

from sparkrelay.records._native import copy, kernel, load8, read_varint, read_varlong
from sparkrelay.records.batches.headers import (
    ADDRESS,
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    SIZE,
)

_LENGTH = 1
_OFFSET = 2
_KEY = 3
_VALUE = 4
_HEADERS = 5
_REST = 6
_VARINT = 7


@kernel(
    "int64(int64[:, ::1], int64, int64, int64, int64[::1], int64[::1], int32[::1],"
    " int64, int64[::1], uint8[::1], int64, int64[::1], uint8[::1], int64[:, ::1], int64[::1])"
)
def read_records(
    batches: Any,
    start: int,
    stop: int,
    capacity: int,
    offsets: Any,
    timestamps: Any,
    timestamp_types: Any,
    key_target: int,
    key_offsets: Any,
    key_valid: Any,
    value_target: int,
    value_offsets: Any,
    value_valid: Any,
    headers: Any,
    state: Any,
) -> int:
    """Read records of batches into columns; returns how many rows were written.

    A negative key or value target, or an empty ``headers``, means that the column is not wanted. ``state`` gets the
    error (0: none), the index of the failing batch, the offset at which ``capacity`` cut (-1: it did not) and the
    number of headers. A row of ``headers`` gets their address, size in bytes and count.
    """
    row = 0
    key_used = 0
    value_used = 0
    header_total = 0
    want_headers = len(headers) > 0
    state[2] = -1
    for index in range(len(batches)):
        batch = batches[index]
        position = batch[ADDRESS]
        batch_end = position + batch[SIZE]
        base_offset = batch[BASE_OFFSET]
        max_delta = batch[LAST_OFFSET] - base_offset
        base_timestamp = batch[BASE_TIMESTAMP]
        append_time = batch[ATTRIBUTES] & LOG_APPEND_TIME != 0
        append_timestamp = batch[MAX_TIMESTAMP]
        last_delta = -1
        state[1] = index
        done = False
        for _ in range(batch[COUNT]):
            length, position = read_varint(position, batch_end)
            if position < 0 or length < 6 or length > batch_end - position:
                state[0] = _LENGTH
                return row
            end = position + length
            delta, position = read_varlong(position + 1, end)
            if position < 0:
                state[0] = _VARINT
                return row
            offset_delta, position = read_varint(position, end)
            if position < 0 or offset_delta <= last_delta or offset_delta > max_delta:
                state[0] = _OFFSET
                return row
            last_delta = offset_delta
            offset = base_offset + offset_delta
            if offset < start:
                position = end
                continue
            if offset >= stop:
                done = True
                break
            if row == capacity:
                state[2] = offsets[row - 1] + 1 if row > 0 else start
                state[3] = header_total
                return row
            key_size, position = read_varint(position, end)
            if position < 0 or key_size < -1 or key_size > end - position:
                state[0] = _KEY
                return row
            key = position
            if key_size > 0:
                position += key_size
            value_size, position = read_varint(position, end)
            if position < 0 or value_size < -1 or value_size > end - position:
                state[0] = _VALUE
                return row
            value = position
            if value_size > 0:
                position += value_size
            header_count, position = read_varint(position, end)
            # A header takes at least two bytes.
            if position < 0 or header_count < 0 or header_count > (end - position) >> 1:
                state[0] = _HEADERS
                return row
            if header_count == 0 and position != end:
                state[0] = _LENGTH
                return row

            if key_target >= 0:
                if key_size > 0:
                    copy(key_target + key_used, key, key_size)
                    key_used += key_size
                key_offsets[row + 1] = key_used
                key_valid[row] = 1 if key_size >= 0 else 0
            if value_target >= 0:
                if value_size > 0:
                    copy(value_target + value_used, value, value_size)
                    value_used += value_size
                value_offsets[row + 1] = value_used
                value_valid[row] = 1 if value_size >= 0 else 0
            if want_headers:
                headers[row, 0] = position
                headers[row, 1] = end - position
                headers[row, 2] = header_count
                header_total += header_count
            offsets[row] = offset
            if append_time:
                timestamps[row] = append_timestamp
                timestamp_types[row] = 1
            else:
                timestamps[row] = base_timestamp + delta
                timestamp_types[row] = 0
            row += 1
            position = end
        if done:
            break
        if position != batch_end:
            state[0] = _REST
            return row
    state[3] = header_total
    return row


@kernel("int64(int64[:, ::1], int64, int64[::1], int64, int64[::1], uint8[::1])")
def read_headers(
    records: Any, key_target: int, key_offsets: Any, value_target: int, value_offsets: Any, value_valid: Any
) -> int:
    """Read the headers that read_records() found; returns the first row whose headers are damaged, or -1."""
    entry = 0
    key_used = 0
    value_used = 0
    for row in range(len(records)):
        position = records[row, 0]
        end = position + records[row, 1]
        for _ in range(records[row, 2]):
            size, position = read_varint(position, end)
            if position < 0 or size < 0 or size > end - position:
                return row
            copy(key_target + key_used, position, size)
            key_used += size
            key_offsets[entry + 1] = key_used
            position += size
            size, position = read_varint(position, end)
            if position < 0 or size < -1 or size > end - position:
                return row
            value_valid[entry] = 1 if size >= 0 else 0
            if size > 0:
                copy(value_target + value_used, position, size)
                value_used += size
                position += size
            value_offsets[entry + 1] = value_used
            entry += 1
        if position != end:
            return row
    return -1


@kernel("int64(int64, int64)")
def control_type(address: int, size: int) -> int:
    """Return the type of a control batch's one record (0 abort, 1 commit), or -1 if it cannot be read.

    Its key holds a version int16 and the type int16.
    """
    batch_end = address + size
    length, position = read_varint(address, batch_end)
    if position < 0 or length < 6 or length > batch_end - position:
        return -1
    end = position + length
    _, position = read_varlong(position + 1, end)
    if position < 0:
        return -1
    _, position = read_varint(position, end)
    if position < 0:
        return -1
    key_size, position = read_varint(position, end)
    if position < 0 or key_size < 4 or key_size > end - position:
        return -1
    marker: int = (load8(position + 2) << 8) | load8(position + 3)
    return marker
