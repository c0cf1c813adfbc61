"""The compiled loop that puts JSON values on lines, so that one call of a parser reads them all.

``pyarrow.json`` reads a stream of objects and does not return where each was. It skips empty lines, reads two objects
in one line as two rows, and ends the process on a bare ``null`` (pyarrow 26). So each value is checked first: it must
be exactly one balanced object.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparkrelay.records._native import copy, inline, kernel, load8, store8
from sparkrelay.records.json.search import high_bits, is_space, only_space, special_in_string

MAX_DEPTH: Final = 500
"""Deeper records are bad, as with Jackson 3: readers recurse, and no sender may exhaust a stack. Half of Python's own
limit, so that ``json`` reads it on top of any ordinary stack."""

# Classes of bytes in the search for the end of an object.
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
# NaN and Infinity: the parser takes more forms of them, so they are read one by one.
_MEANING[[ord("N"), ord("I")]] = _REFUSED
_MEANING[ord('"')] = _QUOTE
_MEANING[ord("\\")] = _BACKSLASH


@inline
def _object_end(position: int, end: int) -> int:
    """Return the end of the object that starts here, -1 if it is not one; newlines between tokens become blanks."""
    depth = 0
    while position < end:
        byte = load8(position)
        position += 1
        meaning = _MEANING[byte]
        if meaning == _PLAIN:
            continue
        if meaning == _QUOTE:
            while True:
                position = special_in_string(position, end)
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
                return position if only_space(position, end) else -1
        elif meaning == _NEWLINE:
            store8(position - 1, 32)
        else:
            return -1
    return -1


@kernel("int64(int64, int64[::1], uint8[::1], int64, int64[::1], uint8[::1])")
def join_objects(address: int, offsets: Any, valid: Any, target: int, starts: Any, suspect: Any) -> int:
    """Write each value as one line; returns 1 if any byte is not ASCII.

    A null becomes ``{}``. So does a value that is not exactly one balanced object, which is marked as suspect. Strings
    are scanned as by a JSON parser: one that accepts all lines finds exactly one object in each, and rows cannot shift.
    """
    position = target
    high = 0
    for row in range(len(suspect)):
        starts[row] = position - target
        after = -1
        if len(valid) == 0 or valid[row] != 0:
            begin = address + offsets[row]
            end = address + offsets[row + 1]
            while begin < end and is_space(load8(begin)):
                begin += 1
            if begin < end and load8(begin) == 123:
                copy(position, begin, end - begin)
                after = _object_end(position, position + end - begin)
            if after < 0:
                suspect[row] = 1
            else:
                high |= high_bits(position, after)
        if after < 0:
            store8(position, 123)
            store8(position + 1, 125)
            after = position + 2
        store8(after, 10)
        position = after + 1
    starts[len(suspect)] = position - target
    return 1 if high != 0 else 0
