"""The compiled loop that reads Avro by the instructions that ``program`` makes of two schemas, one a value.

It stores addresses of texts and lengths of lists, from which ``nested_columns`` makes Arrow columns. Every length
and count is compared with the remaining bytes before it is used. Nested lists have frames on a stack, not recursion.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

from sparkrelay.records._native import (
    inline,
    kernel,
    load8,
    load64,
    load_double,
    load_float,
    read_varlong,
    store8,
    store64,
    store_double,
)
from sparkrelay.records.cells import CELLS_A_BYTE, FREE_CELLS, cells_since
from sparkrelay.records.json.search import high_bits, valid_utf8

# An instruction: operation, column (-1: none), two arguments.
WIDTH: Final = 4
END: Final = 0
INT: Final = 1  # a: 1 for 32 bits; b: its factor
INT_TO_DOUBLE: Final = 2
BOOL: Final = 3
FLOAT: Final = 4
DOUBLE: Final = 5
TEXT: Final = 6
BYTES: Final = 7
FIXED: Final = 8  # a: bytes
ENUM: Final = 9  # a: symbols; b: address of an address and a size each, the address 0 where the reader has none
DECIMAL: Final = 10  # a: bytes, -1 if their number precedes them; b: address of the bounds
SKIP_INT: Final = 11
SKIP_FIXED: Final = 12  # a: bytes
SKIP_BYTES: Final = 13
UNION: Final = 14  # a: branches; b: address of their first instructions
JUMP: Final = 15  # a: to
NULL: Final = 16
VALID: Final = 17
LIST: Final = 18  # a: level of its items, -1 to skip them; b: first instruction after it
LIST_END: Final = 19
CONSTANT: Final = 20  # a: address; b: size
CONSTANT_END: Final = 21
FAIL: Final = 22

# A column: its level (0: rows; each kind of list has its own), addresses of validity, data, lengths (0: none).
COLUMN: Final = 4
_LEVEL: Final = 0
_VALID: Final = 1
_DATA: Final = 2
_LENGTHS: Final = 3

# Errors of a record.
FINE: Final = 0
ENDS: Final = 1
NO_NUMBER: Final = 2
TOO_LARGE: Final = 3
NO_TEXT: Final = 4
NO_BOOLEAN: Final = 5
NO_BRANCH: Final = 6
NO_SYMBOL: Final = 7
TOO_LONG: Final = 8
TOO_MANY: Final = 9
GOES_ON: Final = 10
UNWANTED_BRANCH: Final = 11
TOO_WIDE: Final = 12  # with the number of cells instead of an instruction

FRAME: Final = 4
_BODY: Final = 0
_LEFT: Final = 1
_COUNT: Final = 2
_LIST: Final = 3

_INT32: Final = 1 << 31
_LOWEST: Final = -0x8000000000000000
_LARGEST: Final = 0x7FFFFFFFFFFFFFFF


@inline
def below(high: int, low: int, other_high: int, other_low: int) -> bool:
    """Compare two numbers of 128 bits."""
    return high < other_high or (high == other_high and (low ^ _LOWEST) < (other_low ^ _LOWEST))


@inline
def _decimal(target: int, position: int, size: int, bounds: int, write: bool) -> int:
    """Store a big-endian number; returns its error."""
    if size < 1:
        return NO_NUMBER
    sign = -1 if load8(position) >= 128 else 0
    high, low = sign, sign
    for index in range(size):
        byte = load8(position + index)
        if index < size - 16:
            if byte != (sign & 255):
                return TOO_LARGE
            continue
        if index == size - 16 and (byte >= 128) != (sign != 0):
            return TOO_LARGE
        high = (high << 8) | ((low >> 56) & 255)
        low = (low << 8) | byte
    if not below(high, low, load64(bounds), load64(bounds + 8)):
        return TOO_LARGE
    if not below(load64(bounds + 16), load64(bounds + 24), high, low):
        return TOO_LARGE
    if write:
        store64(target, low)
        store64(target + 8, high)
    return FINE


@inline
def _read_record(
    program: Any, columns: Any, filled: Any, stack: Any, position: int, end: int, write: bool
) -> tuple[int, int]:
    """Read one record; returns its error and the instruction."""
    pc, depth = 0, 0
    outer_position, outer_end = 0, 0
    while True:
        at = pc
        op, column, a, b = program[pc, 0], program[pc, 1], program[pc, 2], program[pc, 3]
        pc += 1
        index = filled[columns[column, _LEVEL]] if column >= 0 else 0
        block = False
        if op == END:
            return (FINE if position == end else GOES_ON), at
        if op in (INT, INT_TO_DOUBLE, SKIP_INT, ENUM, UNION):
            value, position = read_varlong(position, end)
            if position < 0:
                return NO_NUMBER, at
            if op == INT:
                if a == 1 and not -_INT32 <= value < _INT32:
                    return TOO_LARGE, at
                if b != 1:
                    if not -(_LARGEST // b) <= value <= _LARGEST // b:
                        return TOO_LARGE, at
                    value *= b
                if write:
                    store64(columns[column, _DATA] + index * 8, value)
                    store8(columns[column, _VALID] + index, 1)
            elif op == UNION:
                if not 0 <= value < a:
                    return NO_BRANCH, at
                pc = load64(b + value * 8)
            elif op == ENUM:
                if not 0 <= value < a:
                    return NO_SYMBOL, at
                symbol = load64(b + value * 16)
                if symbol == 0:
                    return NO_SYMBOL, at
                if write:
                    store64(columns[column, _DATA] + index * 8, symbol)
                    store64(columns[column, _LENGTHS] + index * 8, load64(b + value * 16 + 8))
                    store8(columns[column, _VALID] + index, 1)
            elif op == INT_TO_DOUBLE:
                if a == 1 and not -_INT32 <= value < _INT32:
                    return TOO_LARGE, at
                if write:
                    store_double(columns[column, _DATA] + index * 8, float(value))
                    store8(columns[column, _VALID] + index, 1)
        elif op in (TEXT, BYTES, FIXED, DECIMAL, SKIP_FIXED, SKIP_BYTES):
            size = a
            if op in (TEXT, BYTES, SKIP_BYTES) or a < 0:
                size, position = read_varlong(position, end)
                if position < 0:
                    return NO_NUMBER, at
            if not 0 <= size <= end - position:
                return TOO_LONG, at
            if op == TEXT and high_bits(position, position + size) != 0 and not valid_utf8(position, position + size):
                return NO_TEXT, at
            if op == DECIMAL:
                wrong = _decimal(columns[column, _DATA] + index * 16, position, size, b, write)
                if wrong != FINE:
                    return wrong, at
                if write:
                    store8(columns[column, _VALID] + index, 1)
            elif write and column >= 0:
                store64(columns[column, _DATA] + index * 8, position)
                store64(columns[column, _LENGTHS] + index * 8, size)
                store8(columns[column, _VALID] + index, 1)
            position += size
        elif op in (FLOAT, DOUBLE):
            size = 4 if op == FLOAT else 8
            if size > end - position:
                return ENDS, at
            if write:
                number = load_float(position) if op == FLOAT else load_double(position)
                store_double(columns[column, _DATA] + index * 8, number)
                store8(columns[column, _VALID] + index, 1)
            position += size
        elif op == BOOL:
            if position >= end:
                return ENDS, at
            byte = load8(position)
            if byte > 1:
                return NO_BOOLEAN, at
            if write:
                store64(columns[column, _DATA] + index * 8, byte)
                store8(columns[column, _VALID] + index, 1)
            position += 1
        elif op == JUMP:
            pc = a
        elif op == NULL:
            if write:
                store8(columns[column, _VALID] + index, 0)
                if columns[column, _LENGTHS] != 0:
                    store64(columns[column, _LENGTHS] + index * 8, 0)
        elif op == VALID:
            if write:
                store8(columns[column, _VALID] + index, 1)
        elif op == LIST:
            stack[depth, _BODY] = pc
            stack[depth, _LEFT] = 0
            stack[depth, _COUNT] = 0
            stack[depth, _LIST] = at
            depth += 1
            block = True
        elif op == LIST_END:
            level = program[stack[depth - 1, _LIST], 2]
            if level >= 0:
                filled[level] += 1
            stack[depth - 1, _COUNT] += 1
            stack[depth - 1, _LEFT] -= 1
            pc = stack[depth - 1, _BODY]
            block = stack[depth - 1, _LEFT] == 0
        elif op == CONSTANT:
            outer_position, outer_end = position, end
            position, end = a, a + b
        elif op == CONSTANT_END:
            position, end = outer_position, outer_end
        else:
            return UNWANTED_BRANCH, at
        while block:
            at = stack[depth - 1, _LIST]
            count, position = read_varlong(position, end)
            if position < 0:
                return NO_NUMBER, at
            size = -1
            if count < 0:
                size, position = read_varlong(position, end)
                if position < 0:
                    return NO_NUMBER, at
                if not 0 <= size <= end - position:
                    return TOO_LONG, at
                count = -count
            # An item takes a byte or more. The lowest number is its own negative.
            if count < 0 or count > end - position:
                return TOO_MANY, at
            column = program[at, 1]
            if count == 0:
                depth -= 1
                pc = program[at, 3]
                block = False
                if write and column >= 0:
                    index = filled[columns[column, _LEVEL]]
                    store64(columns[column, _LENGTHS] + index * 8, stack[depth, _COUNT])
                    store8(columns[column, _VALID] + index, 1)
            elif column < 0 and size >= 0:
                position += size
            else:
                stack[depth - 1, _LEFT] = count
                pc = stack[depth - 1, _BODY]
                block = False


@kernel(
    "void(int64, int64[::1], uint8[::1], int64, int64[:, ::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], "
    "int64[:, ::1], int64[:, ::1], boolean)"
)
def read_rows(
    address: int, offsets: Any, valid: Any, prefix: int, program: Any, columns: Any, widths: Any, filled: Any,
    marks: Any, stack: Any, errors: Any, write: bool,
) -> None:  # fmt: skip
    """Read a record a row.

    Args:
        address: of the values.
        offsets: of the values.
        valid: a byte a row; empty if none is null.
        prefix: bytes of each value before the record.
        program: the instructions.
        columns: the targets.
        widths: the number of columns of each level.
        filled: gets the number of items of each level; all 0.
        marks: room for a copy of ``filled``.
        stack: room for frames.
        errors: gets the error of each row, and its instruction. Such rows are null. Rows that already have an error
            are skipped: with lists a first pass, which only counts, finds them, and reserves no room for their items.
        write: False to count only.
    """
    for row in range(len(errors)):
        filled[0] = row
        for level in range(1, len(filled)):
            marks[level] = filled[level]
        good = errors[row, 0] == FINE and (len(valid) == 0 or valid[row] != 0)
        if good:
            begin, end = address + offsets[row] + prefix, address + offsets[row + 1]
            wrong, at = ENDS, 0
            if begin <= end:
                wrong, at = _read_record(program, columns, filled, stack, begin, end, write)
            cells = cells_since(filled, marks, widths)
            if cells > FREE_CELLS + CELLS_A_BYTE * (end - begin):
                wrong, at = TOO_WIDE, cells
            errors[row, 0] = wrong
            errors[row, 1] = at
            good = wrong == FINE
        if good:
            continue
        for level in range(1, len(filled)):
            filled[level] = marks[level]
        if write:
            for column in range(len(columns)):
                if columns[column, _LEVEL] == 0:
                    store8(columns[column, _VALID] + row, 0)
                    if columns[column, _LENGTHS] != 0:
                        store64(columns[column, _LENGTHS] + row * 8, 0)
