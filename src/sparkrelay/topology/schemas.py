"""Spark and Arrow types of what flows through a leg."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    SpatialType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
    _has_type,
    _parse_datatype_string,
)

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.records.custom import check_decode
from sparkrelay.records.formatted import declared_schema
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.plain import PLAIN_TYPES
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.aggregate.spec import COUNTED, IN_ORDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.records.formats import Format, OneColumn


HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

KAFKA_FIELDS: Final = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
    StructField("headers", HEADERS),
]
_HIDDEN_TYPES: Final = {
    hidden_columns.PARTITION: IntegerType(),
    hidden_columns.TIMESTAMP: LongType(),
    hidden_columns.KEY: BinaryType(),
    hidden_columns.TOMBSTONE: BooleanType(),
    hidden_columns.EVENT_TIME: LongType(),
    hidden_columns.EVENT_MICROS: LongType(),
    hidden_columns.PARTITION_TIME: LongType(),
    hidden_columns.SOURCE: IntegerType(),
    hidden_columns.CHANGE: IntegerType(),
    hidden_columns.MARKER: BinaryType(),
}
_NULLABLE: Final = frozenset(
    {
        hidden_columns.KEY,
        hidden_columns.TOMBSTONE,
        hidden_columns.EVENT_TIME,
        hidden_columns.EVENT_MICROS,
        hidden_columns.MARKER,
    }
)


def hidden_fields(names: tuple[str, ...]) -> list[StructField]:
    """Return the fields of hidden columns."""
    return [StructField(name, _HIDDEN_TYPES[name], nullable=name in _NULLABLE) for name in names]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return a schema as Spark ships it to Python workers."""
    return to_arrow_schema(schema, timezone="UTC")


def lost_in_arrow(field: StructField) -> str | None:
    """Return why the values of a column do not get through Arrow as what they are; None if they do."""
    if _has_type(field.dataType, (VariantType, SpatialType)):
        return f"to Arrow {field.dataType.simpleString()} is a struct of bytes, and would be taken for one"
    try:
        arrow_schema(StructType([field]))
    except PySparkException as error:
        return str(error.getMessage() or error)
    return None


def nullable(fields: Iterable[StructField]) -> StructType:
    """Return columns any of which may be null, but for hidden ones."""
    hidden = hidden_columns.PREFIX
    return StructType([f if f.name.startswith(hidden) else StructField(f.name, f.dataType) for f in fields])


def without_metadata(schema: StructType) -> StructType:
    """Return columns without what Spark notes of them."""
    return StructType([StructField(field.name, field.dataType, field.nullable) for field in schema])


def layout_number(schema: StructType) -> int:
    """Return a number (32 bits) for the columns of packed rows: another one for other names, types or another order.

    Rows of an earlier pipeline may still be in a repartition topic when a changed one starts. Read by position, one
    column would be taken for another.
    """
    text = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big", signed=True)


SPARK_TYPES: Final[Mapping[type[OneColumn], DataType]] = {
    form: from_arrow_type(kind) for form, kind in PLAIN_TYPES.items()
}


def format_fields(form: Format, place: str, where: str) -> list[StructField]:
    """Return the Spark columns that a format decodes into."""
    try:
        declared = declared_schema(form, place)
    except SerializationException as error:
        raise TopologyException(f"{where}: {error}") from error
    if declared is not None:
        return list(from_arrow_schema(declared, prefer_timestamp_ntz=True))
    fields = _given_fields(form, where)
    column = form.only_column(place)
    if column is not None:
        return [StructField(column, ArrayType(fields))]
    if form.column_check == "each":
        _check_readable(fields, where)
    elif form.column_check == "all":
        _check_decoding(form, fields, where)
    return list(fields)


def _given_fields(form: Format, where: str) -> StructType:
    """Return the schema that was given with a format.

    All fields are nullable, as in Spark's own ``from_json`` and readers of files: records need not keep to the schema.
    """
    name, given = type(form).__name__, form.schema
    if given is None:
        raise TopologyException(
            f'{where}: {name}() of a stream needs a schema, such as schema="user string, amount double"'
        )
    try:
        parsed = (
            from_arrow_schema(given, prefer_timestamp_ntz=True)
            if isinstance(given, pa.Schema)
            else given
            if isinstance(given, StructType)
            else _parse_datatype_string(str(given))
        )
    except PySparkException as error:
        raise TopologyException(f"{where}: {name}({given!r}) is not a schema: {error}") from error
    if not isinstance(parsed, StructType):
        raise TopologyException(f"{where}: {name}({given!r}) names no fields")
    return parsed.toNullable()


