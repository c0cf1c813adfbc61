"""The compiled loops that write and read tuples, row by row over a small table that describes the columns.

A list is one column of such a table, however deep: its elements have their own table, and their own call. So the loops
need no recursion.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

from sparkrelay.records._native import (
    copy,
    inline,
    kernel,
    load8,
    load64,
    read_varint,
    store8,
    store64,
    write_varint,
)

# Kinds of columns. A struct precedes its fields.
FIXED: Final = 0
BYTES: Final = 1
STRUCT: Final = 2
DECIMAL: Final = 3
LIST: Final = 4

# A column's description: kind, tag, width (of a struct: its number of fields), addresses of data, offsets and validity
# (0: no nulls), and the number of descriptions inside a struct.
#
# A list to write has the offsets of its elements as width, their bytes as data and the offsets of these. A list to read
# has the addresses of the counts of elements, of their starts and of their ends.
FIELDS: Final = 7
_KIND: Final = 0
_TAG: Final = 1
_WIDTH: Final = 2
_DATA: Final = 3
_OFFSETS: Final = 4
_VALID: Final = 5
_INSIDE: Final = 6

_VERSION: Final = 1
_NULL: Final = 0
_ESCAPED: Final = 0xFF

_BAD_VERSION: Final = 1
_TOO_SHORT: Final = 2
_BAD_TAG: Final = 3
_TOO_LONG: Final = 4
_BAD_LIST: Final = 5


@inline
def _write_number(position: int, value: int, width: int) -> int:
    shift = (width - 1) * 8
    # Flipping the sign bit makes bytes sort as signed numbers do.
    store8(position, ((value >> shift) & 0xFF) ^ 0x80)
    for index in range(1, width):
        store8(position + index, value >> (shift - index * 8))
    return position + width


@inline
def _read_number(position: int, width: int) -> int:
    value: int = (load8(position) ^ 0x80) - ((load8(position) ^ 0x80) >> 7 << 8)
    for index in range(1, width):
        value = (value << 8) | load8(position + index)
    return value


@inline
def _write_escaped(position: int, source: int, size: int) -> int:
    for index in range(size):
        byte = load8(source + index)
        store8(position, byte)
        position += 1
        if byte == 0:
            store8(position, _ESCAPED)
            position += 1
    store8(position, 0)
    return position + 1


@kernel("void(int64[:, ::1], int64, boolean, int64, int64[::1])")
def write_tuples(leaves: Any, rows: int, versioned: bool, target: int, offsets: Any) -> None:
    """Write one tuple a row; the caller has allocated the upper bound. Elements of lists have no version."""
    position = target
    count = len(leaves)
    for row in range(rows):
        if versioned:
            store8(position, _VERSION)
            position += 1
        index = 0
        while index < count:
            leaf = leaves[index]
            index += 1
            if leaf[_VALID] != 0 and load8(leaf[_VALID] + row) == 0:
                store8(position, _NULL)
                position += 1
                index += leaf[_INSIDE]
                continue
            store8(position, leaf[_TAG])
            position += 1
            kind = leaf[_KIND]
            if kind == FIXED:
                position = _write_number(position, load64(leaf[_DATA] + row * 8), leaf[_WIDTH])
            elif kind == BYTES:
                start = load64(leaf[_OFFSETS] + row * 8)
                size = load64(leaf[_OFFSETS] + row * 8 + 8) - start
                position = _write_escaped(position, leaf[_DATA] + start, size)
            elif kind == STRUCT:
                store8(position, leaf[_WIDTH])
                position += 1
            elif kind == DECIMAL:
                position = _write_number(position, load64(leaf[_DATA] + row * 16 + 8), 8)
                low = load64(leaf[_DATA] + row * 16)
                for part in range(8):
                    store8(position + part, low >> (56 - part * 8))
                position += 8
            else:
                start = load64(leaf[_OFFSETS] + row * 8)
                size = load64(leaf[_OFFSETS] + row * 8 + 8) - start
                elements = load64(leaf[_WIDTH] + row * 8 + 8) - load64(leaf[_WIDTH] + row * 8)
                position = write_varint(position, elements)
                position = write_varint(position, size)
                copy(position, leaf[_DATA] + start, size)
                position += size
        offsets[row + 1] = position - target


@inline
def _set_null(leaves: Any, index: int, row: int) -> None:
    store8(leaves[index, _VALID] + row, 0)
    if leaves[index, _KIND] == BYTES:
        store64(leaves[index, _OFFSETS] + row * 8 + 8, load64(leaves[index, _OFFSETS] + row * 8))


@kernel("void(int64[:, ::1], int64[::1], int64[::1], int64[::1], int64, uint8[::1], int64[::1])")
def read_tuples(leaves: Any, counts: Any, starts: Any, ends: Any, address: int, valid: Any, state: Any) -> None:
    """Read tuples, or with ``counts`` the elements of lists, into columns; the caller has allocated them.

    ``starts`` and ``ends`` are relative to ``address``. ``valid`` is a byte a tuple, empty if none is null. ``state``
    gets an error (0: none) and its tuple or list.
    """
    columns = len(leaves)
    are_lists = len(counts) > 0
    row = -1
    for number in range(len(starts)):
        state[1] = number
        position = address + starts[number]
        end = address + ends[number]
        rows = 1
        if are_lists:
            rows = counts[number]
        elif len(valid) > 0 and valid[number] == 0:
            row += 1
            for index in range(columns):
                _set_null(leaves, index, row)
            continue
        elif position == end or load8(position) != _VERSION:
            state[0] = _BAD_VERSION
            return
        else:
            position += 1
        for _ in range(rows):
            row += 1
            index = 0
            while index < columns:
                leaf = index
                index += 1
                if position >= end:
                    state[0] = _TOO_SHORT
                    return
                tag = load8(position)
                position += 1
                if tag == _NULL:
                    index += leaves[leaf, _INSIDE]
                    for inner in range(leaf, index):
                        _set_null(leaves, inner, row)
                    continue
                if tag != leaves[leaf, _TAG]:
                    state[0] = _BAD_TAG
                    return
                kind = leaves[leaf, _KIND]
                width = leaves[leaf, _WIDTH]
                if kind == FIXED:
                    if width > end - position:
                        state[0] = _TOO_SHORT
                        return
                    store64(leaves[leaf, _DATA] + row * 8, _read_number(position, width))
                    position += width
                elif kind == BYTES:
                    used = load64(leaves[leaf, _OFFSETS] + row * 8)
                    while True:
                        start = position
                        while position < end and load8(position) != 0:
                            position += 1
                        if position >= end:
                            state[0] = _TOO_SHORT
                            return
                        escaped = position + 1 < end and load8(position + 1) == _ESCAPED
                        size = position - start + (1 if escaped else 0)
                        copy(leaves[leaf, _DATA] + used, start, size)
                        used += size
                        position += 2 if escaped else 1
                        if not escaped:
                            break
                    store64(leaves[leaf, _OFFSETS] + row * 8 + 8, used)
                elif kind == STRUCT:
                    if position >= end or load8(position) != width:
                        state[0] = _BAD_TAG
                        return
                    position += 1
                elif kind == DECIMAL:
                    if end - position < 16:
                        state[0] = _TOO_SHORT
                        return
                    store64(leaves[leaf, _DATA] + row * 16 + 8, _read_number(position, 8))
                    low = 0
                    for part in range(8):
                        low = (low << 8) | load8(position + 8 + part)
                    store64(leaves[leaf, _DATA] + row * 16, low)
                    position += 16
                else:
                    elements, behind = read_varint(position, end)
                    size, first = read_varint(behind, end) if behind > 0 else (0, -1)
                    # Each element has one byte at least, so what is there bounds what room is made for.
                    if first < 0 or elements < 0 or size < elements or size > end - first:
                        state[0] = _BAD_LIST
                        return
                    store64(width + row * 8, elements)
                    store64(leaves[leaf, _DATA] + row * 8, first)
                    store64(leaves[leaf, _OFFSETS] + row * 8, first + size)
                    position = first + size
        if position != end:
            state[0] = _TOO_LONG
            return
