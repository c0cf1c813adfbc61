"""What ``pyarrow.json`` cannot read: zoned timestamps, dates and base64 are parsed as text and converted here."""

from __future__ import annotations

import base64
import binascii
import decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException
from sparkrelay.records.arrow_buffers import BinaryColumn, offsets_of, validity_bitmap, validity_bytes
from sparkrelay.records.times import parse_dates, parse_timestamps

if TYPE_CHECKING:
    from collections.abc import Iterable

_DIRECT = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_decimal128,
    pa.types.is_null,
)
_AS_TEXT = (pa.types.is_timestamp, pa.types.is_date32, pa.types.is_binary)


def parsed_type(kind: pa.DataType, name: str) -> pa.DataType | None:
    """Return the type that the parser reads a field to; None if values must be read one by one.

    Raises:
        SerializationException: JSON cannot be read to this type.
    """
    if any(test(kind) for test in _DIRECT):
        return kind
    if any(test(kind) for test in _AS_TEXT):
        return pa.string()
    if pa.types.is_struct(kind):
        inner = [parsed_type(kind.field(i).type, f"{name}.{kind.field(i).name}") for i in range(kind.num_fields)]
        if any(one is None for one in inner) or not inner:
            return None
        return pa.struct([(kind.field(i).name, inner[i]) for i in range(kind.num_fields)])
    if pa.types.is_list(kind):
        item = parsed_type(kind.value_type, f"{name}[]")
        return None if item is None else pa.list_(item)
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            raise SerializationException(f"field {name} is {kind}; names in JSON are strings, so map keys must be too")
        parsed_type(kind.item_type, f"{name}{{}}")
        return None
    raise SerializationException(f"field {name} has type {kind}, to which JSON cannot be read")


def finish_column(array: pa.Array, kind: pa.DataType, rows: np.ndarray[Any, Any], unreadable: set[int]) -> pa.Array:
    """Convert a parsed column to the wanted type.

    ``rows`` is the record of each element; ``unreadable`` gets the records with a value that does not fit.
    """
    if pa.types.is_decimal128(kind):
        _check_decimals(array, rows, unreadable)
    elif pa.types.is_floating(kind):
        # The scan refuses words for infinity, so these are numbers that are too large.
        unreadable.update(rows[np.isinf(np.asarray(array.fill_null(0)))].tolist())
    if array.type == kind and not _needs_checks(kind):
        return array
    if pa.types.is_struct(kind):
        children = [finish_column(array.field(i), kind.field(i).type, rows, unreadable) for i in range(kind.num_fields)]
        nulls = pc.is_null(array) if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)
    if pa.types.is_list(kind):
        # The parser's null lists span no items, so flatten() and offsets agree.
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = offsets_of(lengths, np.int32)
        items = finish_column(array.flatten(), kind.value_type, np.repeat(rows, lengths), unreadable)
        validity = validity_bitmap(validity_bytes(array)) if array.null_count else None
        return pa.Array.from_buffers(kind, len(array), [validity, pa.py_buffer(offsets)], children=[items])
    if pa.types.is_binary(kind):
        return _base64(array, rows, unreadable)
    column = BinaryColumn.of(array)
    numbers: np.ndarray[Any, Any]
    if pa.types.is_date32(kind):
        numbers, readable = parse_dates(column, len(array))
    else:
        numbers, readable = parse_timestamps(column, len(array), zone_allowed=kind.tz is not None)
    unreadable.update(rows[~readable].tolist())
    unit = kind if pa.types.is_date32(kind) else pa.timestamp("us", kind.tz)
    validity = validity_bitmap(column.valid) if len(column.valid) else None
    return pa.Array.from_buffers(unit, len(array), [validity, pa.py_buffer(numbers)]).cast(kind, safe=False)


def _needs_checks(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return any(pa.types.is_decimal(one) or pa.types.is_floating(one) or _needs_checks(one) for one in inner)


def _check_decimals(array: pa.Array, rows: np.ndarray[Any, Any], unreadable: set[int]) -> None:
    """Find numbers with too many digits, which the parser accepts (pyarrow 26)."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        limit = decimal.Decimal(10) ** (array.type.precision - array.type.scale)
        numbers = array.to_pylist()
        unreadable.update(
            int(rows[i]) for i, number in enumerate(numbers) if number is not None and abs(number) >= limit
        )


def _base64(array: pa.Array, rows: np.ndarray[Any, Any], unreadable: set[int]) -> pa.Array:
    def decoded() -> Iterable[bytes | None]:
        for index, text in enumerate(array.to_pylist()):
            try:
                yield None if text is None else base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                unreadable.add(int(rows[index]))
                yield None

    return pa.array(decoded(), pa.binary())
