"""Spark and Arrow types of what flows through a leg."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
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

from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.records.custom import check_decode
from sparkrelay.records.formats import Format, Integer, Json, Long, OneColumn, Raw, String, Uuid
from sparkrelay.records.formatted import columns_to_format, declared_schema
from sparkrelay.records.json.reader import json_to_columns
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.plain import PLAIN_TYPES
from sparkrelay.runtime.compile.column_names import columns_there_are, key_outside
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.aggregate.spec import COUNTED, IN_ORDER
from sparkrelay.topology.describe import format_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.topology import Leg, Sink

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


def layout_number(schema: StructType) -> int:
    """Return a number (32 bits) for the columns of packed rows: another one for other names, types or another order.

    Rows of an earlier pipeline may still be in a repartition topic when a changed one starts. Read by position, one
    column would be taken for another.
    """
    text = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big", signed=True)


_SPARK_TYPES: Final[Mapping[type[OneColumn], DataType]] = {
    form: from_arrow_type(kind) for form, kind in PLAIN_TYPES.items()
}
#: Those that a column has as a message key by its type alone.
_KEYS: Final = (Raw, String, Integer, Long)


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
    return _as_plain(field)


def _as_plain(field: StructField) -> str:
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
    if function in {"sum", "avg"} and not isinstance(of, DecimalType | IntegralType | FractionalType):
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
    """Refuse a column whose order is not that of what is kept of it."""
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


@dataclass(frozen=True, slots=True)
class SinkPlan:
    """What of a leg's last rows goes where in the records it writes.

    Attributes:
        format: format of the value.
        columns: columns that the value is made of; for a plain format, its one column.
        key: columns that make the key; empty: the key that travels with the rows.
        headers: the column of the headers, or None.
    """

    format: Format
    columns: StructType
    key: tuple[str, ...]
    headers: str | None


def plan_sink(leg: Leg, sink: Sink, rows: StructType) -> SinkPlan:
    """Decide how rows become records.

    Rows of a stream without formats stay what they are, Kafka's own columns: ``key``, ``value``, ``headers``.

    Raises:
        TopologyException: the key, or the column of a plain format, is not among the columns or not of the format's
            type; two columns have one name.
    """
    where = f"{sink.call_site}: to({sink.topic!r})"
    twice = [name for name in rows.names if rows.names.count(name) > 1]
    if twice:
        raise TopologyException(
            f"{where} writes two columns {twice[0]!r}; give one of them another name with alias(), or drop() it"
        )
    raw = leg.passes_kafka_columns
    key = _sink_key(sink)
    if not key and raw and "key" in rows.names:
        key = ("key",)
    form = sink.value or (_as_it_is(rows["value"]) if raw and not sink.internal and "value" in rows.names else Json())
    one = form.only_column("value")
    for name in (*key, *([] if one is None else [one])):
        if name not in rows.names and not name.startswith(hidden_columns.PREFIX):
            there = columns_there_are(rows.names, name)
            misspelt = name.casefold() in map(str.casefold, rows.names)
            hint = f". {key_outside(name)}" if name in key and not (sink.internal or misspelt) else ""
            raise TopologyException(f"{where} writes column {name!r}, but the columns are {there}{hint}")
    for place, given in (("key", sink.key), ("value", form)):
        if isinstance(given, OneColumn):
            _check_type(rows[given.only_column(place)], given, place, where)
    for given, names in ((sink.key, key), (form, without_kafka(rows).names)):
        if isinstance(given, Format) and given.column_check == "all":
            _check_writable(rows, names, given, where, key if given is form else ())
    if isinstance(sink.key, str) and plain_format(rows[sink.key]) is None:
        kind = rows[sink.key].dataType.simpleString()
        raise TopologyException(
            f"{where} writes column {sink.key!r} ({kind}) as the message key, which takes string, int, bigint or "
            f'binary; cast it first: withColumn("{sink.key}", F.col("{sink.key}").cast("string"))'
        )
    headers = sink.headers
    if headers is not None:
        _check_headers(headers, rows, where)
    elif raw and not sink.internal and "headers" in rows.names and rows["headers"].dataType == HEADERS:
        # Through a repartition topic they travel as a column.
        headers = "headers"
    written = [field for field in without_kafka(rows) if field.name != sink.headers]
    columns = StructType(written if one is None else [rows[one]])
    if not isinstance(form, OneColumn):
        if one is not None:
            _check_rows_column(rows[one], where)
        if not sink.internal:
            _check_values(columns, form, where)
    return SinkPlan(form, columns, key, headers)


def _check_headers(name: str, rows: StructType, where: str) -> None:
    if name not in rows.names:
        raise TopologyException(f"{where} writes the headers {name!r}, but the columns are {', '.join(rows.names)}")
    if rows[name].dataType.simpleString() != HEADERS.simpleString():
        raise TopologyException(
            f"{where} writes column {name!r} ({rows[name].dataType.simpleString()}) as the message headers, which are "
            f'{HEADERS.simpleString()}: make it by F.array(F.struct(F.lit("source").alias("key"), '
            'F.lit("web").cast("binary").alias("value")))'
        )


def without_kafka(rows: StructType) -> StructType:
    """Leave out the struct of Kafka's own columns, which is for the steps and not for what is written or kept of rows.

    One that was remade stays.
    """
    kafka = StructType(KAFKA_FIELDS)
    return StructType([field for field in rows if not (field.name == "kafka" and field.dataType == kafka)])


def _as_it_is(value: StructField) -> OneColumn:
    """Return the format of a stream without formats: as in Spark's Kafka sink the value is bytes, or remade as text."""
    return String() if isinstance(value.dataType, StringType) else Raw()


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


