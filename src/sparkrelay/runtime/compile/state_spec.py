"""What the stateful step of a leg needs to know, made of what Catalyst says of its rows."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.client.config import longest_request
from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.layout import AggregateLayout, SessionsLayout
from sparkrelay.operators.aggregate.run import AggregateRunner
from sparkrelay.operators.history.layout import HistoryLayout
from sparkrelay.operators.history.run import HistoryRunner
from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.operators.ranking.layout import PlacesLayout, RowsBesideLayout
from sparkrelay.operators.ranking.plan import held_rows, ranking_spec
from sparkrelay.operators.ranking.tables import RankedTableRunner
from sparkrelay.operators.ranking.windows import RankedWindowsRunner
from sparkrelay.operators.sessions.run import SessionsRunner
from sparkrelay.operators.table.grouping import GroupedRunner
from sparkrelay.operators.watermarks import WindowWatermark
from sparkrelay.runtime.compile.carried_columns import CHANGES, emitted_columns
from sparkrelay.runtime.compile.contents import contents, repartitioned_by, spread
from sparkrelay.runtime.compile.timed_sources import interval_ms
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.window_keys import MOST_SOURCES
from sparkrelay.topology.building.aggregate_checks import aggregate_states
from sparkrelay.topology.building.event_times import shipped_event_times
from sparkrelay.topology.schemas import arrow_schema, hidden_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Aggregation, Leg
    from sparkrelay.topology.rows import Rows

log = logging.getLogger(__name__)


def state_spec(
    leg: Leg,
    aggregation: Aggregation,
    rows: StructType,
    *,
    legs: Sequence[Leg],
    names: TopicNames,
    config: StreamsConfig,
    step: Mapping[str, Any],
) -> TableRunner:
    """Return what a stateful step does that keeps a table.

    Args:
        leg: the leg.
        aggregation: its stateful step.
        rows: the columns that reach it, hidden ones included.
        legs: of the topology.
        names: Kafka's names of its topics.
        config: the instance's settings.
        step: what every step knows, and how this one writes its changelog.

    Raises:
        TopologyException: an aggregate or a watermark cannot be.
    """
    results = aggregation.columns
    taken = leg.taken
    width = len(aggregation.keys)
    texts = [call.text for call in aggregation.calls]
    states, held = _held_states(aggregation, taken)
    history_ms = None
    if aggregation.history is not None:
        where = f"{aggregation.call_site}: {aggregation.text}"
        history_ms = interval_ms(aggregation.history, f"{where}, read as a delay")
        held = {what: f"{row}, and of those in the {history_ms} ms before" for what, row in held.items()}
    if leg.source.changes:
        if not aggregation.newest:
            states = [replace(state, subtracts=state.distinct) for state in states]
        held[hidden_columns.CHANGE] = "of the rows of a table"
    sources = len(leg.source.topics) if config.max_task_idle_ms else 0
    _warn_of_lists(aggregation, texts, states)
    limited = leg.source.internal and not shipped_event_times(legs).keys().isdisjoint(leg.source.topics)
    watermark = _watermark(aggregation, config.event_time_after_max_ms, sources, limited=limited)
    logged = aggregation.logged
    key_columns = arrow_schema(StructType(results.fields[:width]))
    runner, layout = _kinds(leg, aggregation, key_columns.names, states, history_ms, config, step)
    return runner(
        **step,
        layout=layout(
            store=aggregation.store,
            keys=key_columns,
            row=arrow_schema(StructType(results.fields[width:])),
            window=None if watermark is None else watermark.window,
            partitioned_by=aggregation.decided_by,
            repartitioned_by=repartitioned_by(leg, legs),
        ),
        store=aggregation.store,
        changelog=names.changelog(aggregation.store) if logged and not aggregation.reuses_topic else None,
        contents=contents(
            held.values(), taken, aggregation.keys, watermark=watermark, logged=logged, by=spread(leg, legs)
        ),
        input=arrow_schema(rows),
        output=arrow_schema(StructType([*results, *hidden_fields(emitted_columns(leg, aggregation))])),
        watermark=watermark,
        looked_up_by=frozenset(
            names.sources(*(other for other in legs if aggregation.store in other.reads_stores and other.lookups))
        ),
        kept=arrow_schema(StructType([*results, *hidden_fields(CHANGES)]))
        if any(other.changes_of == aggregation.store for other in legs)
        else None,
        joined=any(other.table_join is not None and aggregation.store in other.table_join.stores for other in legs),
    )


def _kinds(  # noqa: PLR0917 - what is known of one step
    leg: Leg,
    aggregation: Aggregation,
    keys: Sequence[str],
    states: Sequence[AggregateSpec],
    history_ms: int | None,
    config: StreamsConfig,
    step: Mapping[str, Any],
) -> tuple[Callable[..., TableRunner], Callable[..., TableLayout]]:
    """Return what makes the runner and the layout of a step, of the arguments that all of them take."""
    ranking = ranking_spec(aggregation, keys)
    if ranking is not None:
        if leg.source.changes:
            return RankedTableRunner, partial(RowsBesideLayout, ranking=ranking)
        if ranking.ties:
            return RankedWindowsRunner, partial(RowsBesideLayout, ranking=ranking)
        return GroupedRunner, partial(PlacesLayout, ranking=ranking)
    if history_ms is not None:
        ahead_ms = config.event_time_after_max_ms
        return partial(HistoryRunner, ahead_ms=ahead_ms), partial(HistoryLayout, history_ms=history_ms)
    if aggregation.newest:
        return LatestRunner, LatestLayout
    aggregates, most = tuple(states), longest_request(step["client"])
    if aggregation.sessions:
        return SessionsRunner, partial(SessionsLayout, aggregates=aggregates, most=most)
    of_changes = leg.source.changes
    of_all = of_changes and aggregation.of_all
    return AggregateRunner, partial(
        AggregateLayout, aggregates=aggregates, most=most, of_changes=of_changes, of_all=of_all
    )


def _held_states(aggregation: Aggregation, taken: Rows) -> tuple[list[AggregateSpec], dict[str, str]]:
    """Return the stored aggregates of a group, and result column -> their description.

    Raises:
        TopologyException: an aggregate cannot be stored.
    """
    others = aggregation.columns.fields[len(aggregation.keys) :]
    columns = {column.name: column for column in taken.columns}
    states, held = aggregate_states(aggregation, taken), {}
    for index, (call, result) in enumerate(zip(aggregation.calls, others, strict=not aggregation.newest)):
        arguments = [columns[name] for name in call.argument_names(index)]
        fields = [column.field for column in arguments]
        of = ", ".join(field.dataType.simpleString() for field in fields)
        words = f"{'DISTINCT ' if call.distinct else ''}{', '.join(taken.words(one.number) for one in arguments)}"
        # This option changes the state; others only the result.
        size = f" in 2^{call.options[0]}" if call.function == "approx_count_distinct" else ""
        held[result.name] = f"{call.function}({words}) of {of}{size}" if arguments else "count(*)"
    if aggregation.newest:
        which = "newest row" if aggregation.ranking is None else held_rows(aggregation.ranking)
        held = {"newest row": f"{which} of {StructType(others).simpleString()}"}
    # A group's newest timestamp is stored with its state and becomes the timestamp of its output.
    states.append(AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()))
    return states, held


def _watermark(aggregation: Aggregation, ahead_ms: int, sources: int, *, limited: bool) -> WindowWatermark | None:
    """Return when the windows of a grouping close; None if they never do.

    Args:
        aggregation: the grouping.
        ahead_ms: event times further ahead of the machine's clock than this do not advance the watermark.
        sources: number of source topics with watermarks of their own, or 0.
        limited: True if tasks that write a source topic may lag: then it has a watermark of its own, too.

    Raises:
        TopologyException: the retention is invalid or negative, or there are too many sources.
    """
    if aggregation.window is None or aggregation.watermark is None:
        return None
    where = str(aggregation.call_site)
    retention_ms = 0
    if aggregation.retention is not None:
        retention_ms = interval_ms(
            aggregation.retention, f"{where}: agg(..., retention={aggregation.retention!r}), read as a delay"
        )
    if sources > MOST_SOURCES:
        raise TopologyException(
            f"{where}: max.task.idle.ms is for groupings of {MOST_SOURCES} topics at most, and this one reads "
            f"{sources}; leave it at 0"
        )
    delay_ms = aggregation.watermark.delay_ms
    separate = sources > 1 or limited
    return WindowWatermark(delay_ms, aggregation.window, aggregation.final, ahead_ms, retention_ms, separate)


def _warn_of_lists(aggregation: Aggregation, texts: Sequence[str], states: Sequence[AggregateSpec]) -> None:
    """Warn about aggregates that write all values of a group with each update."""
    if aggregation.final:
        return
    # The last state is the newest timestamp, which no user wrote; a table of newest rows has no other.
    for text, state in zip(texts, states, strict=False):
        if state.in_order:
            log.warning(
                "%s: %s writes the whole list of a group with each update; if lists grow long, write each window "
                'once: outputMode("append") after withWatermark()',
                aggregation.call_site,
                text,
            )