def _check_decoding(form: Any, fields: StructType, where: str) -> None:
    try:
        check_decode(form, arrow_schema(fields))
    except SerializationException as error:
        raise TopologyException(f"{where}: {error}") from error


def _check_readable(schema: StructType, where: str) -> None:
    """Raise TopologyException for a field of a type that JSON cannot be read to."""
    for field in schema:
        kind = field.dataType.simpleString()
        try:
            if (reason := lost_in_arrow(field)) is not None:
                raise SerializationException(reason)
            json_to_columns(pa.array([], pa.binary()), arrow_schema(StructType([field])))
        except SerializationException as error:
            raise TopologyException(
                f"{where}: Json() with field {field.name!r} ({kind}): {error}; declare it as a string, which takes any "
                "JSON as its text"
            ) from error


def check_event_time(field: StructField, where: str) -> None:
    """Raise TopologyException for a column that says no time, or not in which unit."""
    name, kind = field.name, field.dataType
    if not isinstance(kind, TimestampType | TimestampNTZType | DateType | LongType):
        raise TopologyException(
            f"{where}: stream(timestamp={name!r}) is a column of {kind.simpleString()}; an event time is a timestamp, "
            f'a date, or a bigint of milliseconds since 1970. Declare it as one: Json("{name} timestamp") reads '
            "ISO-8601 text, and numbers as seconds"
        )


def check_groupable(keys: StructType, where: str) -> None:
    """Raise TopologyException for a grouping column that no group can be found by."""
    for field in keys:
        name, kind = field.name, field.dataType
        leaves = [child.dataType for child in kind] if isinstance(kind, StructType) else [kind]
        if any(map(_is_collated, leaves)):
            raise TopologyException(
                f"{where}: grouping column {name!r} ({kind.simpleString()}) is compared by a collation, and groups are "
                'found by their bytes; group by F.collate(F.lower("x"), "UTF8_BINARY") for texts that differ in case '
                'only, or by F.collate("x", "UTF8_BINARY")'
            )
        if leaves and all(isinstance(leaf, AtomicType) and _is_key(leaf) for leaf in leaves):
            continue
        fields = ", or by fields of it that are plain" if isinstance(kind, StructType) else ""
        raise TopologyException(
            f"{where}: grouping column {name!r} ({kind.simpleString()}) cannot be the key of a group; group by "
            f'{_as_key(field)}.alias("{name}"){fields}'
        )


def _as_key(field: StructField) -> str:
    """Return what to write instead of a column that cannot be a key: what is equal in equal values."""
    if isinstance(field.dataType, MapType):
        return f'F.to_json(F.array_sort(F.map_entries("{field.name}")))'
    return as_plain(field)


def as_plain(field: StructField) -> str:
    """Return what to write instead of a column that a format cannot hold."""
    name, kind = field.name, field.dataType
    if isinstance(kind, SpatialType):
        return f'F.st_asbinary("{name}")'
    if isinstance(kind, VariantType) or not isinstance(kind, AtomicType | CalendarIntervalType | NullType):
        return f'F.to_json("{name}")'
    return f'F.col("{name}").cast("string")'


def _is_collated(kind: DataType) -> bool:
    return isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()


def _is_key(kind: DataType) -> bool:
    try:
        column = arrow_schema(StructType([StructField("key", kind)])).field(0).type
        key_bytes([pa.array([], column), pa.array([], pa.bool_())])
    except (PySparkException, SerializationException):
        return False
    return True


def aggregate_spec(
    function: str,
    arguments: Sequence[StructField],
    result: StructField,
    where: str,
    *,
    distinct: bool = False,
    options: tuple[Any, ...] = (),
) -> AggregateSpec:
    """Return the state that one aggregate keeps.

    Raises:
        TopologyException: the function does not go with the argument's type.
    """
    result_type = arrow_schema(StructType([result])).field(0).type
    if not arguments:
        return AggregateSpec(function, None, pa.int64(), result_type, result.name)
    first, *others = arguments
    of = first.dataType
    if function.removeprefix("try_") in {"sum", "avg"} and not isinstance(
        of, DecimalType | IntegralType | FractionalType
    ):
        raise TopologyException(
            f"{where}: {result.name} is a {function} of {of.simpleString()}; only whole numbers, decimals and doubles "
            'add up: cast the argument, such as F.col("x").cast("double")'
        )
    if function.endswith(("percentile", "percentile_disc")) and not isinstance(
        of, IntegralType | FractionalType | DecimalType
    ):
        dated = function == "approx_percentile" and isinstance(of, DateType | TimestampType | TimestampNTZType)
        if not dated:
            raise TopologyException(
                f"{where}: {result.name} is a {function} of {of.simpleString()}, and state takes that of numbers; cast "
                "the argument, as of an interval to the seconds it has"
            )
    compared = others if function in {"max_by", "min_by"} else arguments if function in {"min", "max"} else []
    for field in compared:
        _check_compared(function, field, result, where)
    if function in COUNTED or function == "approx_count_distinct":
        _check_distinct(function, first, result, where)
    elif distinct:
        for field in arguments:
            _check_distinct(function, field, result, where)
    types = arrow_schema(StructType(list(arguments)))
    if function.startswith(("first", "last")) or function in {"max_by", "min_by"} | IN_ORDER:
        check_packable(StructType([StructField(result.name, of)]), where, f"be kept as a {function}")
    more = tuple((field.name, column.type) for field, column in zip(others, list(types)[1:], strict=True))
    return AggregateSpec(
        function, first.name, types.field(0).type, result_type, result.name, more, distinct, options=options
    )


