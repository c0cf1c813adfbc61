"""The Arrow types, and so Spark's, that Avro types are read to: those of spark-avro's ``SchemaConverters``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import SerializationException
from sparkrelay.records.avro.schema import (
    AvroArray,
    AvroEnum,
    AvroFixed,
    AvroMap,
    AvroRecord,
    AvroUnion,
    Primitive,
    type_name,
    without_null,
)

if TYPE_CHECKING:
    from sparkrelay.records.avro.schema import AvroType

_PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def columns_of(kind: AvroType, place: str) -> list[tuple[str, AvroType]]:
    """Return the columns of a schema: a record's fields; of any other type one column, ``key`` or ``value``."""
    if isinstance(kind, AvroRecord):
        return [(field.name, field.type) for field in kind.fields]
    return [(place, kind)]


def arrow_schema_of(kind: AvroType, place: str) -> pa.Schema:
    """Return the columns of a schema.

    Raises:
        SerializationException: a type has no column; names the field and the remedy.
    """
    columns = columns_of(kind, place)
    if not columns:
        raise SerializationException("the Avro schema is a record without fields, which gives no columns")
    return pa.schema([pa.field(name, arrow_type(one, name)) for name, one in columns])


def arrow_type(kind: AvroType, path: str, above: tuple[str, ...] = ()) -> pa.DataType:
    """Return the Arrow type of an Avro type at ``path``, inside the records named ``above``.

    Raises:
        SerializationException: there is none.
    """
    kind = without_null(kind)
    match kind:
        case Primitive("null"):
            raise _refused(path, "is always null", "leave it out of the reader's schema")
        case Primitive(logical="decimal") | AvroFixed(logical="decimal"):
            return pa.decimal128(kind.precision, kind.scale)
        case Primitive() | AvroFixed(logical="uuid"):
            return _PLAIN[kind.kind] if kind.logical is None and isinstance(kind, Primitive) else _LOGICAL[
                str(kind.logical)
            ]  # fmt: skip
        case AvroFixed():
            return pa.binary()
        case AvroEnum():
            return pa.string()
        case AvroArray():
            item = arrow_type(kind.items, f"{path}[]", above)
            if takes_no_bytes(kind.items):
                raise _refused(path, "is an array whose items take no bytes", "leave it out of the reader's schema")
            return pa.list_(pa.field("element", item))
        case AvroMap():
            return pa.map_(pa.string(), arrow_type(kind.values, f"{path}{{}}", above))
        case AvroRecord():
            if kind.name in above:
                raise _refused(path, f"is a record {kind.name} in itself", "leave it out of the reader's schema")
            if not kind.fields:
                raise _refused(path, "is a record without fields", "leave it out of the reader's schema")
            inside = (*above, kind.name)
            return pa.struct([(f.name, arrow_type(f.type, f"{path}.{f.name}", inside)) for f in kind.fields])
        case AvroUnion():
            raise _refused(
                path,
                f"is a {type_name(kind)}, and a column has one type",
                "give a reader's schema with the one branch that is wanted, or null and that one (records of another "
                "branch do not decode), or without the field",
            )


def takes_no_bytes(kind: AvroType, known: dict[AvroRecord, bool] | None = None) -> bool:
    """Return whether values of a type may take no bytes, so that a count of them cannot be checked."""
    match kind:
        case Primitive("null") | AvroFixed(size=0):
            return True
        case AvroRecord():
            known = {} if known is None else known
            # Each record once: by names a short schema can have very many paths.
            if kind not in known:
                # For a record in itself, which has no values at all.
                known[kind] = False
                known[kind] = all(takes_no_bytes(field.type, known) for field in kind.fields)
            return known[kind]
        case _:
            return False


def _refused(path: str, what: str, remedy: str) -> SerializationException:
    return SerializationException(f"field {path!r} of the Avro schema {what}; {remedy}")
