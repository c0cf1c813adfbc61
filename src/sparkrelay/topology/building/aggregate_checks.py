"""What the aggregates of groupings keep, and checks of it: when a pipeline is built, not when an instance starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.topology.schemas import aggregate_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sparkrelay.state.aggregate import AggregateSpec
    from sparkrelay.topology.rows import Rows
    from sparkrelay.topology.structure import Aggregation, Leg


def check_aggregates(legs: Iterable[Leg]) -> None:
    """Check the aggregates of all groupings.

    Raises:
        TopologyException: an aggregate cannot be stored, taken back, or merged when sessions merge.
    """
    for leg in legs:
        aggregation = leg.aggregation
        if aggregation is None or aggregation.newest:
            continue
        states = aggregate_states(aggregation, leg.taken)
        if aggregation.sessions:
            _check_sessions(aggregation, states)
        if leg.source.changes:
            _check_subtracts(aggregation, states)


def aggregate_states(aggregation: Aggregation, taken: Rows) -> list[AggregateSpec]:
    """Return the stored aggregates of a group.

    Args:
        aggregation: the grouping.
        taken: the rows that it takes in.

    Raises:
        TopologyException: an aggregate cannot be stored.
    """
    where = str(aggregation.call_site)
    others = aggregation.columns.fields[len(aggregation.keys) :]
    columns = {column.name: column.field for column in taken.columns}
    states = []
    for index, (call, result) in enumerate(zip(aggregation.calls, others, strict=not aggregation.newest)):
        fields = [columns[name] for name in call.argument_names(index)]
        states.append(
            aggregate_spec(call.function, fields, result, where, distinct=call.distinct, options=call.options)
        )
    return states


def _check_sessions(aggregation: Aggregation, states: Sequence[AggregateSpec]) -> None:
    """Raise TopologyException for an aggregate whose values cannot be merged when sessions merge."""
    for call, state in zip(aggregation.calls, states, strict=True):
        if state.distinct or state.collects:
            raise TopologyException(
                f"{aggregation.call_site}: {call.text} is not supported for session windows: sessions merge, and their "
                f"{'collected' if state.collects else 'distinct'} values cannot be merged. Use F.window(), group "
                "without a window, or use approx_count_distinct"
            )


def _check_subtracts(aggregation: Aggregation, states: Sequence[AggregateSpec]) -> None:
    """Raise TopologyException for an aggregate that a row of a table cannot be taken out of."""
    for call, state in zip(aggregation.calls, states, strict=True):
        if not AggregateCodec([replace(state, subtracts=True)]).subtracts:
            raise TopologyException(
                f"{aggregation.call_site}: {call.text} is not supported for the rows of a table: when a row changes, "
                "its old version must be taken out of the group, which this function cannot do. Use count, sum, avg, "
                "the variances and correlations, DISTINCT values, collect_set, mode, median or percentile; or put "
                "to_stream() before groupBy(), which aggregates each change of the table as a row of its own"
            )
