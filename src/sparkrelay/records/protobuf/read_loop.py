"""The compiled loop that reads Protobuf messages by a table of their fields, as ``program`` makes it of a descriptor.

It stores addresses of texts and lengths of lists, from which ``nested_columns`` makes Arrow columns. Damaged and
unusual rows are only marked: Google's library reads them, and alone decides what they mean. Every length is compared
with the remaining bytes before it is used. Nested messages have frames on a stack, not recursion.

Source: Protobuf's encoding, protobuf.dev/programming-guides/encoding.
"""

# ruff: noqa: PLR0917 - numba kernels take positional arguments

from __future__ import annotations

from typing import Any, Final

from sparkrelay.records._native import (
    inline,
    kernel,
    load8,
    load64,
    load_float,
    read_unsigned,
    store8,
    store64,
    store_double,
)
from sparkrelay.records.cells import CELLS_A_BYTE, FREE_CELLS, cells_since
from sparkrelay.records.json.search import high_bits, valid_utf8

# Wire types.
VARINT: Final = 0
FIXED64: Final = 1
SIZED: Final = 2
FIXED32: Final = 5

# What a field is; those up to ENUM can be in a packed list.
INT64: Final = 0
INT32: Final = 1
UINT32: Final = 2
UINT64: Final = 3  # a decimal
SINT64: Final = 4
SINT32: Final = 5
BOOL: Final = 6
DOUBLE: Final = 7
FLOAT: Final = 8
SFIXED64: Final = 9
SFIXED32: Final = 10
WORD32: Final = 11
WORD64: Final = 12  # a decimal
ENUM: Final = 13  # a: words; b: address of a number, an address and a size each, by number
TEXT: Final = 14
BYTES: Final = 15
TIMESTAMP: Final = 16
MESSAGE: Final = 17  # a: which one
SKIP: Final = 18  # unwanted, but it replaces other members of its oneof

# A field; the fields of a message are contiguous, by number.
FIELD: Final = 8
_NUMBER: Final = 0
_WIRE: Final = 1
_OP: Final = 2
_COLUMN: Final = 3
_LIST: Final = 4  # the column of its list; -1: none
_A: Final = 5
_B: Final = 6
_ONEOF: Final = 7  # the column that notes that a member of its oneof was read; -1: none

# A column: its level (0: rows; each kind of list has its own), addresses of validity, data, lengths (0: none),
# validity, data and length of an absent field, words of eight bytes of a value.
COLUMN: Final = 8
_LEVEL: Final = 0
_VALID: Final = 1
_DATA: Final = 2
_LENGTHS: Final = 3
_DEFAULT_VALID: Final = 4
_DEFAULT_DATA: Final = 5
_DEFAULT_LENGTH: Final = 6
_WORDS: Final = 7

FRAME: Final = 4
_END: Final = 0
_OUTER: Final = 1
_HINT: Final = 2
_ITEMS: Final = 3

_WORD: Final = 0xFFFFFFFF
_SIGN: Final = 0x80000000
#: Seconds of the years 1 and 9999, and microseconds: columns have no other times.
_FIRST_SECOND: Final = -62_135_596_800
_LAST_SECOND: Final = 253_402_300_799
FIRST: Final = _FIRST_SECOND * 1_000_000
LAST: Final = _LAST_SECOND * 1_000_000 + 999_999


@inline
def _size(position: int, end: int) -> tuple[int, int]:
    """Read a size, or a tag: 32 bits without sign."""
    value, behind = read_unsigned(position, end)
    if behind - position > 5 or not 0 <= value <= _WORD:
        return 0, -1
    return value, behind


@inline
def _word(value: int) -> int:
    """Return the lower 32 bits with their sign."""
    return ((value & _WORD) ^ _SIGN) - _SIGN


@inline
def _behind(wire: int, position: int, end: int) -> int:
    """Return the end of a value; -1 if it is damaged, or of another wire type."""
    size = 0
    if wire == VARINT:
        _, position = read_unsigned(position, end)
    elif wire == SIZED:
        size, position = _size(position, end)
    elif wire == FIXED64:
        size = 8
    elif wire == FIXED32:
        size = 4
    else:
        return -1
    if position < 0 or not 0 <= size <= end - position:
        return -1
    return position + size


@inline
def _timestamp(position: int, end: int) -> tuple[int, bool]:
    """Return a Timestamp's microseconds, and whether it is one."""
    seconds, nanos = 0, 0
    while position < end:
        field = load8(position)
        value, position = read_unsigned(position + 1, end)
        if position < 0 or field not in (8, 16):
            return 0, False
        if field == 8:
            seconds = value
        else:
            nanos = _word(value)
    if not _FIRST_SECOND <= seconds <= _LAST_SECOND:
        return 0, False
    found = seconds * 1_000_000 + nanos // 1000
    return found, FIRST <= found <= LAST


