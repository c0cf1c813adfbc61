"""The compiled loop that writes Avro by the instructions that ``writer`` makes of columns and a schema."""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

from sparkrelay.records._native import (
    copy,
    inline,
    kernel,
    load8,
    load64,
    load_double,
    store8,
    store_double,
    store_float,
    write_varint,
)
from sparkrelay.records.avro.read_loop import below

# An instruction: operation, column, three arguments.
WIDTH: Final = 5
END: Final = 0
CONSTANT: Final = 1  # a: address; b: size
NULLABLE: Final = 2  # a: number of the branch null; b: of the other one; c: next instruction after a null
REQUIRED: Final = 3
INT: Final = 4  # a: its divisor
BOOL: Final = 5
FLOAT: Final = 6
DOUBLE: Final = 7
BYTES: Final = 8
FIXED: Final = 9  # a: bytes
SYMBOL: Final = 10
DECIMAL: Final = 11  # a: bytes, -1 for as few as it takes; b: address of the bounds
LIST: Final = 12  # a: level of its items; b: first instruction after it
LIST_END: Final = 13

# A column: its level, addresses of validity (0: no nulls), data and offsets.
COLUMN: Final = 4
_LEVEL: Final = 0
_VALID: Final = 1
_DATA: Final = 2
_OFFSETS: Final = 3

FINE: Final = 0
IS_NULL: Final = 1
NO_SYMBOL: Final = 2
WRONG_SIZE: Final = 3
TOO_LARGE: Final = 4


@inline
def _byte(high: int, low: int, place: int) -> int:
    """Return a byte of a number of 128 bits; place 0 is the lowest one."""
    return (low >> (place * 8)) & 255 if place < 8 else (high >> ((place - 8) * 8)) & 255


@inline
def _decimal(target: int, source: int, size: int, bounds: int) -> tuple[int, int]:
    """Write a number, big endian; returns its error and the position after it."""
    low, high = load64(source), load64(source + 8)
    if not below(high, low, load64(bounds), load64(bounds + 8)):
        return TOO_LARGE, target
    if not below(load64(bounds + 16), load64(bounds + 24), high, low):
        return TOO_LARGE, target
    sign = 255 if high < 0 else 0
    needed = 16
    while needed > 1 and _byte(high, low, needed - 1) == sign and (_byte(high, low, needed - 2) >> 7) == (sign >> 7):
        needed -= 1
    if size < 0:
        target = write_varint(target, needed)
        size = needed
    elif needed > size:
        return TOO_LARGE, target
    for index in range(size):
        place = size - 1 - index
        store8(target + index, _byte(high, low, place) if place < 16 else sign)
    return FINE, target + size


@inline
def _write_record(program: Any, columns: Any, rows: Any, position: int) -> tuple[int, int, int]:
    """Write one record; returns the position after it, its error and the instruction."""
    pc = 0
    while True:
        at = pc
        op, column, a, b = program[pc, 0], program[pc, 1], program[pc, 2], program[pc, 3]
        pc += 1
        row = rows[columns[column, _LEVEL], 0] if column >= 0 else 0
        if op == END:
            return position, FINE, at
        if op == CONSTANT:
            copy(position, a, b)
            position += b
        elif op in (NULLABLE, REQUIRED):
            valid = columns[column, _VALID]
            if valid != 0 and load8(valid + row) == 0:
                if op == REQUIRED:
                    return position, IS_NULL, at
                position = write_varint(position, a)
                pc = program[at, 4]
            elif op == NULLABLE:
                position = write_varint(position, b)
        elif op == INT:
            value = load64(columns[column, _DATA] + row * 8)
            position = write_varint(position, value // a if a != 1 else value)
        elif op == BOOL:
            store8(position, load64(columns[column, _DATA] + row * 8))
            position += 1
        elif op == FLOAT:
            store_float(position, load_double(columns[column, _DATA] + row * 8))
            position += 4
        elif op == DOUBLE:
            store_double(position, load_double(columns[column, _DATA] + row * 8))
            position += 8
        elif op in (BYTES, FIXED):
            start = load64(columns[column, _OFFSETS] + row * 8)
            size = load64(columns[column, _OFFSETS] + row * 8 + 8) - start
            if op == BYTES:
                position = write_varint(position, size)
            elif size != a:
                return position, WRONG_SIZE, at
            copy(position, columns[column, _DATA] + start, size)
            position += size
        elif op == SYMBOL:
            value = load64(columns[column, _DATA] + row * 8)
            if value < 0:
                return position, NO_SYMBOL, at
            position = write_varint(position, value)
        elif op == DECIMAL:
            wrong, position = _decimal(position, columns[column, _DATA] + row * 16, a, b)
            if wrong != FINE:
                return position, wrong, at
        else:
            if op == LIST:
                start = load64(columns[column, _OFFSETS] + row * 8)
                end = load64(columns[column, _OFFSETS] + row * 8 + 8)
                rows[a, 0] = start
                rows[a, 1] = end
                rows[a, 2] = pc
                if end > start:
                    position = write_varint(position, end - start)
            else:
                rows[a, 0] += 1
                pc = rows[a, 2]
            if rows[a, 0] >= rows[a, 1]:
                store8(position, 0)
                position += 1
                pc = b


@kernel("int64(int64[:, ::1], int64[:, ::1], int64[:, ::1], uint8[::1], int64, int64[::1], int64[::1])")
def write_rows(program: Any, columns: Any, rows: Any, left_out: Any, target: int, offsets: Any, wrong: Any) -> int:
    """Write a record a row; returns the first row that cannot be written, or -1.

    ``rows`` has of each level the item, the end of the items, and the first instruction of an item. ``left_out`` is a
    byte a row, 1 for an empty value, or empty. ``wrong`` gets an error and its instruction.
    """
    position = target
    for row in range(len(offsets) - 1):
        if len(left_out) == 0 or left_out[row] == 0:
            rows[0, 0] = row
            position, what, at = _write_record(program, columns, rows, position)
            if what != FINE:
                wrong[0] = what
                wrong[1] = at
                return row
        offsets[row + 1] = position - target
    return -1
