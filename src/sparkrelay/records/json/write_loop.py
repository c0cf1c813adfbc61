"""The compiled loops that write JSON from columns."""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sparkrelay.records._native import copy, inline, kernel, load8, load64, load_double, store8
from sparkrelay.records.times import write_date, write_timestamp

# Kinds of columns. STRUCT precedes its fields, CLOSE follows them.
INT: Final = 0
STRING: Final = 1
TEXT: Final = 2
FLOAT: Final = 3
BOOL: Final = 4
TIMESTAMP: Final = 5
LOCAL_TIMESTAMP: Final = 6
DATE: Final = 7
STRUCT: Final = 8
CLOSE: Final = 9
BASE64: Final = 10

# A column's description: kind, addresses of data, offsets and validity (0: no nulls), the number of descriptions inside
# a struct, address and size of the quoted name with its colon, and the address of the numbers of floats without a text.
FIELDS: Final = 8
_KIND: Final = 0
_DATA: Final = 1
_OFFSETS: Final = 2
_VALID: Final = 3
_INSIDE: Final = 4
_NAME: Final = 5
_NAME_SIZE: Final = 6
_NUMBERS: Final = 7

_ESCAPE = np.zeros(256, np.uint8)
_ESCAPE[:32] = ord("u")
for _byte, _letter in zip(b'"\\\b\f\n\r\t', b'"\\bfnrt', strict=True):
    _ESCAPE[_byte] = _letter
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8).copy()
_LITERALS = np.frombuffer(b'true false"NaN""Infinity""-Infinity"null', np.uint8).copy()
_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8).copy()


@inline
def _write_literal(position: int, first: int, size: int) -> int:
    for index in range(size):
        store8(position + index, _LITERALS[first + index])
    return position + size


@inline
def _write_int(position: int, value: int) -> int:
    if value == -9223372036854775808:
        # Its negative does not fit; write the last digit apart.
        position = _write_int_digits(position, 922337203685477580, True)
        store8(position, 56)
        return position + 1
    return _write_int_digits(position, abs(value), value < 0)


@inline
def _write_int_digits(position: int, value: int, negative: bool) -> int:
    if negative:
        store8(position, 45)
        position += 1
    digits = 1
    limit = 10
    while digits < 19 and value >= limit:
        digits += 1
        limit *= 10
    for index in range(digits - 1, -1, -1):
        rest = value // 10
        store8(position + index, 48 + value - rest * 10)
        value = rest
    return position + digits


@inline
def _write_string(position: int, source: int, size: int) -> int:
    store8(position, 34)
    position += 1
    for index in range(size):
        byte = load8(source + index)
        letter = _ESCAPE[byte]
        if letter == 0:
            store8(position, byte)
            position += 1
            continue
        store8(position, 92)
        store8(position + 1, letter)
        position += 2
        if letter == 117:
            store8(position, 48)
            store8(position + 1, 48)
            store8(position + 2, _HEX[byte >> 4])
            store8(position + 3, _HEX[byte & 15])
            position += 4
    store8(position, 34)
    return position + 1


@inline
def _write_base64(position: int, source: int, size: int) -> int:
    store8(position, 34)
    position += 1
    for index in range(0, size, 3):
        left = size - index
        bits = load8(source + index) << 16
        if left > 1:
            bits |= load8(source + index + 1) << 8
        if left > 2:
            bits |= load8(source + index + 2)
        store8(position, _ALPHABET[bits >> 18])
        store8(position + 1, _ALPHABET[(bits >> 12) & 63])
        store8(position + 2, _ALPHABET[(bits >> 6) & 63] if left > 1 else 61)
        store8(position + 3, _ALPHABET[bits & 63] if left > 2 else 61)
        position += 4
    store8(position, 34)
    return position + 1


@inline
def _short_digits(number: float) -> tuple[int, int]:
    """Return the digits of a number and its decimal places; -1 places if it takes more than four.

    A decimal of at most 15 digits that rounds to the number is its only shortest text. Most sums of money and
    measurements have one.
    """
    factor = 1.0
    for places in range(5):
        scaled = np.rint(number * factor)
        # Not a number compares false; negative zero keeps its sign only as text.
        if not abs(scaled) < 1e15 or (scaled == 0 and (places > 0 or np.signbit(number))):
            return 0, -1
        if scaled / factor == number:
            return int(scaled), places
        factor *= 10.0
    return 0, -1


@kernel("void(int64, uint8[::1])")
def find_short(address: int, short: Any) -> None:
    """Mark the doubles that the loop can write itself."""
    for row in range(len(short)):
        _, places = _short_digits(load_double(address + row * 8))
        short[row] = 1 if places >= 0 else 0


