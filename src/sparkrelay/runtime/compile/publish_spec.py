"""Specs of a leg's last steps: those that write its rows to a topic, and those just before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType, TimestampType

from sparkrelay import hidden_columns
from sparkrelay.operators.late_to.run import LateRowsRunner
from sparkrelay.operators.ranking.beaten_rows import BestRows
from sparkrelay.operators.ranking.plan import ranking_spec
from sparkrelay.operators.table.changes import ChangesRunner, FilteredTableRunner
from sparkrelay.records.formats import Format, Json
from sparkrelay.runtime.compile.carried_columns import CHANGES, SETTLED, carried_columns
from sparkrelay.runtime.compile.sink_plan import SinkPlan, plan_sink
from sparkrelay.runtime.contract.specs import PublishSpec
from sparkrelay.topology import Collected, Lookup
from sparkrelay.topology.building.event_times import TIMESTAMP, shipped_event_times
from sparkrelay.topology.schemas import (
    arrow_schema,
    check_packable,
    check_repartition_key,
    hidden_fields,
    layout_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Leg, Sink


def publish_spec(
    leg: Leg,
    columns: StructType,
    output: StructType,
    *,
    names: TopicNames,
    legs: Sequence[Leg],
    config: StreamsConfig,
    step: Mapping[str, Any],
) -> PublishSpec:
    """Return the spec of a leg's last step.

    Args:
        leg: the leg.
        columns: visible columns at its end.
        output: the columns that are written; the key may use others.
        names: Kafka's names of topics.
        legs: all legs of the topology.
        config: the instance's settings.
        step: fields of ``StepSpec``, and of steps that write.

    Raises:
        TopologyException: a column cannot be written there.
    """
    sink = leg.sink
    topic: str | None = None
    plan = SinkPlan(Json(), StructType(), (), headers=None)
    if sink is not None:
        topic = names(sink.topic, sink.internal)
        plan = plan_sink(leg, sink, columns)
        if sink.internal:
            key = [columns[name] for name in plan.key if name in columns.names]
            check_packable(output, str(sink.call_site))
            check_repartition_key(StructType(key), str(sink.call_site))
    event_time = _event_time(sink, output, legs) if sink is not None and sink.internal else None
    return PublishSpec(
        **step,
        topic=topic,
        columns=tuple(output.names if sink is not None and sink.internal else plan.columns.names),
        key_columns=plan.key,
        key=sink.key if sink is not None and isinstance(sink.key, Format) else None,
        value=None if sink is not None and sink.internal else plan.format,
        layout=layout_number(output) if sink is not None and sink.internal else 0,
        headers=plan.headers,
        behind_state=leg.store is not None,
        event_time=event_time,
        ahead_ms=config.event_time_after_max_ms,
        best=None if sink is None else _best(sink, output, legs, event_time, config.event_time_after_max_ms),
        changelog=shared_changelog(leg, names),
        to_all=sink is not None and sink.to_all,
    )


def _event_time(sink: Sink, columns: StructType, legs: Sequence[Leg]) -> str | None:
    """Return the event time column that steps downstream of a repartition topic use, or None."""
    wanted = shipped_event_times(legs).get(sink.topic)
    if wanted == TIMESTAMP:
        return hidden_columns.TIMESTAMP
    found = [field for field in columns if wanted is not None and field.name.lower() == wanted.lower()]
    return found[0].name if found and isinstance(found[0].dataType, TimestampType | StructType) else None


def _best(
    sink: Sink, columns: StructType, legs: Sequence[Leg], event_time: str | None, ahead_ms: int
) -> BestRows | None:
    """Return the filter of rows that cannot be among the first of their key downstream of a repartition topic.

    None if the watermark there does not use the topic's event times: a late row might have displaced one that is not.
    """
    # Other legs of the table continue from its store, and do not read the topic.
    readers = [
        leg
        for leg in legs
        if leg.source.internal and sink.internal and sink.topic in leg.source.topics and not leg.goes_on
    ]
    table = readers[0].aggregation if len(readers) == 1 else None
    if table is None or table.ranking is None or readers[0].source.changes:
        return None
    if readers[0].keeps_watermark and event_time is None:
        return None
    by = tuple(name for name in table.keys if name != table.ranking.number)
    # Other steps might drop rows that displaced others of their key.
    if any(
        isinstance(part, Lookup) or not part.rows.only_picks(by)
        for part in readers[0].before
        if not isinstance(part, Collected)
    ):
        return None
    ranking = ranking_spec(table, by)
    wanted = {*by, *(one.column for one in table.ranking.order)}
    if ranking is None or not wanted <= set(columns.names):
        return None
    return BestRows(ranking, by, event_time, ahead_ms)


def shared_changelog(leg: Leg, names: TopicNames) -> str | None:
    """Return Kafka's name of the changelog that several legs write in turn, or None."""
    return None if leg.join is None else names.changelog(leg.join.store)


def changes_spec(
    store: str, rows: StructType, contents: str, step: Mapping[str, Any]
) -> tuple[ChangesRunner, StructType]:
    """Return the runner that continues from the changes of a store, and its output columns.

    Args:
        store: the store.
        rows: its columns.
        contents: its contents in words.
        step: fields of ``StepSpec``.
    """
    output = StructType([*rows, *hidden_fields(CHANGES)])
    return ChangesRunner(**step, store=store, contents=contents, output=arrow_schema(output)), output


def settle_spec(leg: Leg, columns: StructType, step: Mapping[str, Any]) -> tuple[FilteredTableRunner, StructType]:
    """Return the runner that turns a table's changes into rows and tombstones, and its output columns.

    Args:
        leg: the leg.
        columns: visible columns after the table's steps.
        step: fields of ``StepSpec``.

    Raises:
        TopologyException: a column cannot be written there.
    """
    output = StructType([*columns, *hidden_fields(SETTLED)])
    keys: tuple[str, ...] = ()
    if leg.sink is not None and not leg.sink.internal and not leg.after:
        keys = plan_sink(leg, leg.sink, columns).key
    return FilteredTableRunner(**step, keys=keys, output=arrow_schema(output)), output


def late_spec(leg: Leg, columns: StructType, store: str, step: Mapping[str, Any]) -> tuple[LateRowsRunner, StructType]:
    """Return the runner that emits late rows of a store's windows, and its output columns.

    Args:
        leg: the leg.
        columns: of its rows, but for hidden ones.
        store: the store.
        step: fields of ``StepSpec``.
    """
    output = StructType([*columns, *hidden_fields(carried_columns(leg))])
    return LateRowsRunner(**step, store=store, output=arrow_schema(output)), output