@inline
def _enum(columns: Any, column: int, index: int, value: int, words: int, table: int, write: bool) -> bool:
    """Store the symbol of a number; returns whether there is one."""
    low, high = 0, words
    if 0 <= value < words and load64(table + value * 24) == value:
        low = value
        high = value
    while low < high:
        middle = (low + high) >> 1
        if load64(table + middle * 24) < value:
            low = middle + 1
        else:
            high = middle
    if low >= words or load64(table + low * 24) != value:
        return False
    if write:
        store64(columns[column, _DATA] + index * 8, load64(table + low * 24 + 8))
        store64(columns[column, _LENGTHS] + index * 8, load64(table + low * 24 + 16))
    return True


@inline
def _scalar(
    op: int, columns: Any, column: int, index: int, position: int, end: int, a: int, b: int, write: bool
) -> int:
    """Read a number; returns the position after it, or -1."""
    value = 0
    if op in (DOUBLE, SFIXED64, WORD64):
        if end - position < 8:
            return -1
        value = load64(position)
        position += 8
    elif op in (FLOAT, SFIXED32, WORD32):
        if end - position < 4:
            return -1
        if op == FLOAT:
            if write:
                store_double(columns[column, _DATA] + index * 8, load_float(position))
                store8(columns[column, _VALID] + index, 1)
            return position + 4
        for place in range(4):
            value |= load8(position + place) << (8 * place)
        if op == SFIXED32:
            value = _word(value)
        position += 4
    else:
        value, position = read_unsigned(position, end)
        if position < 0:
            return -1
        if op == INT32:
            value = _word(value)
        elif op == UINT32:
            value &= _WORD
        elif op == SINT64:
            value = ((value >> 1) & 0x7FFFFFFFFFFFFFFF) ^ -(value & 1)
        elif op == SINT32:
            value = _word(((value & _WORD) >> 1) ^ -(value & 1))
        elif op == BOOL:
            value = 1 if value != 0 else 0
        elif op == ENUM:
            if not _enum(columns, column, index, _word(value), a, b, write):
                return -1
            if write:
                store8(columns[column, _VALID] + index, 1)
            return position
    if write:
        if op in (UINT64, WORD64):
            store64(columns[column, _DATA] + index * 16, value)
            store64(columns[column, _DATA] + index * 16 + 8, 0)
        else:
            store64(columns[column, _DATA] + index * 8, value)
        store8(columns[column, _VALID] + index, 1)
    return position


@inline
def _find(fields: Any, first: int, behind: int, hint: int, number: int) -> int:
    """Return the place of a message's field, -1 if it is not wanted; fields are mostly in order."""
    if hint < behind and fields[hint, _NUMBER] == number:
        return hint
    if hint + 1 < behind and fields[hint + 1, _NUMBER] == number:
        return hint + 1
    while first < behind:
        middle = (first + behind) >> 1
        found = fields[middle, _NUMBER]
        if found == number:
            return middle
        if found < number:
            first = middle + 1
        else:
            behind = middle
    return -1


@inline
def _read_message(
    fields: Any, messages: Any, columns: Any, filled: Any, stack: Any, position: int, end: int, write: bool
) -> bool:
    """Read one message; returns False if it is strange."""
    depth, message, hint = 0, 0, messages[0, 0]
    while True:
        while position == end:
            if depth == 0:
                return True
            depth -= 1
            end, message, hint = stack[depth, _END], stack[depth, _OUTER], stack[depth, _HINT]
            if stack[depth, _ITEMS] > 0:
                filled[stack[depth, _ITEMS]] += 1
        tag, position = _size(position, end)
        if position < 0 or tag < 8:
            return False
        wire = tag & 7
        at = _find(fields, messages[message, 0], messages[message, 1], hint, tag >> 3)
        if at < 0:
            position = _behind(wire, position, end)
            if position < 0:
                return False
            continue
        hint = at
        op, column, list_ = fields[at, _OP], fields[at, _COLUMN], fields[at, _LIST]
        a, b = fields[at, _A], fields[at, _B]
        if wire != fields[at, _WIRE]:
            stop = _behind(wire, position, end)
            if stop < 0:
                return False
            if wire == SIZED and list_ >= 0 and op <= ENUM:
                _, position = _size(position, end)
                level = columns[column, _LEVEL]
                before = filled[level]
                while position < stop:
                    position = _scalar(op, columns, column, filled[level], position, stop, a, b, write)
                    if position < 0:
                        return False
                    filled[level] += 1
                if write:
                    length = columns[list_, _LENGTHS] + filled[columns[list_, _LEVEL]] * 8
                    store64(length, load64(length) + filled[level] - before)
            position = stop
            continue
        oneof = fields[at, _ONEOF]
        if oneof >= 0 and write:
            noted = columns[oneof, _VALID] + filled[columns[oneof, _LEVEL]]
            # The last one counts and clears the others: rare, so left to the library.
            if load8(noted) != 0:
                return False
            store8(noted, 1)
        if op == SKIP:
            position = _behind(wire, position, end)
            if position < 0:
                return False
            continue
        level = columns[column, _LEVEL]
        index = filled[level]
        if list_ >= 0 and write:
            length = columns[list_, _LENGTHS] + filled[columns[list_, _LEVEL]] * 8
            store64(length, load64(length) + 1)
        if op <= ENUM:
            position = _scalar(op, columns, column, index, position, end, a, b, write)
            if position < 0:
                return False
            if list_ >= 0:
                filled[level] += 1
            continue
        size, position = _size(position, end)
        if position < 0 or not 0 <= size <= end - position:
            return False
        stop = position + size
        if op == MESSAGE:
            # A second one would be merged into the first.
            if write:
                if list_ < 0 and load8(columns[column, _VALID] + index) != 0:
                    return False
                store8(columns[column, _VALID] + index, 1)
            stack[depth, _END], stack[depth, _OUTER], stack[depth, _HINT] = end, message, hint
            stack[depth, _ITEMS] = level if list_ >= 0 else 0
            depth += 1
            end, message, hint = stop, a, messages[a, 0]
            continue
        if write:
            if op == TIMESTAMP:
                if list_ < 0 and load8(columns[column, _VALID] + index) != 0:
                    return False
                micros, fine = _timestamp(position, stop)
                if not fine:
                    return False
                store64(columns[column, _DATA] + index * 8, micros)
            else:
                if op == TEXT and high_bits(position, stop) != 0 and not valid_utf8(position, stop):
                    return False
                store64(columns[column, _DATA] + index * 8, position)
                store64(columns[column, _LENGTHS] + index * 8, size)
            store8(columns[column, _VALID] + index, 1)
        if list_ >= 0:
            filled[level] += 1
        position = stop


