"""Searching the bytes of JSON, shared by the loops that read it."""

from __future__ import annotations

from typing import Final

import numpy as np

from sparkrelay.records._native import inline, load8, load64, lowest_bit

_ONES: Final = 0x0101010101010101
_HIGH_BITS: Final = -0x7F7F7F7F7F7F7F80  # 0x8080808080808080 as a signed number

# Bytes that end a string or cannot be in one.
_IN_STRING = np.zeros(256, np.uint8)
_IN_STRING[:32] = 1
_IN_STRING[[ord('"'), ord("\\")]] = 1


@inline
def is_space(byte: int) -> bool:
    """Return whether a byte is whitespace in JSON."""
    return byte in (32, 10, 13, 9)


@inline
def special_in_string(position: int, end: int) -> int:
    """Return the position of the next quote, backslash or control byte; ``end`` if there is none."""
    while position + 8 <= end:
        word = load64(position)
        # Eight bytes at once: the subtraction sets the high bit of bytes that are too small for it.
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
def only_space(position: int, end: int) -> bool:
    """Return whether the rest is whitespace."""
    while position < end:
        if not is_space(load8(position)):
            return False
        position += 1
    return True


@inline
def high_bits(position: int, end: int) -> int:
    """Return 0 if all bytes are ASCII."""
    high = 0
    while position + 8 <= end:
        high |= load64(position)
        position += 8
    while position < end:
        high |= load8(position)
        position += 1
    return high & _HIGH_BITS


@inline
def valid_utf8(position: int, end: int) -> bool:
    """Return whether bytes are UTF-8: shortest forms only, no surrogates, nothing above U+10FFFF."""
    while position < end:
        byte = load8(position)
        position += 1
        if byte < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            if byte == 0xE0:
                low = 0xA0
            elif byte == 0xED:
                high = 0x9F
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            if byte == 0xF0:
                low = 0x90
            elif byte == 0xF4:
                high = 0x8F
        else:
            return False
        for _ in range(more):
            if position >= end or load8(position) < low or load8(position) > high:
                return False
            position += 1
            low, high = 0x80, 0xBF
    return True
