"""The compiled loop that reads flat JSON objects straight into columns.

It reads common JSON: an object of wanted numbers, strings, booleans and times, with other fields of any type. It
declines a row for anything else (a field of another type, a name with an escape, a duplicate field, damage); slower
readers decide then. So it can be strict, and needs no error messages.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

from sparkrelay.records._native import copy, inline, kernel, load8, load64, store8, store64, store_double, strtod
from sparkrelay.records.json.search import high_bits, only_space, valid_utf8
from sparkrelay.records.json.tokens import double, literal_end, number, skip_space, skip_value, string_end, unescape
from sparkrelay.records.times import parse_one

# Kinds of wanted fields.
INT: Final = 0
DOUBLE: Final = 1
STRING: Final = 2
BOOL: Final = 3
TIMESTAMP: Final = 4
LOCAL_TIMESTAMP: Final = 5
DATE: Final = 6

# A wanted field: kind, address and size of its name, addresses of data, offsets and validity, and the largest value of
# an integer, or 1 for a double that becomes a float.
FIELDS: Final = 7
_KIND: Final = 0
_NAME: Final = 1
_NAME_SIZE: Final = 2
_DATA: Final = 3
_OFFSETS: Final = 4
_VALID: Final = 5
_LIMIT: Final = 6

MAX_COLUMNS: Final = 62
"""Each has a bit in the set of seen fields."""

_QUOTE: Final = 34
_INFINITE: Final = float("inf")
_FLOAT32_BOUND: Final = 3.4028235677973366e38  # from here on a number is rounded to an infinite float
_MAX_SECONDS: Final = 9_223_372_036_854


@inline
def _same(left: int, right: int, size: int) -> bool:
    index = 0
    while index < size and load8(left + index) == load8(right + index):
        index += 1
    return index == size


@inline
def _store_string(field: int, row: int, start: int, stop: int, escaped: bool) -> bool:
    used = load64(load64(field + _OFFSETS * 8) + row * 8)
    if escaped:
        after = unescape(load64(field + _DATA * 8) + used, start, stop)
        if after < 0:
            return False
        store64(load64(field + _OFFSETS * 8) + row * 8 + 8, after - load64(field + _DATA * 8))
    else:
        copy(load64(field + _DATA * 8) + used, start, stop - start)
        store64(load64(field + _OFFSETS * 8) + row * 8 + 8, used + stop - start)
    return True


@inline
def _read_string(field: int, row: int, position: int, end: int) -> int:
    """Store a string as text or as a time; returns the position after it, or -1."""
    after, escaped = string_end(position + 1, end)
    if after < 0:
        return -1
    kind = load64(field + _KIND * 8)
    if kind == STRING:
        return after if _store_string(field, row, position + 1, after - 1, escaped) else -1
    if escaped or kind < TIMESTAMP:
        return -1
    good, moment = parse_one(position + 1, after - 1, kind == TIMESTAMP, kind == DATE)
    store64(load64(field + _DATA * 8) + row * 8, moment)
    return after if good else -1


@inline
def _read_number(field: int, row: int, position: int, end: int) -> int:
    """Store a number; returns the position after it, or -1."""
    after, digits, power, whole = number(position, end)
    # C reads on until a byte ends the number.
    if after < 0 or after >= end:
        return -1
    kind = load64(field + _KIND * 8)
    if kind == DOUBLE:
        value = double(position, digits, power)
        if not abs(value) < (_FLOAT32_BOUND if load64(field + _LIMIT * 8) == 1 else _INFINITE):
            return -1
        store_double(load64(field + _DATA * 8) + row * 8, value)
        return after
    if not whole or digits < 0 or kind in (STRING, BOOL):
        return -1
    if load8(position) == 45:
        digits = -digits
    if kind in (TIMESTAMP, LOCAL_TIMESTAMP):
        if abs(digits) > _MAX_SECONDS:
            return -1
        digits *= 1_000_000
    elif digits > load64(field + _LIMIT * 8) or digits < -load64(field + _LIMIT * 8) - 1:
        return -1
    store64(load64(field + _DATA * 8) + row * 8, digits)
    return after


@inline
def _read_value(field: int, row: int, position: int, end: int) -> int:
    """Store the value of a wanted field; returns the position after it, or -1 to decline."""
    byte = load8(position)
    if byte == _QUOTE:
        after = _read_string(field, row, position, end)
    elif byte == 45 or 48 <= byte <= 57:
        after = _read_number(field, row, position, end)
    else:
        after = literal_end(position, end)
        if after >= 0 and byte != 110:
            if load64(field + _KIND * 8) != BOOL:
                return -1
            store64(load64(field + _DATA * 8) + row * 8, 1 if byte == 116 else 0)
        elif after >= 0:
            return after
    if after >= 0:
        store8(load64(field + _VALID * 8) + row, 1)
    return after


@inline
def _read_object(fields: int, count: int, row: int, position: int, end: int) -> bool:
    """Store the wanted fields of one object; returns False to decline."""
    seen, expected = 0, 0
    position = skip_space(position, end)
    if position >= end or load8(position) != 123:
        return False
    position = skip_space(position + 1, end)
    if position < end and load8(position) == 125:
        return only_space(position + 1, end)
    while True:
        if position >= end or load8(position) != _QUOTE:
            return False
        name = position + 1
        position, escaped = string_end(name, end)
        if position < 0 or escaped:
            return False
        size = position - 1 - name
        position = skip_space(position, end)
        if position >= end or load8(position) != 58:
            return False
        position = skip_space(position + 1, end)
        if position >= end:
            return False
        # Producers repeat the order of fields: likely it is the one after the last found.
        found = -1
        for step in range(count):
            index = expected + step
            if index >= count:
                index -= count
            if load64(fields + (index * FIELDS + _NAME_SIZE) * 8) == size and _same(
                load64(fields + (index * FIELDS + _NAME) * 8), name, size
            ):
                found = index
                break
        if found >= 0:
            if seen & (1 << found):
                return False
            seen |= 1 << found
            expected = found + 1
            position = _read_value(fields + found * FIELDS * 8, row, position, end)
        else:
            position = skip_value(position, end)
        if position < 0:
            return False
        position = skip_space(position, end)
        if position >= end:
            return False
        byte = load8(position)
        if byte == 125:
            return only_space(position + 1, end)
        if byte != 44:
            return False
        position = skip_space(position + 1, end)


@kernel("void(int64, int64[::1], uint8[::1], int64, int64, uint8[::1])")
def read_objects(address: int, offsets: Any, valid: Any, fields: int, count: int, declined: Any) -> None:
    """Read an object a row into columns whose validity is all 0; a declined row is null in all of them."""
    for row in range(len(declined)):
        for index in range(count):
            if load64(fields + (index * FIELDS + _KIND) * 8) == STRING:
                store64(
                    load64(fields + (index * FIELDS + _OFFSETS) * 8) + row * 8 + 8,
                    load64(load64(fields + (index * FIELDS + _OFFSETS) * 8) + row * 8),
                )
        if len(valid) > 0 and valid[row] == 0:
            continue
        begin = address + offsets[row]
        end = address + offsets[row + 1]
        good = _read_object(fields, count, row, begin, end)
        if good and high_bits(begin, end) != 0:
            good = valid_utf8(begin, end)
        if not good:
            declined[row] = 1
            for index in range(count):
                store8(load64(fields + (index * FIELDS + _VALID) * 8) + row, 0)
                if load64(fields + (index * FIELDS + _KIND) * 8) == STRING:
                    store64(
                        load64(fields + (index * FIELDS + _OFFSETS) * 8) + row * 8 + 8,
                        load64(load64(fields + (index * FIELDS + _OFFSETS) * 8) + row * 8),
                    )


@kernel("boolean(int64)")
def obeys_c_locale(text: int) -> bool:
    """Return whether C reads ``1.5`` with a point: the process may have set a locale with a comma."""
    return strtod(text, 0) == 1.5  # type: ignore[no-any-return]
