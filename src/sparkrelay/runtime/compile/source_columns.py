"""A leg's first step: which records it reads, and which of their columns it decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay.runtime.compile.carried_columns import keeps_newest
from sparkrelay.runtime.contract.specs import FetchSpec
from sparkrelay.topology import ForeachBatch
from sparkrelay.topology.schemas import arrow_schema, format_fields, layout_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from sparkrelay.records.formats import Format
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Source


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