@inline
def _write_short(position: int, number: float) -> int:
    digits, places = _short_digits(number)
    if digits < 0:
        store8(position, 45)
        position += 1
        digits = -digits
    power = 1
    for _ in range(places):
        power *= 10
    position = _write_int_digits(position, digits // power, False)
    store8(position, 46)
    position += 1
    rest = digits % power
    if places == 0:
        store8(position, 48)
        return position + 1
    for index in range(places - 1, -1, -1):
        store8(position + index, 48 + rest % 10)
        rest //= 10
    return position + places


@inline
def _write_float(position: int, source: int, size: int) -> int:
    """Write Arrow's text of a float: 1 as 1.0, NaN and infinities as Spark's texts."""
    first = load8(source)
    if first == 110:
        return _write_literal(position, 10, 5)
    if first == 105:
        return _write_literal(position, 15, 10)
    if size > 1 and load8(source + 1) == 105:
        return _write_literal(position, 25, 11)
    whole = True
    for index in range(size):
        byte = load8(source + index)
        store8(position + index, byte)
        if byte in (46, 101):
            whole = False
    position += size
    if whole:
        store8(position, 46)
        store8(position + 1, 48)
        position += 2
    return position


@kernel("int64(int64, int64, int64)")
def count_escapes(address: int, first: int, last: int) -> int:
    """Count the bytes that escapes add to the text between two offsets."""
    extra = 0
    for index in range(first, last):
        letter = _ESCAPE[load8(address + index)]
        if letter != 0:
            extra += 5 if letter == 117 else 1
    return extra


@kernel("void(int64[:, ::1], int64, boolean, int64, int64[::1])")
def write_texts(leaves: Any, rows: int, braces: bool, target: int, offsets: Any) -> None:
    """Write a row as an object of its columns that are not null or, without braces, as the value of the only column."""
    position = target
    count = len(leaves)
    for row in range(rows):
        if braces:
            store8(position, 123)
            position += 1
        index = 0
        while index < count:
            leaf = leaves[index]
            kind = leaf[_KIND]
            index += 1
            if kind == CLOSE:
                store8(position, 125)
                position += 1
                continue
            if leaf[_VALID] != 0 and load8(leaf[_VALID] + row) == 0:
                index += leaf[_INSIDE]
                if leaf[_NAME_SIZE] == 0:
                    position = _write_literal(position, 36, 4)
                continue
            if leaf[_NAME_SIZE] > 0:
                # No value ends in an opening brace: one before means that this is the first field.
                if load8(position - 1) != 123:
                    store8(position, 44)
                    position += 1
                copy(position, leaf[_NAME], leaf[_NAME_SIZE])
                position += leaf[_NAME_SIZE]
            if kind == INT:
                position = _write_int(position, load64(leaf[_DATA] + row * 8))
            elif kind == BOOL:
                if load64(leaf[_DATA] + row * 8) != 0:
                    position = _write_literal(position, 0, 4)
                else:
                    position = _write_literal(position, 5, 5)
            elif kind in (TIMESTAMP, LOCAL_TIMESTAMP, DATE):
                time = load64(leaf[_DATA] + row * 8)
                store8(position, 34)
                if kind == DATE:
                    position = write_date(position + 1, time)
                else:
                    position = write_timestamp(position + 1, time, kind == TIMESTAMP)
                store8(position, 34)
                position += 1
            elif kind == STRUCT:
                store8(position, 123)
                position += 1
            else:
                start = load64(leaf[_OFFSETS] + row * 8)
                size = load64(leaf[_OFFSETS] + row * 8 + 8) - start
                if kind == STRING:
                    position = _write_string(position, leaf[_DATA] + start, size)
                elif kind == FLOAT and size == 0:
                    position = _write_short(position, load_double(leaf[_NUMBERS] + row * 8))
                elif kind == FLOAT:
                    position = _write_float(position, leaf[_DATA] + start, size)
                elif kind == BASE64:
                    position = _write_base64(position, leaf[_DATA] + start, size)
                else:
                    copy(position, leaf[_DATA] + start, size)
                    position += size
        if braces:
            store8(position, 125)
            position += 1
        offsets[row + 1] = position - target


@kernel("void(int64[::1], int64, int64[::1], int64, int64[::1], int64, int64, int64[::1])")
def join_lists(
    bounds: Any, item_address: int, item_offsets: Any, name_address: int, name_offsets: Any, brackets: int, target: int,
    offsets: Any,
) -> None:  # fmt: skip
    """Join the texts of items to lists or, with names (non-empty offsets), to objects.

    ``brackets`` is the opening byte, shifted by 8, and the closing byte.
    """
    position = target
    for row in range(len(bounds) - 1):
        store8(position, brackets >> 8)
        position += 1
        for item in range(bounds[row], bounds[row + 1]):
            if item > bounds[row]:
                store8(position, 44)
                position += 1
            if len(name_offsets) > 0:
                size = name_offsets[item + 1] - name_offsets[item]
                position = _write_string(position, name_address + name_offsets[item], size)
                store8(position, 58)
                position += 1
            size = item_offsets[item + 1] - item_offsets[item]
            copy(position, item_address + item_offsets[item], size)
            position += size
        store8(position, brackets)
        position += 1
        offsets[row + 1] = position - target
