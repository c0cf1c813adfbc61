"""Input and state of a stateful step: grouping columns and arguments as plain columns, aggregates, descriptions.

Catalyst evaluates keys and arguments in a projection before the step; only the aggregate functions are ours.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.calls import AggregateCalls, read_aggregates
from sparkrelay.operators.ranking.plan import check_order, held_rows, with_places
from sparkrelay.runtime.compile.catalyst import as_column, named, projected_sql
from sparkrelay.runtime.compile.row_steps import check_repeatable, checked, refuse_hidden, visible
from sparkrelay.runtime.compile.schemas import aggregate_spec, check_groupable, check_packable, without_kafka
from sparkrelay.runtime.compile.watermarks import check_sessions, event_time
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.state.aggregate import AggregateSpec
from sparkrelay.state.batch import SPREAD_BY
from sparkrelay.topology import NamedAggregate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from sparkrelay.operators.watermarks import WindowWatermark
    from sparkrelay.topology import Aggregation, Leg

#: Longest description of a store's contents, in characters.
_LONGEST_CONTENTS = 2000


def projected(aggregation: Aggregation, rows: DataFrame, hidden: Sequence[str]) -> tuple[DataFrame, AggregateCalls]:
    """Return the input of a stateful step, and its aggregates.

    Args:
        aggregation: the step.
        rows: the rows before it.
        hidden: their hidden columns.

    Raises:
        TopologyException: a column does not exist, or cannot be grouped by, aggregated or stored.
    """
    if aggregation.newest:
        return _newest(aggregation, with_places(aggregation, rows), hidden)
    return _grouped(aggregation, rows, hidden)


def finished(leg: Leg, keeper: Leg, aggregates: AggregateCalls, rows: DataFrame, hidden: Sequence[str]) -> DataFrame:
    """Return the rows of a stateful step with columns computed from its aggregates.

    Args:
        leg: the leg of the rows.
        keeper: the leg that keeps the store.
        aggregates: the step's aggregates.
        rows: the step's output.
        hidden: their hidden columns.

    Raises:
        TopologyException: rows are subtracted later, and a column is not deterministic.
    """
    after = aggregates.finish(rows, hidden)
    if leg.filters_table or leg.sends_changes:
        assert keeper.aggregation is not None, "it keeps the store"
        check_repeatable(keeper.aggregation, rows, after)
    return after


def held_states(
    aggregation: Aggregation, rows: DataFrame, aggregates: AggregateCalls
) -> tuple[list[AggregateSpec], dict[str, str]]:
    """Return the stored aggregates of a group, and result column -> their description.

    Args:
        aggregation: the step.
        rows: its input (:func:`projected`).
        aggregates: its aggregates.

    Raises:
        TopologyException: an aggregate cannot be stored.
    """
    where = str(aggregation.call_site)
    others = aggregates.held.fields[len(aggregation.keys) :]
    states = []
    texts = projected_sql(rows, {name for at, call in enumerate(aggregates.calls) for name in call.argument_names(at)})
    held = {}
    for index, (call, result) in enumerate(zip(aggregates.calls, others, strict=not aggregation.newest)):
        arguments = [rows.schema[name] for name in call.argument_names(index)]
        states.append(
            aggregate_spec(call.function, arguments, result, where, distinct=call.distinct, options=call.options)
        )
        of = ", ".join(argument.dataType.simpleString() for argument in arguments)
        words = f"{'DISTINCT ' if call.distinct else ''}{', '.join(texts[argument.name] for argument in arguments)}"
        # This option changes the state; others only the result.
        size = f" in 2^{call.options[0]}" if call.function == "approx_count_distinct" else ""
        held[result.name] = f"{call.function}({words}) of {of}{size}" if arguments else "count(*)"
    if aggregation.newest:
        which = "newest row" if aggregation.ranking is None else held_rows(aggregation.ranking)
        held = {"newest row": f"{which} of {StructType(others).simpleString()}"}
    # A group's newest timestamp is stored with its state and becomes the timestamp of its output.
    states.append(AggregateSpec("max", hidden_columns.TIMESTAMP, pa.int64(), pa.int64()))
    return states, held


def contents(
    held: Iterable[str],
    keys: Iterable[StructField],
    computed: Mapping[str, str],
    *,
    watermark: WindowWatermark | None,
    logged: bool,
    by: str,
) -> str:
    """Describe a store's contents; a pipeline with another description is rejected.

    Args:
        held: descriptions of its aggregates, or of its rows' columns.
        keys: its grouping columns.
        computed: column -> expression.
        watermark: when its windows close, or None.
        logged: whether it has a changelog. A store with a watermark or a changelog cannot continue from one without,
            nor the reverse: not all of it is in the changelog.
        by: what decides the partition of its rows.
    """
    over = "" if watermark is None else f", over with {watermark.window}"
    without = "" if logged else ", without changelog"
    return brief(f"{', '.join(held)} by {', '.join(key_text(key, computed) for key in keys)}{over}{without}{by}")


def key_text(field: StructField, computed: Mapping[str, str]) -> str:
    """Describe a grouping column: name, type, and its expression unless it is a source column.

    Nullable structs are marked: their nulls once had the key of a struct of nulls.
    """
    made = f" = {computed[field.name]}" if field.name in computed else ""
    null = " or null" if isinstance(field.dataType, StructType) and field.nullable else ""
    return f"{field.name} {field.dataType.simpleString()}{null}{made}"


def brief(text: str) -> str:
    """Return a text that fits into the state's small records: a very long one is cut and gets a digest."""
    if len(text) <= _LONGEST_CONTENTS:
        return text
    return f"{text[:_LONGEST_CONTENTS]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"


