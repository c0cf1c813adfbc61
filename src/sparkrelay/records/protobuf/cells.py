"""The cells of a message's lists, counted in its bytes before Google's library makes objects of it.

The library allocates each field of each message, even absent ones: 1.6 kB for a message of two bytes and 100 fields.
Only messages that are large enough to make too many cells are counted, which takes Python a second for a megabyte.

The count ends at damaged bytes; the library then reports the damage.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.records.cells import may_be_too_many, too_many, widest, width_of
from sparkrelay.records.protobuf.schema import TIMESTAMP, WRAPPERS, descriptor_of, is_map, protobuf_schema

if TYPE_CHECKING:
    import pyarrow as pa

_SIZED: Final = 2
_BEGIN_GROUP: Final = 3
_END_GROUP: Final = 4
#: Wire types of a fixed size.
_FIXED: Final = {1: 8, 5: 4}

# By number: the columns of an item (0: not in a list), whether it can be packed, the fields in it.
_Fields = dict[int, tuple[int, bool, "_Fields"]]


def why_too_wide(value: bytes, text: str, name: str) -> str | None:
    """Return why a message makes too many cells; None if it does not."""
    most, fields = _table(text, name)
    return too_many(_cells(value, fields), len(value)) if may_be_too_many(len(value), most) else None


@functools.lru_cache(64)
def _table(text: str, name: str) -> tuple[int, _Fields]:
    """Return the most columns of an item, and the fields of a message that are or contain lists."""
    schema = protobuf_schema(text, name)
    return widest(schema.types), _fields(descriptor_of(text, name), {one.name: one.type for one in schema})


def _fields(descriptor: Any, types: dict[str, pa.DataType]) -> _Fields:
    found: _Fields = {}
    for field in descriptor.fields:
        kind, width = types[field.name], 0
        if field.is_repeated:
            inside = [kind.key_type, kind.item_type] if is_map(field) else [kind.value_type]
            width, kind = sum(map(width_of, inside)), inside[-1]
        inner: _Fields = {}
        if is_map(field):
            inner = _fields(field.message_type, {"key": inside[0], "value": inside[1]})
        elif field.message_type is not None and field.message_type.full_name not in {TIMESTAMP, *WRAPPERS}:
            inner = _fields(field.message_type, {one.name: one.type for one in kind})
        if width or inner:
            found[field.number] = width, width > 0 and field.message_type is None and not _is_text(field), inner
    return found


def _is_text(field: Any) -> bool:
    return field.type in {field.TYPE_STRING, field.TYPE_BYTES}


def _cells(data: bytes, fields: _Fields) -> int:
    """Count, with a stack instead of recursion: groups may be nested to any depth."""
    position, end, cells = 0, len(data), 0
    outer: list[tuple[int, _Fields]] = []
    nothing: _Fields = {}
    try:
        while True:
            while position >= end:
                if not outer:
                    return cells
                end, fields = outer.pop()
            tag, position = _varint(data, position)
            wire = tag & 7
            width, packable, inner = fields.get(tag >> 3, (0, False, nothing))
            if wire == _SIZED:
                size, position = _varint(data, position)
                # A packed item takes a byte or more.
                cells += size if packable else width
                if inner:
                    outer.append((end, fields))
                    end, fields = min(end, position + size), inner
                else:
                    position += size
                continue
            cells += width
            if wire == _BEGIN_GROUP:
                outer.append((end, fields))
                fields = inner
            elif wire == _END_GROUP:
                end, fields = outer.pop()
            elif wire in _FIXED:
                position += _FIXED[wire]
            else:
                _, position = _varint(data, position)
    except IndexError:
        return cells


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value, shift = data[position] & 127, 7
    while data[position] > 127 and shift < 64:
        position += 1
        value |= (data[position] & 127) << shift
        shift += 7
    return value, position + 1