def _check_compared(function: str, field: StructField, result: StructField, where: str) -> None:
    """Refuse a column of ``min`` or ``max`` that Spark orders differently from what the store compares."""
    kind = field.dataType
    if not isinstance(kind, AtomicType):
        raise TopologyException(
            f"{where}: {result.name} is a {function} of {kind.simpleString()}, which is not supported yet: state "
            "compares plain values only. Aggregate the fields one by one, or take the "
            f"{function} of F.to_json() of it, which compares texts"
        )
    if _is_collated(kind):
        raise TopologyException(
            f"{where}: {result.name} is a {function} of {kind.simpleString()}, and state compares texts by bytes; "
            'take that of F.collate("x", "UTF8_BINARY")'
        )


def _check_distinct(function: str, field: StructField, result: StructField, where: str) -> None:
    """Refuse a column whose equal values may differ in their bytes, or have none."""
    kind = field.dataType
    leaves = [child.dataType for child in kind] if isinstance(kind, StructType) else [kind]
    if any(map(_is_collated, leaves)) or not leaves or not all(map(_is_key, leaves)):
        raise TopologyException(
            f"{where}: {result.name} is a {function} of distinct values of {kind.simpleString()}, whose bytes do "
            f"not say which are equal; take that of {_as_key(StructField('x', kind))}"
        )


def without_kafka(rows: StructType) -> StructType:
    """Leave out the struct of Kafka's own columns, which is for the steps and not for what is written or kept of rows.

    One that was remade stays.
    """
    kafka = StructType(KAFKA_FIELDS)
    return StructType([field for field in rows if not (field.name == "kafka" and field.dataType == kafka)])


def unlike(first: StructType, second: StructType, *, in_order: bool) -> str | None:
    """Return why the rows of two streams are not of one kind, and the way out; None if they are."""
    kinds = [{field.name: field.dataType.simpleString() for field in schema} for schema in (first, second)]
    for name in dict.fromkeys((*kinds[0], *kinds[1])):
        one, other = (kind.get(name, "missing") for kind in kinds)
        if one != other:
            return f"{name!r} is {one} in one and {other} in the other; select() and cast() the same before it"
    if in_order and first.names != second.names:
        return (
            f"{', '.join(first.names)} and {', '.join(second.names)} differ in their order; use unionByName(), which "
            "goes by names"
        )
    return None


def check_packable(visible: StructType, where: str, what: str = "go through a repartition topic") -> None:
    """Raise TopologyException for a column whose rows cannot be packed, as they are on their way or in a table."""
    for field in visible:
        try:
            if (reason := lost_in_arrow(field)) is not None:
                raise SerializationException(reason)
            column = arrow_schema(StructType([field])).field(0)
            key_bytes([pa.array([], column.type), pa.array([], pa.bool_())], normal=False)
        except SerializationException as error:
            raise TopologyException(
                f"{where}: column {field.name!r} ({field.dataType.simpleString()}) cannot {what}: {error}. Make "
                f'it withColumn("{field.name}", {as_plain(field)}) before this step, or select() the columns that it '
                "needs"
            ) from error


def check_repartition_key(key: StructType, where: str) -> None:
    """Raise TopologyException for a column that cannot say which partition a row goes to."""
    for field, column in zip(key, arrow_schema(key), strict=True):
        try:
            key_bytes([pa.array([], column.type), pa.array([], pa.bool_())])
        except SerializationException as error:
            raise TopologyException(
                f"{where}: column {field.name!r} ({field.dataType.simpleString()}) cannot be the key of a repartition "
                f'topic: {error}. Make another column before it, withColumn("key", {_as_key(field)}), and name that one'
            ) from error
