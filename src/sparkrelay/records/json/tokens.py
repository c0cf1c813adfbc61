"""The tokens of JSON, by strict rules: strings, numbers, literals, and any value to skip."""

from __future__ import annotations

from typing import Final

from sparkrelay.records._native import inline, load8, store8, strtod
from sparkrelay.records.json.search import is_space, special_in_string

_MAX_NESTING: Final = 62
_QUOTE: Final = 34
_BACKSLASH: Final = 92
_EXACT_MANTISSA: Final = 1 << 53


@inline
def skip_space(position: int, end: int) -> int:
    """Return the position after whitespace."""
    while position < end and is_space(load8(position)):
        position += 1
    return position


@inline
def _hex4(position: int, end: int) -> int:
    """Return the number of four hexadecimal digits, or -1."""
    if end - position < 4:
        return -1
    value = 0
    for index in range(4):
        byte = load8(position + index)
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 65 <= byte <= 70:
            digit = byte - 55
        elif 97 <= byte <= 102:
            digit = byte - 87
        else:
            return -1
        value = (value << 4) | digit
    return value


@inline
def string_end(position: int, end: int) -> tuple[int, bool]:
    """Return the position after a string's closing quote, -1 if there is none, and whether it has escapes."""
    escaped = False
    while True:
        position = special_in_string(position, end)
        if position >= end:
            return -1, False
        byte = load8(position)
        if byte == _QUOTE:
            return position + 1, escaped
        if byte != _BACKSLASH or position + 1 >= end:
            return -1, False
        escaped = True
        byte = load8(position + 1)
        if byte == 117:
            if _hex4(position + 2, end) < 0:
                return -1, False
            position += 6
        elif byte in (34, 92, 47, 98, 102, 110, 114, 116):
            position += 2
        else:
            return -1, False


@inline
def _write_utf8(target: int, point: int) -> int:
    if point < 0x80:
        store8(target, point)
        return target + 1
    if point < 0x800:
        store8(target, 0xC0 | (point >> 6))
        store8(target + 1, 0x80 | (point & 63))
        return target + 2
    if point < 0x10000:
        store8(target, 0xE0 | (point >> 12))
        store8(target + 1, 0x80 | ((point >> 6) & 63))
        store8(target + 2, 0x80 | (point & 63))
        return target + 3
    store8(target, 0xF0 | (point >> 18))
    store8(target + 1, 0x80 | ((point >> 12) & 63))
    store8(target + 2, 0x80 | ((point >> 6) & 63))
    store8(target + 3, 0x80 | (point & 63))
    return target + 4


@inline
def unescape(target: int, position: int, end: int) -> int:
    """Write the text of a string that was checked; returns -1 for an unpaired surrogate."""
    while position < end:
        byte = load8(position)
        if byte != _BACKSLASH:
            store8(target, byte)
            target += 1
            position += 1
            continue
        byte = load8(position + 1)
        position += 2
        if byte == 117:
            point = _hex4(position, end)
            position += 4
            if 0xD800 <= point <= 0xDFFF:
                if point > 0xDBFF or end - position < 6 or load8(position) != _BACKSLASH or load8(position + 1) != 117:
                    return -1
                second = _hex4(position + 2, end)
                if second < 0xDC00 or second > 0xDFFF:
                    return -1
                position += 6
                point = 0x10000 + ((point - 0xD800) << 10) + second - 0xDC00
            target = _write_utf8(target, point)
            continue
        if byte == 98:
            byte = 8
        elif byte == 102:
            byte = 12
        elif byte == 110:
            byte = 10
        elif byte == 114:
            byte = 13
        elif byte == 116:
            byte = 9
        store8(target, byte)
        target += 1
    return target


