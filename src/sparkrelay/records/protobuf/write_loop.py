"""The compiled loop that writes Protobuf messages: of each row the fields that ``writer`` lists."""

from __future__ import annotations

from typing import Any, Final

from sparkrelay.records._native import copy, inline, kernel, load8, load64, store8, store64, write_unsigned

# A field: tag (0: none), operation, addresses of validity (0: no nulls), data, offsets, and whether 0 or an empty value
# is left out.
FIELD: Final = 6
_TAG: Final = 0
_OP: Final = 1
_VALID: Final = 2
_DATA: Final = 3
_OFFSETS: Final = 4
_IMPLICIT: Final = 5

VARINT: Final = 0
ZIGZAG: Final = 1
WORD64: Final = 2
WORD32: Final = 3
TIMESTAMP: Final = 4  # microseconds
SIZED: Final = 5
BYTES: Final = 6  # they contain sizes and tags

#: The most bytes of a number and its tag: a Timestamp has two numbers, two tags and a size.
WIDEST: Final = 5 + 1 + 2 * 11


@inline
def _write_timestamp(position: int, micros: int) -> int:
    """Write a Timestamp with its size; parts that are 0 are left out."""
    seconds = micros // 1_000_000
    nanos = (micros - seconds * 1_000_000) * 1_000
    start = position + 1
    position = start
    if seconds != 0:
        store8(position, 8)
        position = write_unsigned(position + 1, seconds)
    if nanos != 0:
        store8(position, 16)
        position = write_unsigned(position + 1, nanos)
    store8(start - 1, position - start)
    return position


@inline
def _write_field(fields: Any, at: int, row: int, position: int) -> int:
    """Write one field of a row; returns the position after it."""
    valid, op, data = fields[at, _VALID], fields[at, _OP], fields[at, _DATA]
    if valid != 0 and load8(valid + row) == 0:
        return position
    value, size = 0, 0
    if op < SIZED:
        value = load64(data + row * 8)
        if fields[at, _IMPLICIT] != 0 and value == 0:
            return position
    else:
        start = load64(fields[at, _OFFSETS] + row * 8)
        size = load64(fields[at, _OFFSETS] + row * 8 + 8) - start
        if fields[at, _IMPLICIT] != 0 and size == 0:
            return position
        data += start
    if fields[at, _TAG] != 0:
        position = write_unsigned(position, fields[at, _TAG])
    if op == VARINT:
        return write_unsigned(position, value)
    if op == ZIGZAG:
        return write_unsigned(position, (value << 1) ^ (value >> 63))
    if op == TIMESTAMP:
        return _write_timestamp(position, value)
    if op == WORD64:
        store64(position, value)
        return position + 8
    if op == WORD32:
        for place in range(4):
            store8(position + place, value >> (8 * place))
        return position + 4
    if op == SIZED:
        position = write_unsigned(position, size)
    copy(position, data, size)
    return position + size


@kernel("void(int64[:, ::1], int64, int64, int64, int64[::1])")
def write_rows(fields: Any, prefix: int, prefix_size: int, target: int, offsets: Any) -> None:
    """Write a message a row, after a prefix; ``offsets`` gets the end of each row."""
    position = target
    for row in range(len(offsets) - 1):
        copy(position, prefix, prefix_size)
        position += prefix_size
        for at in range(len(fields)):
            position = _write_field(fields, at, row, position)
        offsets[row + 1] = position - target
