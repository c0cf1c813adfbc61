"""What the stateful step of a leg needs to know, made of what Catalyst says of its rows."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkrelay.client.config import longest_request
from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.layout import AggregateLayout, SessionsLayout
from sparkrelay.operators.aggregate.run import AggregateRunner
from sparkrelay.operators.history.layout import HistoryLayout
from sparkrelay.operators.history.run import HistoryRunner
from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.operators.latest.run import LatestRunner
from sparkrelay.operators.ranking.layout import PlacesLayout, RowsBesideLayout
from sparkrelay.operators.ranking.plan import ranking_spec
from sparkrelay.operators.ranking.tables import RankedTableRunner
from sparkrelay.operators.ranking.windows import RankedWindowsRunner
from sparkrelay.operators.sessions.run import SessionsRunner
from sparkrelay.operators.table.grouping import GroupedRunner
from sparkrelay.runtime.compile.carried_columns import CHANGES, emitted_columns
from sparkrelay.runtime.compile.grouping import contents, held_states, partitioned_by, repartitioned_by, spread
from sparkrelay.runtime.compile.schemas import arrow_schema, hidden_fields
from sparkrelay.runtime.compile.watermarks import interval_ms, watermark_spec
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.topology.event_times import shipped_event_times

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.config import StreamsConfig
    from sparkrelay.operators.aggregate.calls import AggregateCalls
    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.state.aggregate import AggregateSpec
    from sparkrelay.topology import Aggregation, Leg

log = logging.getLogger(__name__)


def state_spec(  # noqa: PLR0917 - what is known of one step
    leg: Leg,
    aggregation: Aggregation,
    taken: DataFrame,
    rows: StructType,
    aggregates: AggregateCalls,
    computed: Mapping[str, str],
    *,
    legs: Sequence[Leg],
    names: TopicNames,
    config: StreamsConfig,
    step: Mapping[str, Any],
) -> tuple[TableRunner, Mapping[str, str]]:
    """Return the state step, and what the columns of its rows are computed from.

    Args:
        leg: the leg.
        aggregation: its stateful step.
        taken: the rows that it takes in.
        rows: their columns that reach it.
        aggregates: what it makes of them.
        computed: what its keys, and the rows' event times, are computed from.
        legs: of the topology.
        names: Kafka's names of its topics.
        config: the instance's settings.
        step: what every step knows, and how this one writes its changelog.

    Raises:
        TopologyException: two columns have one name, or an aggregate or a watermark cannot be.
    """
    results = aggregates.held
    # Of what is computed of several aggregates there is no state by its name.
    shown = aggregates.results.names
    twice = [name for names in (shown, results.names) for name in names if names.count(name) > 1]
    if twice:
        raise TopologyException(
            f"{aggregation.call_site}: two columns of the result have the name {twice[0]!r}; use alias()"
        )
    width = len(aggregation.keys)
    keys = results.fields[:width]
    states, held = held_states(aggregation, taken, aggregates)
    if aggregation.sessions:
        _check_sessions(aggregation, aggregates.texts, states)
    history_ms = None
    if aggregation.history is not None:
        where = f"{aggregation.call_site}: {aggregation.text}"
        history_ms = interval_ms(taken, aggregation.history, f"{where}, read as a delay")
        held = {what: f"{row}, and of those in the {history_ms} ms before" for what, row in held.items()}
    if leg.source.changes:
        if not aggregation.newest:
            states = [replace(state, subtracts=state.distinct) for state in states]
            _check_subtracts(aggregation, aggregates.texts, states)
        held[hidden_columns.CHANGE] = "of the rows of a table"
    sources = len(leg.source.topics) if config.max_task_idle_ms else 0
    _warn_of_lists(aggregation, aggregates.texts, states)
    limited = leg.source.internal and not shipped_event_times(legs).keys().isdisjoint(leg.source.topics)
    watermark = watermark_spec(
        aggregation, taken, keys, config.event_time_after_max_ms, sources, computed=computed, limited=limited
    )
    logged = aggregation.logged
    key_columns = arrow_schema(StructType(keys))
    runner, layout = _kinds(leg, aggregation, key_columns.names, states, history_ms, config, step)
    spec = runner(
        **step,
        layout=layout(
            store=aggregation.store,
            keys=key_columns,
            row=arrow_schema(StructType(results.fields[width:])),
            window=None if watermark is None else watermark.window,
            partitioned_by=partitioned_by(leg, legs, [field.name for field in keys if field.name not in computed]),
            repartitioned_by=repartitioned_by(leg, legs),
        ),
        store=aggregation.store,
        changelog=names.changelog(aggregation.store) if logged and not aggregation.reuses_topic else None,
        contents=contents(held.values(), keys, computed, watermark=watermark, logged=logged, by=spread(leg, legs)),
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
    return spec, {**held, **computed}


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
    return AggregateRunner, partial(AggregateLayout, aggregates=aggregates, most=most, of_changes=of_changes)


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


def _check_sessions(aggregation: Aggregation, texts: Sequence[str], states: Sequence[AggregateSpec]) -> None:
    """Raise TopologyException for an aggregate whose values cannot be merged when sessions merge."""
    for text, state in zip(texts, states, strict=False):
        if state.distinct or state.collects:
            raise TopologyException(
                f"{aggregation.call_site}: {text} is not supported for session windows: sessions merge, and their "
                f"{'collected' if state.collects else 'distinct'} values cannot be merged. Use F.window(), group "
                "without a window, or use approx_count_distinct"
            )


def _check_subtracts(aggregation: Aggregation, texts: Sequence[str], states: Sequence[AggregateSpec]) -> None:
    """Raise TopologyException for an aggregate that a row of a table cannot be taken out of."""
    for text, state in zip(texts, states, strict=False):
        if not AggregateCodec([replace(state, subtracts=True)]).subtracts:
            raise TopologyException(
                f"{aggregation.call_site}: {text} is not supported for the rows of a table: when a row changes, its "
                "old version must be taken out of the group, which this function cannot do. Use count, sum, avg, the "
                "variances and correlations, DISTINCT values, collect_set, mode, median or percentile; or put "
                "to_stream() before groupBy(), which aggregates each change of the table as a row of its own"
            )