@inline
def number(position: int, end: int) -> tuple[int, int, int, bool]:
    """Read a number; returns the position after it (-1: none), digits, power of ten, and whether it is whole.

    Digits are -1 if there are too many for exact arithmetic in 64 bits.
    """
    digits, power, count = 0, 0, 0
    if position < end and load8(position) == 45:
        position += 1
    start = position
    while position < end and 48 <= load8(position) <= 57:
        if count < 18:
            digits = digits * 10 + load8(position) - 48
        count += 1
        position += 1
    if count == 0 or (count > 1 and load8(start) == 48):
        return -1, 0, 0, False
    whole = True
    if position < end and load8(position) == 46:
        whole = False
        position += 1
        start = position
        while position < end and 48 <= load8(position) <= 57:
            if count < 18:
                digits = digits * 10 + load8(position) - 48
            count += 1
            power -= 1
            position += 1
        if position == start:
            return -1, 0, 0, False
    if position < end and load8(position) | 32 == 101:
        whole = False
        position += 1
        sign = 1
        if position < end and load8(position) in (43, 45):
            sign = -1 if load8(position) == 45 else 1
            position += 1
        start = position
        exponent = 0
        while position < end and 48 <= load8(position) <= 57:
            if exponent < 100_000:
                exponent = exponent * 10 + load8(position) - 48
            position += 1
        if position == start:
            return -1, 0, 0, False
        power += sign * exponent
    return position, digits if count <= 18 else -1, power, whole


@inline
def double(position: int, digits: int, power: int) -> float:
    """Return the double nearest to a number, by C where two exact doubles and one rounding are not enough."""
    if digits < 0 or digits >= _EXACT_MANTISSA or power < -22 or power > 22:
        return strtod(position, 0)  # type: ignore[no-any-return]
    factor = 1.0
    for _ in range(abs(power)):
        factor *= 10.0
    value = digits / factor if power < 0 else digits * factor
    return -value if load8(position) == 45 else value


@inline
def literal_end(position: int, end: int) -> int:
    """Return the position after null, true or false, or -1."""
    if end - position >= 4:
        word = load8(position) | load8(position + 1) << 8 | load8(position + 2) << 16 | load8(position + 3) << 24
        if word in (0x6C6C756E, 0x65757274):
            return position + 4
        if word == 0x736C6166 and end - position >= 5 and load8(position + 4) == 101:
            return position + 5
    return -1


@inline
def skip_value(position: int, end: int) -> int:
    """Return the position after any value, checked in full, or -1."""
    # A bit a level, 1 for an object; the lowest is the innermost.
    levels, depth = 0, 0
    while True:
        position = skip_space(position, end)
        if position >= end:
            return -1
        byte = load8(position)
        if byte in (123, 91):
            if depth == _MAX_NESTING:
                return -1
            levels = (levels << 1) | (1 if byte == 123 else 0)
            depth += 1
            position = skip_space(position + 1, end)
            if position >= end:
                return -1
            if load8(position) != (125 if byte == 123 else 93):
                if byte == 123:
                    position = _skip_name(position, end)
                    if position < 0:
                        return -1
                continue
            position += 1
            levels >>= 1
            depth -= 1
        elif byte == _QUOTE:
            position, _ = string_end(position + 1, end)
        elif byte == 45 or 48 <= byte <= 57:
            position, _, _, _ = number(position, end)
        else:
            position = literal_end(position, end)
        if position < 0:
            return -1
        # After a value: close what ends here, or continue with the next one.
        while depth > 0:
            position = skip_space(position, end)
            if position >= end:
                return -1
            byte = load8(position)
            position += 1
            if byte == 44:
                if levels & 1:
                    position = _skip_name(skip_space(position, end), end)
                    if position < 0:
                        return -1
                break
            if byte != (125 if levels & 1 else 93):
                return -1
            levels >>= 1
            depth -= 1
        if depth == 0:
            return position


@inline
def _skip_name(position: int, end: int) -> int:
    """Return the position after a field's name and its colon, or -1."""
    if position >= end or load8(position) != _QUOTE:
        return -1
    position, _ = string_end(position + 1, end)
    if position < 0:
        return -1
    position = skip_space(position, end)
    return position + 1 if position < end and load8(position) == 58 else -1
