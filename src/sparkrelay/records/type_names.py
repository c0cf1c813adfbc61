"""Arrow types to Spark's JSON of types, and back.

Only the types of rows in stores. Unlike Spark with user-defined types, nothing that the JSON names is imported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
    "void": pa.null(),
}
_NAMES: Final = {kind: name for name, kind in _PLAIN.items()}
_DECIMAL: Final = re.compile(r"decimal\((\d{1,2}),(\d{1,2})\)")


def type_json(kind: pa.DataType) -> Any:
    """Return the JSON of a type, as ``DataType.jsonValue`` does.

    Raises:
        ValueError: Spark has no such type, or stores do not.
    """
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": fields_json(kind)}
    if pa.types.is_map(kind):
        key, item = type_json(kind.key_type), type_json(kind.item_type)
        return {"type": "map", "keyType": key, "valueType": item, "valueContainsNull": kind.item_field.nullable}
    if pa.types.is_list(kind):
        field = kind.value_field
        return {"type": "array", "elementType": type_json(field.type), "containsNull": field.nullable}
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kind not in _NAMES:
        raise ValueError(f"Spark has no name for {kind}")
    return _NAMES[kind]


def fields_json(fields: Iterable[pa.Field]) -> list[dict[str, Any]]:
    """Return the JSON of columns, as in that of a ``StructType``."""
    return [
        {"name": field.name, "type": type_json(field.type), "nullable": field.nullable, "metadata": {}}
        for field in fields
    ]


def type_of(said: Any) -> pa.DataType:
    """Return the type of a JSON; raises ValueError, TypeError or LookupError if it is not one of a known type."""
    if isinstance(said, str):
        if match := _DECIMAL.fullmatch(said):
            return pa.decimal128(int(match[1]), int(match[2]))
        if said not in _PLAIN:
            raise ValueError(f"unknown type {said!r}")
        return _PLAIN[said]
    if said["type"] == "struct":
        return pa.struct(fields_of(said["fields"]))
    if said["type"] == "map":
        item = pa.field("value", type_of(said["valueType"]), nullable=said["valueContainsNull"])
        return pa.map_(pa.field("key", type_of(said["keyType"]), nullable=False), item)
    if said["type"] == "array":
        return pa.list_(pa.field("element", type_of(said["elementType"]), nullable=said["containsNull"]))
    raise ValueError(f"unknown type {said['type']!r}")


def fields_of(said: Any) -> list[pa.Field]:
    """Return the columns of a JSON; raises as :func:`type_of`."""
    return [pa.field(one["name"], type_of(one["type"]), nullable=one["nullable"]) for one in said]
