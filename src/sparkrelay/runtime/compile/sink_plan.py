"""From the columns of a leg's last rows to the key, value and headers of the records that it writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.records.formats import Format, Integer, Json, Long, OneColumn, Raw, String, Uuid
from sparkrelay.records.formatted import columns_to_format
from sparkrelay.topology.describe import format_text
from sparkrelay.topology.schemas import (
    HEADERS,
    SPARK_TYPES,
    arrow_schema,
    as_plain,
    lost_in_arrow,
    without_kafka,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology import Leg, Sink

#: Those that a column has as a message key by its type alone.
_KEYS: Final = (Raw, String, Integer, Long)


#: How a column becomes the message key without being a field of the value.
KEY_OUTSIDE: Final = (
    "rows need the column of their key, and the value need not have it: fields that the schema of Avro, Protobuf or "
    "JsonSchema lacks are left out, and so is the key by value=Json(without_key=True)"
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
    lower = [name.lower() for name in rows.names]
    twice = [name for name in rows.names if lower.count(name.lower()) > 1]
    if twice:
        alike = " and ".join(dict.fromkeys(map(repr, twice[:2])))
        raise TopologyException(
            f"{where} writes two columns {alike}; give one of them another name with alias(), or drop() it"
        )
    raw = leg.passes_kafka_columns
    key = _sink_key(sink)
    if not key and raw and "key" in rows.names:
        key = ("key",)
    form = sink.value or (_as_it_is(rows["value"]) if raw and not sink.internal and "value" in rows.names else Json())
    one = form.only_column("value")
    for name in (*key, *([] if one is None else [one])):
        if name not in rows.names and not name.startswith(hidden_columns.PREFIX):
            hint = f"; {KEY_OUTSIDE}" if name in key and not sink.internal else ""
            raise TopologyException(
                f"{where} writes column {name!r}, but the columns are {', '.join(rows.names)}{hint}"
            )
    for place, given in (("key", sink.key), ("value", form)):
        if isinstance(given, OneColumn):
            _check_type(rows[given.only_column(place)], given, place, where)
    written = _written(rows, form, key or sink.carried, sink, where)
    for given, names in ((sink.key, key), (form, written.names)):
        if isinstance(given, Format) and given.column_check == "all":
            _check_writable(rows, names, given, where)
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
    columns = written if one is None else StructType([rows[one]])
    if not isinstance(form, OneColumn):
        if one is not None:
            _check_rows_column(rows[one], where)
        if not sink.internal:
            _check_values(columns, form, where)
    return SinkPlan(form, columns, key, headers)


def _written(rows: StructType, form: Format, key: Sequence[str], sink: Sink, where: str) -> StructType:
    """Return the columns of the value: all but the headers, and those of the key that the format leaves out."""
    columns = [field for field in without_kafka(rows) if field.name != sink.headers]
    without = form.leaves_out(key)
    kept = [field for field in columns if field.name not in without]
    if isinstance(form, Json) and form.without_key and not (key and kept):
        names = ", ".join(field.name for field in columns)
        why = f"leaves no column of {names}" if key else f"leaves out the message key, which is none of {names}"
        raise TopologyException(
            f"{where}: value=Json(without_key=True) {why}; name the key's column, to({sink.topic!r}, key=...), or "
            "write value=Json()"
        )
    return StructType(kept or columns)


def _check_headers(name: str, rows: StructType, where: str) -> None:
    if name not in rows.names:
        raise TopologyException(f"{where} writes the headers {name!r}, but the columns are {', '.join(rows.names)}")
    if rows[name].dataType.simpleString() != HEADERS.simpleString():
        raise TopologyException(
            f"{where} writes column {name!r} ({rows[name].dataType.simpleString()}) as the message headers, which are "
            f'{HEADERS.simpleString()}: make it by F.array(F.struct(F.lit("source").alias("key"), '
            'F.lit("web").cast("binary").alias("value")))'
        )


def _as_it_is(value: StructField) -> OneColumn:
    """Return the format of a stream without formats: as in Spark's Kafka sink the value is bytes, or remade as text."""
    return String() if isinstance(value.dataType, StringType) else Raw()


def plain_format(column: StructField) -> OneColumn | None:
    """Return the format that a column's values have as a message key; None if its type has none."""
    fitting = (form for form in _KEYS if isinstance(column.dataType, type(SPARK_TYPES[form])))
    return next((form(column.name) for form in fitting), None)


def _check_type(column: StructField, form: OneColumn, place: str, where: str) -> None:
    """Refuse a column of another type than the format's: its bytes would be another format's."""
    wanted = SPARK_TYPES[type(form)]
    # Not by equality: text of any collation is text.
    if isinstance(column.dataType, type(wanted)):
        return
    name, kind, text = column.name, column.dataType.simpleString(), wanted.simpleString()
    fitting = [
        other for other, its in SPARK_TYPES.items() if isinstance(column.dataType, type(its)) and other is not Uuid
    ]
    remedy = "".join(f", or write it as it is, {place}={format_text(other(name))}" for other in fitting)
    raise TopologyException(
        f"{where} writes column {name!r} ({kind}) as {place}={format_text(form)}, which takes {text}; "
        f'cast it first: withColumn("{name}", F.col("{name}").cast("{text}")){remedy}'
    )


def _check_writable(rows: StructType, names: Sequence[str], form: Format, where: str) -> None:
    """Refuse columns that a schema does not take, or that leave out what it wants."""
    try:
        schema = arrow_schema(StructType([rows[name] for name in names]))
        columns_to_format(_no_rows(schema), form)
    except SerializationException as error:
        raise TopologyException(f"{where}: {error}") from error


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
                f'withColumn("{field.name}", {as_plain(field)}), or drop() it'
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
