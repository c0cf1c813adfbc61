"""The compiled loop that puts JSON values on lines, so that one call of a parser reads them all.

``pyarrow.json`` reads a stream of objects and says nothing about where each came from. It skips empty lines, takes two
objects in one line for two rows, and ends the process on a bare ``null`` (pyarrow 26). So each value is looked at
first: it must be exactly one balanced object.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparkrelay.records._native import copy, inline, kernel, load8, load64, lowest_bit, store8

__all__ = ["MAX_DEPTH", "join_objects"]

MAX_DEPTH: Final = 500
"""Deeper nesting is refused: parsers recurse, and a stack must not be for the sender to exhaust."""

# What a byte means to the search for the end of an object.
_PLAIN: Final = 0
_OPEN: Final = 1
_SHUT: Final = 2
_QUOTE: Final = 3
_BACKSLASH: Final = 4
_NEWLINE: Final = 5
_REFUSED: Final = 6

_MEANING = np.zeros(256, np.uint8)
_MEANING[:32] = _REFUSED
_MEANING[9] = _PLAIN
_MEANING[[10, 13]] = _NEWLINE
_MEANING[[ord("{"), ord("[")]] = _OPEN
_MEANING[[ord("}"), ord("]")]] = _SHUT
# NaN and Infinity: the parser's idea of them is wider than ours, so they are read one by one.
_MEANING[[ord("N"), ord("I")]] = _REFUSED
_MEANING[ord('"')] = _QUOTE
_MEANING[ord("\\")] = _BACKSLASH

_ONES: Final = 0x0101010101010101
_HIGH_BITS: Final = -0x7F7F7F7F7F7F7F80  # 0x8080808080808080 as a signed number

# Bytes that end a string or cannot stand in one.
_IN_STRING = np.zeros(256, np.uint8)
_IN_STRING[:32] = 1
_IN_STRING[[ord('"'), ord("\\")]] = 1


@inline
def _is_space(byte: int) -> bool:
    return byte in {32, 10, 13, 9}


@inline
def _object_end(position: int, end: int) -> int:
    """Return where the one object that starts here ends, -1 if it is not one; newlines between tokens become blanks."""
    depth = 0
    while position < end:
        byte = load8(position)
        position += 1
        meaning = _MEANING[byte]
        if meaning == _PLAIN:
            continue
        if meaning == _QUOTE:
            while True:
                position = _special_in_string(position, end)
                if position >= end:
                    return -1
                byte = load8(position)
                position += 1
                if byte == 34:
                    break
                if byte == 92:
                    if position >= end or load8(position) < 32:
                        return -1
                    position += 1
                else:
                    return -1
        elif meaning == _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                return -1
        elif meaning == _SHUT:
            depth -= 1
            if depth == 0:
                return position if _only_space(position, end) else -1
        elif meaning == _NEWLINE:
            store8(position - 1, 32)
        else:
            return -1
    return -1


@inline
def _special_in_string(position: int, end: int) -> int:
    """Return where the next quote, backslash or control byte stands; ``end`` if there is none."""
    while position + 8 <= end:
        word = load64(position)
        # Eight bytes at once: subtracting makes the high bit of a byte that was too small to take it.
        quote = word ^ 0x2222222222222222
        slash = word ^ 0x5C5C5C5C5C5C5C5C
        found = (quote - _ONES) & ~quote | (slash - _ONES) & ~slash | (word - 0x2020202020202020) & ~word
        found &= _HIGH_BITS
        if found != 0:
            first: int = lowest_bit(found) >> 3
            return position + first
        position += 8
    while position < end and _IN_STRING[load8(position)] == 0:
        position += 1
    return position


@inline
def _only_space(position: int, end: int) -> bool:
    while position < end:
        if not _is_space(load8(position)):
            return False
        position += 1
    return True


@inline
def _high_bits(position: int, end: int) -> int:
    high = 0
    while position + 8 <= end:
        high |= load64(position)
        position += 8
    while position < end:
        high |= load8(position)
        position += 1
    return high & _HIGH_BITS


@kernel("int64(int64, int64[::1], uint8[::1], int64, int64[::1], uint8[::1])")
def join_objects(address: int, offsets: Any, valid: Any, target: int, starts: Any, suspect: Any) -> int:
    """Write each value as one line; returns 1 if any byte is not ASCII.

    A null becomes ``{}``. So does a value that is not exactly one balanced object, which is marked as suspect.
    Because strings are followed as a JSON parser follows them, a parser that accepts all lines must find exactly one
    object in each: rows cannot shift.
    """
    position = target
    high = 0
    for row in range(len(suspect)):
        starts[row] = position - target
        after = -1
        if len(valid) == 0 or valid[row] != 0:
            begin = address + offsets[row]
            end = address + offsets[row + 1]
            while begin < end and _is_space(load8(begin)):
                begin += 1
            if begin < end and load8(begin) == 123:
                copy(position, begin, end - begin)
                after = _object_end(position, position + end - begin)
            if after < 0:
                suspect[row] = 1
            else:
                high |= _high_bits(position, after)
        if after < 0:
            store8(position, 123)
            store8(position + 1, 125)
            after = position + 2
        store8(after, 10)
        position = after + 1
    starts[len(suspect)] = position - target
    return 1 if high != 0 else 0