def plain_format(column: StructField) -> OneColumn | None:
    """Return the format that a column's values have as a message key; None if its type has none."""
    fitting = (form for form in _KEYS if isinstance(column.dataType, type(_SPARK_TYPES[form])))
    return next((form(column.name) for form in fitting), None)


def _check_type(column: StructField, form: OneColumn, place: str, where: str) -> None:
    """Refuse a column of another type than the format's: its bytes would be another format's."""
    wanted = _SPARK_TYPES[type(form)]
    # Not by equality: text of any collation is text.
    if isinstance(column.dataType, type(wanted)):
        return
    name, kind, text = column.name, column.dataType.simpleString(), wanted.simpleString()
    fitting = [
        other for other, its in _SPARK_TYPES.items() if isinstance(column.dataType, type(its)) and other is not Uuid
    ]
    remedy = "".join(f", or write it as it is, {place}={format_text(other(name))}" for other in fitting)
    raise TopologyException(
        f"{where} writes column {name!r} ({kind}) as {place}={format_text(form)}, which takes {text}; "
        f'cast it first: withColumn("{name}", F.col("{name}").cast("{text}")){remedy}'
    )


def _check_writable(rows: StructType, names: Sequence[str], form: Format, where: str, key: Sequence[str]) -> None:
    """Refuse columns that a schema does not take, or that leave out what it wants."""
    try:
        schema = arrow_schema(StructType([rows[name] for name in names]))
        columns_to_format(_no_rows(schema), form)
    except SerializationException as error:
        outside = [name for name in key if name in names and repr(name) in str(error)]
        hint = f". {key_outside(outside[0])}" if outside else ""
        raise TopologyException(f"{where}: {error}{hint}") from error


def _check_values(columns: StructType, form: Format, where: str) -> None:
    """Refuse columns whose values a format cannot hold."""
    for field in columns:
        reason = lost_in_arrow(field)
        if reason is None and form.column_check == "each":
            try:
                columns_to_format(_no_rows(arrow_schema(StructType([field]))), form)
            except (SerializationException, pa.ArrowException) as error:
                reason = str(error)
        if reason is not None:
            raise TopologyException(
                f"{where} writes column {field.name!r} ({field.dataType.simpleString()}), which "
                f"{type(form).__name__}() cannot hold: {reason}. Write it as text, "
                f'withColumn("{field.name}", {_as_plain(field)}), or drop() it'
            )


def _check_rows_column(column: StructField, where: str) -> None:
    name, kind = column.name, column.dataType
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        raise TopologyException(
            f"{where} writes the rows in column {name!r} as Arrow(column={name!r}), which takes an array of structs; "
            f"it is {kind.simpleString()}. Arrow() writes the columns as they are"
        )


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _sink_key(sink: Sink) -> tuple[str, ...]:
    if sink.key is None:
        return ()
    if isinstance(sink.key, tuple):
        return sink.key
    if isinstance(sink.key, str):
        return (sink.key,)
    return sink.key.known_columns("key")


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
                f'it withColumn("{field.name}", {_as_plain(field)}) before this step, or select() the columns that it '
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