@inline
def _message_begin(position: int, end: int, place: Any) -> int:
    """Return the position after a message's index; -1 if it is another message's."""
    size = len(place)
    if size <= end - position:
        same = True
        for at in range(size):
            same &= load8(position + at) == place[at]
        if same:
            return position + size
    # The index of the first message has two forms.
    if size == 1 and place[0] == 0 and end - position >= 2 and load8(position) == 2 and load8(position + 1) == 0:
        return position + 2
    return -1


@kernel(
    "void(int64, int64[::1], uint8[::1], uint8[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1], int64[::1], "
    "int64[::1], int64[::1], int64[::1], int64[:, ::1], uint8[::1], boolean)"
)
def read_rows(
    address: int, offsets: Any, valid: Any, place: Any, fields: Any, messages: Any, columns: Any, widths: Any,
    filled: Any, marks: Any, room: Any, stack: Any, strange: Any, write: bool,
) -> None:  # fmt: skip
    """Read a message a row.

    Args:
        address: of the values.
        offsets: of the values.
        valid: a byte a row; empty if none is null.
        place: the message's index before each message; empty: there is none.
        fields: of all messages that are read.
        messages: first field of each, and the one after its last.
        columns: the targets, all with the values of absent fields.
        widths: the number of columns of each level.
        filled: gets the number of items of each level; all 0.
        marks: room for a copy of ``filled``.
        room: gets the items of each level for which there must be room, with those of rows that turn out to be strange
            while they are written; all 0.
        stack: room for frames.
        strange: gets 1 for rows that were not read, or make too many cells. Rows marked before are skipped: with lists
            a first pass, which only counts, finds most of them.
        write: False to count only.
    """
    for row in range(len(strange)):
        filled[0] = row
        for level in range(1, len(filled)):
            marks[level] = filled[level]
        if len(valid) > 0 and valid[row] == 0:
            if write:
                for column in range(len(columns)):
                    if columns[column, _LEVEL] == 0:
                        store8(columns[column, _VALID] + row, 0)
                        if columns[column, _LENGTHS] != 0:
                            store64(columns[column, _LENGTHS] + row * 8, 0)
            continue
        if strange[row] != 0:
            continue
        end = address + offsets[row + 1]
        begin = _message_begin(address + offsets[row], end, place)
        fine = begin >= 0 and _read_message(fields, messages, columns, filled, stack, begin, end, write)
        if cells_since(filled, marks, widths) > FREE_CELLS + CELLS_A_BYTE * (end - begin):
            fine = False
        if fine:
            for level in range(1, len(filled)):
                # One more: the item at which a row ends that turns out to be strange when it is written.
                room[level] = max(room[level], filled[level] + 1)
            continue
        strange[row] = 1
        if write:
            # The next row finds its items as if there had been none.
            for column in range(len(columns)):
                level = columns[column, _LEVEL]
                for index in range(marks[level] if level > 0 else row, filled[level] + 1):
                    store8(columns[column, _VALID] + index, columns[column, _DEFAULT_VALID])
                    if columns[column, _LENGTHS] != 0:
                        store64(columns[column, _LENGTHS] + index * 8, columns[column, _DEFAULT_LENGTH])
                        if columns[column, _DATA] != 0:
                            store64(columns[column, _DATA] + index * 8, columns[column, _DEFAULT_DATA])
                    elif columns[column, _DATA] != 0:
                        for word in range(columns[column, _WORDS]):
                            store64(columns[column, _DATA] + (index * columns[column, _WORDS] + word) * 8, 0)
        for level in range(1, len(filled)):
            filled[level] = marks[level]
