"""The columns of a leg's source: what its formats decode into, and those that nobody reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.carried_columns import keeps_newest
from sparkrelay.runtime.compile.catalyst import default_column, named, null_column, select_names
from sparkrelay.runtime.compile.schemas import (
    KAFKA_FIELDS,
    arrow_schema,
    check_event_time,
    format_fields,
    layout_number,
)
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.specs import FetchSpec
from sparkrelay.topology import ForeachBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from sparkrelay.records.formats import Format
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Source


def source_fields(source: Source, ended: StructType | None) -> list[StructField]:
    """Return every column that a source can give, but for hidden ones.

    Args:
        source: of a leg.
        ended: of a repartition topic: the columns of the rows that end there.

    Raises:
        TopologyException: a column cannot be, or its event time is not among them.
    """
    where = str(source.call_site)
    if ended is not None:
        fields = list(ended)
    elif source.value is None and source.key is None:
        fields = list(KAFKA_FIELDS)
    else:
        fields = [*_decoded_fields(source.key, source.value, where), StructField("kafka", StructType(KAFKA_FIELDS))]
    if source.timestamp is not None:
        times = [field for field in fields if field.name == source.timestamp]
        if not times:
            raise TopologyException(
                f"{where}: timestamp={source.timestamp!r} is none of the columns that are read: "
                f"{', '.join(field.name for field in fields)}"
            )
        check_event_time(times[0], where)
    return fields


def topics_read(leg: Leg, names: TopicNames) -> tuple[str, ...]:
    """Return Kafka's names of the topics whose input a leg runs for, each once."""
    read = (names(topic, source.internal) for source in leg.sources for topic in source.topics)
    return tuple(dict.fromkeys(read))


def fetch_spec(
    leg: Leg,
    schema: StructType,
    shipped: StructType | None,
    *,
    skip_bad_records: bool,
    whole: bool,
    legs: Iterable[Leg],
    step: Mapping[str, Any],
) -> FetchSpec:
    """Return the first step of a leg.

    Args:
        leg: the leg.
        schema: of the rows that leave the step.
        shipped: of a repartition topic: the columns that travel through it.
        skip_bad_records: True to leave out what does not decode.
        whole: True to decode also what nobody reads.
        legs: all of the pipeline.
        step: what every step of the leg knows.
    """
    source = leg.source
    value_schema = None
    if shipped is not None:
        value_schema = arrow_schema(shipped)
    elif source.value is not None:
        value_schema = _needed(source.value, "value", source, schema, whole=whole)
    return FetchSpec(
        **step,
        key=source.key,
        value=source.value,
        internal=source.internal,
        value_schema=value_schema,
        key_schema=None if source.key is None else _needed(source.key, "key", source, schema, whole=whole),
        layout=0 if shipped is None else layout_number(shipped),
        output=arrow_schema(schema),
        event_time=source.timestamp,
        skip_tombstones=bool(leg.lookups)
        or leg.late_for is not None
        or leg.emitting is not None
        or (leg.aggregation is not None and not keeps_newest(leg)),
        skip_bad_records=skip_bad_records,
        whole=whole and shipped is None,
        is_global=leg.keeps_global_table,
        # A store that another leg keeps may be read, and go by what comes first.
        in_order=any(isinstance(other.action, ForeachBatch) for other in legs if other.subtopology == leg.subtopology),
    )


def _needed(form: Format, place: str, source: Source, schema: StructType, *, whole: bool) -> pa.Schema:
    """Return the columns of a key or value that are decoded."""
    declared = format_fields(form, place, str(source.call_site))
    read = {*schema.names, source.timestamp, *(field.name for field in declared if whole)}
    return arrow_schema(StructType([field for field in declared if field.name in read]))


def _decoded_fields(key: Format | None, value: Format | None, where: str) -> list[StructField]:
    """Return the columns that a key's and a value's format decode into.

    Raises:
        TopologyException: both have a column of one name and different types, or a name is reserved.
    """
    fields = {} if value is None else {field.name: field for field in format_fields(value, "value", where)}
    if key is not None:
        # The key's column wins over a field of the same name and type: it is what decides the partition.
        for field in format_fields(key, "key", where):
            same = fields.get(field.name)
            if same is not None and same.dataType != field.dataType:
                raise TopologyException(
                    f"{where}: column {field.name!r} is both the message key ({field.dataType.simpleString()}) and a "
                    f"field of the value ({same.dataType.simpleString()}), and would hide it; give the key's column "
                    'another name, such as key=String("message_key")'
                )
            fields[field.name] = field
    if "kafka" in fields:
        raise TopologyException(f"{where}: a field named 'kafka' clashes with the struct of Kafka's own columns")
    for name in fields:
        if name.startswith(hidden_columns.PREFIX):
            raise TopologyException(f"{where}: the column name {name!r} is reserved")
    return list(fields.values())


def only(rows: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return the columns of those names, in whatever case; :func:`with_unread` adds the others again."""
    read = {name.lower() for name in names}
    return select_names(rows, (name for name in rows.columns if name.lower() in read))


def with_unread(source: DataFrame, full: StructType) -> DataFrame:
    """Add the columns that nothing reads, as nulls: a step whose result is not used names them all the same.

    One that is never null gets some value: nothing may read it because Catalyst has left out where that was looked at.
    """
    there = set(source.columns)
    if len(there) == len(full):
        return source
    columns = dict(zip(source.columns, named(source.columns), strict=True))
    return source.select(*(columns[field.name] if field.name in there else _unread(field) for field in full))


def _unread(field: StructField) -> Column:
    return (null_column if field.nullable else default_column)(field.dataType, field.name)
