"""The compiled loop that writes the records of a batch (their layout: ``record_loop``)."""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any

from sparkrelay.records._native import copy, inline, kernel, store8, varint_size, write_varint


@inline
def _bytes_of(size: int) -> int:
    """Count the bytes that a key or value takes with its size."""
    return varint_size(size) + max(size, 0)


@inline
def _put(position: int, source: int, size: int) -> int:
    """Write a key or value after its size; returns the position after it."""
    position = write_varint(position, size)
    if size > 0:
        copy(position, source, size)
        position += size
    return position


@kernel(
    "int64(int64, int64, int64, int64[::1], uint8[::1], int64, int64[::1], uint8[::1], int64[::1],"
    " int64[::1], int64, int64[::1], int64, int64[::1], uint8[::1], int64, int64, int64[::1])"
)
def write_records(
    first: int,
    rows: int,
    key_address: int,
    key_offsets: Any,
    key_valid: Any,
    value_address: int,
    value_offsets: Any,
    value_valid: Any,
    timestamps: Any,
    header_offsets: Any,
    header_key_address: int,
    header_key_offsets: Any,
    header_value_address: int,
    header_value_offsets: Any,
    header_value_valid: Any,
    target: int,
    capacity: int,
    state: Any,
) -> int:
    """Write records from row ``first`` until ``capacity`` bytes are full; returns the first row not written.

    ``state`` gets the bytes written and the largest timestamp, or, if not even one record fits, the bytes it needs.
    One timestamp stands for all rows; empty validity means no nulls; empty header offsets mean no headers.
    """
    position = target
    end = target + capacity
    varying = len(timestamps) > 1
    keys_nullable = len(key_valid) > 0
    values_nullable = len(value_valid) > 0
    header_values_nullable = len(header_value_valid) > 0
    has_headers = len(header_offsets) > 0
    timestamp = timestamps[first] if varying else timestamps[0]
    base_timestamp = timestamp
    max_timestamp = timestamp
    for row in range(first, rows):
        if varying:
            timestamp = timestamps[row]
        time_delta = timestamp - base_timestamp
        key_size = key_offsets[row + 1] - key_offsets[row]
        if keys_nullable and key_valid[row] == 0:
            key_size = -1
        value_size = value_offsets[row + 1] - value_offsets[row]
        if values_nullable and value_valid[row] == 0:
            value_size = -1
        header_from = 0
        header_to = 0
        if has_headers:
            header_from = header_offsets[row]
            header_to = header_offsets[row + 1]

        body = 1 + varint_size(time_delta) + varint_size(row - first) + _bytes_of(key_size) + _bytes_of(value_size)
        body += varint_size(header_to - header_from)
        for header in range(header_from, header_to):
            body += _bytes_of(header_key_offsets[header + 1] - header_key_offsets[header])
            size = header_value_offsets[header + 1] - header_value_offsets[header]
            body += 1 if header_values_nullable and header_value_valid[header] == 0 else _bytes_of(size)
        if position + varint_size(body) + body > end:
            if row == first:
                state[0] = varint_size(body) + body
            else:
                state[0] = position - target
            state[1] = max_timestamp
            return row

        position = write_varint(position, body)
        store8(position, 0)
        position = write_varint(position + 1, time_delta)
        position = write_varint(position, row - first)
        position = _put(position, key_address + key_offsets[row], key_size)
        position = _put(position, value_address + value_offsets[row], value_size)
        position = write_varint(position, header_to - header_from)
        for header in range(header_from, header_to):
            key = header_key_offsets[header]
            position = _put(position, header_key_address + key, header_key_offsets[header + 1] - key)
            size = header_value_offsets[header + 1] - header_value_offsets[header]
            if header_values_nullable and header_value_valid[header] == 0:
                size = -1
            position = _put(position, header_value_address + header_value_offsets[header], size)
        max_timestamp = max(max_timestamp, timestamp)
    state[0] = position - target
    state[1] = max_timestamp
    return rows