def _grouped(aggregation: Aggregation, rows: DataFrame, hidden: Sequence[str]) -> tuple[DataFrame, AggregateCalls]:
    where = str(aggregation.call_site)
    keys: list[Column] = [as_column(key) for key in aggregation.keys]
    check_sessions(aggregation, rows)
    # Spark checks the aggregates' types, on a plan that never runs.
    grouped = checked(where, lambda: rows.groupBy(*aggregation.keys).agg(*_columns(aggregation)))
    check_groupable(StructType(grouped.schema.fields[: len(aggregation.keys)]), where)
    # Some expressions without an alias are named differently by select() and groupBy(): d, and CAST(d AS INT).
    selected = checked(where, lambda: rows.select(*keys)).columns
    keys = [
        key if name == wanted else key.alias(wanted)
        for key, name, wanted in zip(keys, selected, grouped.columns, strict=False)
    ]
    aggregates = read_aggregates(grouped, len(keys), where)
    arguments = [
        argument.alias(name)
        for index, call in enumerate(aggregates.calls)
        for argument, name in zip(call.arguments, call.argument_names(index), strict=True)
    ]
    times = _event_times(aggregation, rows)
    taken = checked(where, lambda: rows.select(*keys, *arguments, *named(hidden), *times))
    if hidden_columns.CHANGE in hidden:
        check_repeatable(aggregation, rows, taken)
    if "*" in aggregation.text:
        refuse_hidden(where, aggregation.text, taken, rows)
    return taken, aggregates


def _newest(table: Aggregation, rows: DataFrame, hidden: Sequence[str]) -> tuple[DataFrame, AggregateCalls]:
    where = str(table.call_site)
    keys = checked(where, lambda: rows.select(*table.keys)).columns
    schema = _newest_schema(rows, keys, where)
    check_order(table, schema)
    times = _event_times(table, rows)
    columns = named((*schema.names, *hidden))
    taken = checked(where, lambda: rows.select(*columns, *times))
    return taken, AggregateCalls((), schema, schema)


def _event_times(aggregation: Aggregation, rows: DataFrame) -> list[Column]:
    """Return the hidden column of event times, if there is a watermark."""
    if aggregation.watermark is None:
        return []
    return [F.unix_millis(event_time(aggregation, rows)).alias(hidden_columns.EVENT_TIME)]


def _newest_schema(rows: DataFrame, key: Sequence[str], where: str) -> StructType:
    """Return the columns of a table of newest rows, key first; the others are nullable, as in a deleted row.

    Raises:
        TopologyException: a column has a type that cannot be stored.
    """
    columns = without_kafka(visible(rows))
    for name in key:
        if name not in columns.names:
            # Spark resolves it in another case, or it is Kafka's own.
            alike = [other for other in columns.names if other.lower() == name.lower()]
            raise TopologyException(
                f"{where}: the rows have no column {name!r} to be the key, but {', '.join(alike or columns.names)}; "
                "write its name as it stands there"
            )
    others = [StructField(field.name, field.dataType) for field in columns if field.name not in key]
    schema = StructType([*(columns[name] for name in key), *others])
    lower = [name.lower() for name in schema.names]
    twice = [name for name in schema.names if lower.count(name.lower()) > 1]
    if twice:
        raise TopologyException(f"{where}: two columns of the table have the name {twice[0]!r}; rename or drop one")
    check_groupable(StructType([columns[name] for name in key]), where)
    check_packable(schema, where, "be kept in a table")
    return schema


def _columns(aggregation: Aggregation) -> list[Column]:
    return [
        getattr(F, a.function)(a.column or "*").alias(a.name) if isinstance(a, NamedAggregate) else a
        for a in aggregation.aggregates
    ]


def spread(leg: Leg, legs: Sequence[Leg]) -> str:
    """Describe what decides the partition of a store's rows; with another rule, groups belong to other tasks.

    Users' topics are partitioned by the message key, in whatever way their producers do it.
    """
    return f"{SPREAD_BY}{', '.join(repartitioned_by(leg, legs)) or 'the message key'}"


def repartitioned_by(leg: Leg, legs: Sequence[Leg]) -> tuple[str, ...]:
    """Return the columns that decide a row's partition in a repartition topic; none for a user's topic."""
    if not leg.source.internal:
        return ()
    writers = (writer.sink for writer in legs if writer.sink is not None and writer.sink.internal)
    key = next(sink.key for sink in writers if sink.topic in leg.source.topics)
    assert isinstance(key, tuple), "a repartition topic is written by columns"
    return key


def partitioned_by(leg: Leg, legs: Sequence[Leg], keys: Collection[str]) -> tuple[str, ...] | None:
    """Return the grouping columns that make the message key, which decides a group's task.

    None if they are not all among ``keys``, the grouping columns that are unchanged source columns.
    """
    if leg.source.internal:
        columns = repartitioned_by(leg, legs)
    elif leg.source.key is not None and (column := leg.source.key.only_column("key")) is not None:
        columns = (column,)
    else:
        return None
    return columns if set(columns) <= set(keys) else None
