"""ISO-8601 dates and timestamps: text to numbers and back, in compiled loops.

Arrow's own casts refuse a column in which only some texts have a zone, as in JSON from several producers. Text without
a zone is UTC: a stream is read on many machines and must not depend on their zones.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sparkrelay.records._native import inline, kernel, load8, store8

if TYPE_CHECKING:
    from sparkrelay.records.arrow_buffers import BinaryColumn

_MICROS_A_DAY = 86_400_000_000
#: Days from 1970 whose microseconds fit in 64 bits.
_MOST_DAYS = 106_751_990


def parse_timestamps(
    texts: BinaryColumn, rows: int, *, zone_allowed: bool
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Read ``2013-01-01T05:00:00.123456+01:00``; time, seconds, fraction and zone may be missing, T may be a space.

    Years beyond four digits, and those before the year 0, have a sign, as :func:`write_date` writes them.

    Returns:
        Microseconds since 1970 in UTC, and whether each row is readable (nulls are).
    """
    micros, readable = np.zeros(rows, np.int64), np.ones(rows, np.uint8)
    _parse(texts.address, texts.offsets, texts.valid, zone_allowed, False, micros, readable)
    return micros, readable.view(np.bool_)


def parse_dates(
    texts: BinaryColumn, rows: int
) -> tuple[np.ndarray[Any, np.dtype[np.int32]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Read ``2013-01-01``.

    Returns:
        Days since 1970, and whether each row is readable (nulls are).
    """
    days, readable = np.zeros(rows, np.int64), np.ones(rows, np.uint8)
    _parse(texts.address, texts.offsets, texts.valid, False, True, days, readable)
    return days.astype(np.int32), readable.view(np.bool_)


@inline
def _digits(position: int, end: int, count: int) -> int:
    if end - position < count:
        return -1
    value = 0
    for index in range(count):
        digit = load8(position + index) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@inline
def _days_in_month(year: int, month: int) -> int:
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@inline
def _days_from_civil(year: int, month: int, day: int) -> int:
    # Years that start in March have their leap day at the end.
    if month <= 2:
        year -= 1
        month += 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5 + day - 1 - 719_468


@inline
def _civil_from_days(days: int) -> tuple[int, int, int]:
    days += 719_468
    era = days // 146_097
    day_of_era = days - era * 146_097
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month + 2) // 5 + 1
    year = year_of_era + era * 400
    if month >= 10:
        return year + 1, month - 9, day
    return year, month + 3, day


@inline
def _zone(position: int, end: int) -> int:
    """Return the minutes that a zone is ahead of UTC; 10,000 if it is not a zone."""
    sign = load8(position)
    if sign in (90, 122):
        return 0 if position + 1 == end else 10_000
    if sign not in (43, 45):
        return 10_000
    hours = _digits(position + 1, end, 2)
    position += 3
    minutes = 0
    if position < end:
        if load8(position) == 58:
            position += 1
        minutes = _digits(position, end, 2)
        position += 2
    if hours < 0 or hours > 18 or minutes < 0 or minutes > 59 or position != end:
        return 10_000
    return hours * 60 + minutes if sign == 43 else -(hours * 60 + minutes)


@inline
def parse_one(position: int, end: int, zone_allowed: bool, date_only: bool) -> tuple[bool, int]:
    """Read one text; returns whether it is readable, and microseconds or, of a date, days since 1970."""
    sign, width = 1, 4
    if position < end and load8(position) in (43, 45):
        sign = 44 - load8(position)
        position += 1
        while width < 6 and position + width < end and load8(position + width) != 45:
            width += 1
    year = _digits(position, end, width)
    position += width - 4
    month, day = _digits(position + 5, end, 2), _digits(position + 8, end, 2)
    if year < 0 or month < 1 or month > 12 or day < 1 or day > _days_in_month(year, month):
        return False, 0
    if load8(position + 4) != 45 or load8(position + 7) != 45:
        return False, 0
    days = _days_from_civil(sign * year, month, day)
    position += 10
    if date_only:
        return position == end, days
    if abs(days) > _MOST_DAYS:
        return False, 0
    if position == end:
        return True, days * _MICROS_A_DAY
    if load8(position) not in (84, 116, 32) or end - position < 6 or load8(position + 3) != 58:
        return False, 0
    hour, minute, second, micros = _digits(position + 1, end, 2), _digits(position + 4, end, 2), 0, 0
    position += 6
    if position < end and load8(position) == 58:
        second = _digits(position + 1, end, 2)
        position += 3
        if position < end and load8(position) in (46, 44):
            position += 1
            digits = 0
            while position < end and 48 <= load8(position) <= 57:
                if digits < 6:
                    micros = micros * 10 + load8(position) - 48
                digits += 1
                position += 1
            if digits == 0 or digits > 9:
                return False, 0
            while digits < 6:
                micros *= 10
                digits += 1
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59 or position > end:
        return False, 0
    ahead = 0
    if position < end:
        if not zone_allowed:
            return False, 0
        ahead = _zone(position, end)
        if ahead == 10_000:
            return False, 0
    seconds = hour * 3600 + minute * 60 + second - ahead * 60
    return True, days * _MICROS_A_DAY + seconds * 1_000_000 + micros


@kernel("void(int64, int64[::1], uint8[::1], boolean, boolean, int64[::1], uint8[::1])")
def _parse(
    address: int, offsets: Any, valid: Any, zone_allowed: bool, date_only: bool, numbers: Any, readable: Any
) -> None:
    for row in range(len(numbers)):
        if len(valid) > 0 and valid[row] == 0:
            continue
        good, number = parse_one(address + offsets[row], address + offsets[row + 1], zone_allowed, date_only)
        numbers[row] = number
        readable[row] = 1 if good else 0


@inline
def _write_digits(position: int, value: int, count: int) -> int:
    for index in range(count - 1, -1, -1):
        store8(position + index, 48 + value % 10)
        value //= 10
    return position + count


@inline
def write_date(position: int, days: int) -> int:
    """Write ``2013-01-01``, at most 14 bytes; years beyond four digits get a sign, as Java writes them."""
    year, month, day = _civil_from_days(days)
    if year < 0 or year > 9999:
        store8(position, 45 if year < 0 else 43)
        position += 1
        year = abs(year)
    position = _write_digits(position, year, 4 if year <= 9999 else (5 if year <= 99_999 else 6))
    store8(position, 45)
    position = _write_digits(position + 1, month, 2)
    store8(position, 45)
    return _write_digits(position + 1, day, 2)


@inline
def write_timestamp(position: int, micros: int, zoned: bool) -> int:
    """Write ``2013-01-01T05:00:00.123Z``, at most 28 bytes, truncated to milliseconds."""
    days = micros // _MICROS_A_DAY
    rest = (micros - days * _MICROS_A_DAY) // 1000
    position = write_date(position, days)
    store8(position, 84)
    position = _write_digits(position + 1, rest // 3_600_000, 2)
    store8(position, 58)
    position = _write_digits(position + 1, rest // 60_000 % 60, 2)
    store8(position, 58)
    position = _write_digits(position + 1, rest // 1000 % 60, 2)
    store8(position, 46)
    position = _write_digits(position + 1, rest % 1000, 3)
    if zoned:
        store8(position, 90)
        position += 1
    return position
