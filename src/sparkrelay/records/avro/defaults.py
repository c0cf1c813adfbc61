"""Defaults of fields: from the JSON of schemas to Avro."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from sparkrelay.errors import SerializationException
from sparkrelay.printable import printable
from sparkrelay.records.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
    Primitive,
    type_name,
)

if TYPE_CHECKING:
    from sparkrelay.records.avro.schema import AvroType


def varint(value: int) -> bytes:
    """Write a whole number of 64 bits."""
    rest = ((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF
    data = bytearray()
    while rest > 127:
        data.append(rest & 127 | 128)
        rest >>= 7
    data.append(rest)
    return bytes(data)


def default_bytes(kind: AvroType, value: Any, path: str) -> bytes:
    """Encode a default.

    Raises:
        SerializationException: it is not of the type.
    """
    try:
        return _written(kind, value, path)
    except (TypeError, ValueError, OverflowError, struct.error, AttributeError, KeyError) as error:
        raise SerializationException(
            f"the default of field {path!r} of the Avro schema, {printable(repr(value))[:80]}, is not a valid "
            f"{type_name(kind)}"
        ) from error


def _written(kind: AvroType, value: Any, path: str) -> bytes:
    match kind:
        case Primitive("null") if value is None:
            return b""
        case Primitive("boolean") if isinstance(value, bool):
            return b"\1" if value else b"\0"
        case Primitive("int" | "long") if isinstance(value, int) and not isinstance(value, bool):
            bits = 31 if kind.kind == "int" else 63
            if not -(1 << bits) <= value < 1 << bits:
                raise OverflowError(value)
            return varint(value)
        case Primitive("float" | "double") if isinstance(value, int | float | str) and not isinstance(value, bool):
            return struct.pack("<f" if kind.kind == "float" else "<d", float(value))
        case Primitive("string") if isinstance(value, str):
            return varint(len(value.encode())) + value.encode()
        case Primitive("bytes") if isinstance(value, str):
            # One character a byte (specification).
            return varint(len(value)) + value.encode("latin-1")
        case AvroFixed() if isinstance(value, str) and len(value) == kind.size:
            return value.encode("latin-1")
        case AvroEnum():
            return varint(kind.symbols.index(value))
        case AvroArray() if isinstance(value, list):
            return _block([_written(kind.items, item, path) for item in value])
        case AvroMap() if isinstance(value, dict):
            names = ((name.encode(), item) for name, item in value.items())
            return _block([varint(len(name)) + name + _written(kind.values, item, path) for name, item in names])
        case AvroRecord() if isinstance(value, dict):
            given = {one.name: one.default for one in kind.fields if one.has_default} | value
            return b"".join(_written(one.type, given[one.name], path) for one in kind.fields)
        case AvroUnion():
            return _branch(kind, value, path)
        case _:
            raise TypeError(value)


def _branch(kind: AvroUnion, value: Any, path: str) -> bytes:
    """Encode by the first branch that takes the value; before Avro 1.12 it had to be the very first."""
    for number, branch in enumerate(kind.branches):
        try:
            return varint(number) + _written(branch, value, path)
        except (TypeError, ValueError, OverflowError, struct.error, AttributeError, KeyError):
            continue
    raise TypeError(value)


def _block(items: list[bytes]) -> bytes:
    return (varint(len(items)) + b"".join(items) if items else b"") + b"\0"
