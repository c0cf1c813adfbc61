"""Groupings: what an ``Aggregate`` of an analysed plan means.

Its arguments and keys become a projection in front of the stateful step, what is computed of several aggregates one
behind it; only the aggregate functions are ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType, TimestampNTZType, _parse_datatype_json_string

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import alias, analyzed, attributes, replaced
from sparkrelay.catalyst.intervals import interval_us
from sparkrelay.catalyst.jvm import items, kind
from sparkrelay.catalyst.windows import time_window
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.calls import read_calls
from sparkrelay.topology.building.row_checks import check_name_without_seed
from sparkrelay.topology.naming import check_name, check_topic
from sparkrelay.topology.nodes import AggregationNode, LateNode, SinkNode
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of, require_same_time
from sparkrelay.topology.reading.regrouping import SESSION, WINDOW, regrouped
from sparkrelay.topology.record import DELAY, as_column, attribute, begin, projected, spark_errors, unique, with_rows
from sparkrelay.topology.refusals import SESSIONS_OF_TABLE, SESSIONS_WITHOUT_END
from sparkrelay.topology.schemas import check_groupable, without_metadata
from sparkrelay.topology.spread import Spread
from sparkrelay.topology.structure import Aggregation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.operators.aggregate.calls import ReadCall
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import RowColumn, Rows

_ALONE: Final = "F.session_window() stands by itself among the columns of groupBy(), and with no other window"


def aggregated(record: Record, call: Call, rows: Rows, at: Plan, *, of_all: bool = False) -> Rows:
    """Write a grouping down; return the rows of its table, with the columns of the plan's node.

    Args:
        record: of the builder.
        call: of the user's.
        rows: what is grouped.
        at: the ``Aggregate``.
        of_all: whether it is of all rows, by a column with one value.

    Raises:
        TopologyException: it cannot be grouped by, an aggregate is not supported, or an argument is not right.
    """
    where = call.where
    keys = items(at.java.groupingExpressions())
    results = items(at.java.aggregateExpressions())
    given = at.by_field["groupingExpressions"]
    names = key_names(given, at.by_field["aggregateExpressions"])
    if rows.node.is_table and any(one.is_attribute and SESSION in _metadata(rows, one) for one in given):
        raise TopologyException(f"{where}: groupBy() of a table takes no F.session_window(): {SESSIONS_OF_TABLE}")
    of_table = rows.node.is_table
    rows, now, before, decides = regrouped(record, call, rows, given, keys, names)
    calls, direct = read_calls(results, where, of_table=of_table)
    time = event_time(rows)
    taken = _taken(call, rows, now, names, calls, time)
    windows = [name for name in names if {WINDOW, SESSION} & {*(taken.schema[name].metadata or {})}]
    sessions = [name for name in windows if SESSION in taken.schema[name].metadata]
    _check_windows(call, rows, given, windows, sessions, time)
    held = _held(taken, names, at, calls, direct)
    said = [*_results(given, at), *(() if call.retention is None else (f"retention={call.retention!r}",))]
    said += [] if call.logged else ["logged=False"]
    text = f"groupBy({', '.join(map(words, given))}).agg({', '.join(said)})"
    for name, one in zip(names, given, strict=True):
        check_name_without_seed(rows.made.get(one.number, (one,))[0] if one.is_attribute else one, name, rows)
    step = Aggregation(
        store="",
        keys=tuple(names),
        calls=tuple(one.call for one in calls),
        columns=without_metadata(held),
        logged=call.logged,
        call_site=call.call_site,
        text=text,
        watermark=None if time is None else event_time_of(rows, time),
        window=windows[0] if windows else None,
        sessions=bool(sessions),
        retention=call.retention,
        decided_by=None if decides is None else tuple(names[index] for index in decides),
        of_all=of_all,
    )
    node = AggregationNode(
        call_site=call.call_site,
        text=text,
        given=taken,
        grouped=before,
        step=step,
        name=check_name(call.name, call.call_site),
        words=tuple(names),
        origins={place: (taken, taken.columns[place].number) for place in range(len(keys))},
    )
    whole = decides is not None and decides == tuple(range(len(names)))
    record.add(
        node, attributes(held), Spread.of_key(range(len(names)), names) if whole else Spread({}), streaming=False
    )
    if call.late_to is not None:
        _late(record, call, rows, before, node, windows)
    return _finished(node, keys, results, calls, direct)


def _metadata(rows: Rows, one: Expression) -> dict[str, Any]:
    return rows.column(one.number).field.metadata or {}


def key_names(given: Sequence[Expression], shown: Sequence[Expression]) -> list[str]:
    """Return what grouping columns are called: as they are, or as the result calls them."""
    called = {words(one.children[0]): one.name for one in shown if one.kind == "Alias"}
    shown_as_they_are = {one.number for one in shown if one.is_attribute}
    names = []
    for one in given:
        if one.is_attribute and one.number in shown_as_they_are:
            names.append(one.name)
        else:
            names.append(called.get(words(one), one.name if one.is_attribute else words(one)))
    return unique(names)


def _results(given: Sequence[Expression], at: Plan) -> list[str]:
    """Return what is computed, in words."""
    numbers = {one.number for one in given if one.is_attribute}
    keys = {words(one) for one in given}
    shown = at.by_field["aggregateExpressions"]
    return [
        words(one)
        for one in shown
        if not (one.is_attribute and one.number in numbers)
        and not (one.kind == "Alias" and words(one.children[0]) in keys)
    ]


def _taken(  # noqa: PLR0917 - what is known of one step
    call: Call, rows: Rows, keys: Sequence[Any], names: Sequence[str], calls: Sequence[ReadCall], time: RowColumn | None
) -> Rows:
    """Return what the stateful step takes in: the keys, the aggregates' arguments, and event times."""
    columns = [as_column(key).alias(name) for key, name in zip(keys, names, strict=True)]
    for index, one in enumerate(calls):
        named = zip(one.arguments, one.call.argument_names(index), strict=True)
        columns += [argument.alias(name) for argument, name in named]
    if time is not None:
        columns.append(F.unix_millis(as_timestamp(rows, time)).alias(hidden_columns.EVENT_TIME))
    with spark_errors(call.call_site):
        taken = with_rows(rows, rows.frame.select(*columns), unsaid=1)
        check_groupable(StructType(taken.schema.fields[: len(names)]), call.where)
    return taken


def _held(
    taken: Rows, names: Sequence[str], at: Plan, calls: Sequence[ReadCall], direct: Mapping[int, int]
) -> StructType:
    """Return the columns of the store's rows: the keys, then what its aggregates come to."""
    shown = at.by_field["aggregateExpressions"]
    fields = [
        StructField(name, field.dataType, field.nullable, _lasting(field))
        for name, field in zip(names, taken.schema, strict=False)
    ]
    called_by = {which: shown[place].name for place, which in direct.items()}
    for index, one in enumerate(calls):
        name = called_by.get(index, one.call.text)
        of = _parse_datatype_json_string(one.expression.dataType().json())
        fields.append(StructField(name, of, bool(one.expression.nullable())))
    called = unique(field.name for field in fields)
    return StructType(
        [
            StructField(name, field.dataType, field.nullable, field.metadata)
            for name, field in zip(called, fields, strict=True)
        ]
    )


def _lasting(field: StructField) -> dict[str, Any]:
    """Return the metadata that a column has behind the grouping: a watermark is said anew there."""
    return {name: value for name, value in (field.metadata or {}).items() if name != DELAY}


def _finished(
    node: AggregationNode,
    keys: Sequence[Any],
    results: Sequence[Any],
    calls: Sequence[ReadCall],
    direct: Mapping[int, int],
) -> Rows:
    """Return the table's rows as the user has asked for them, computed of keys and aggregates."""
    rows = begin(node)
    output = items(analyzed(rows.frame).output())
    known = list(zip([*keys, *(one.expression for one in calls)], output, strict=True))
    columns = []
    for place, result in enumerate(results):
        whole = result.child() if kind(result) == "Alias" else result
        of = output[len(keys) + direct[place]] if place in direct else replaced(whole, known)
        columns.append(alias(of, result.name(), result.exprId()))
    return projected(rows, columns)


def _is_local(window: DataType) -> bool:
    """Return whether the bounds of a window are times without a zone."""
    return isinstance(window, StructType) and isinstance(window["end"].dataType, TimestampNTZType)


def _late(record: Record, call: Call, rows: Rows, before: Rows, node: AggregationNode, windows: Sequence[str]) -> None:  # noqa: PLR0917 - what is known of one step
    """Write down where rows go whose window is over."""
    where = call.where
    if node.step.watermark is None:
        raise TopologyException(
            f"{where}: agg(..., late_to=...) needs to know which rows are late: put "
            'withWatermark("time", "10 minutes") before groupBy()'
        )
    if not windows:
        raise TopologyException(
            f"{where}: late_to= is for the rows whose window is over, and this grouping has none: group by "
            'F.window("time", "1 hour") too'
        )
    number = next(column.number for column in node.given.columns if column.name == windows[0])
    number = node.given.made[number][0].number if number in node.given.made else number
    columns = [as_column(attribute(rows, column.number)).alias(column.name) for column in before.columns]
    window = as_column(attribute(rows, number)).alias(hidden_columns.WINDOW)
    with spark_errors(call.call_site):
        given = with_rows(rows, rows.frame.select(*columns, window), unsaid=1)
    if given.drawn_for([given.columns[-1].number]) is not None:
        raise TopologyException(
            f"{where}: late_to=: a row's window, or whether there is a row, is not deterministic, so that it could be "
            "late in one leg and not in the other. Put repartition(...) behind the step that draws"
        )
    late = LateNode(call_site=call.call_site, text="late rows", given=given, table=node)
    record.add(late, analyzed(before.frame).output(), Spread({}))
    topic = check_topic(call.late_to, call.call_site)
    record.end(SinkNode(given=begin(late), call_site=call.call_site, name=None, topic=topic, key=None, value=None))


def _check_gap(made: Sequence[Expression], where: str) -> None:
    """Reject a gap that is the same for all rows and no interval: Spark would leave all rows out."""
    window = time_window(made)
    gap = None if window is None else window.gap
    if gap is None or gap.kind != "Literal" or gap.fields["dataType"] != "string":
        return
    text = str(gap.fields.get("value"))
    with spark_errors(f"{where}: gap {text!r} of F.session_window()"):
        us = interval_us(text)
    if us == 0:
        raise TopologyException(f"{where}: gap {text!r} of F.session_window() is no time at all")


def _check_windows(  # noqa: PLR0917 - what is known of one step
    call: Call,
    rows: Rows,
    given: Sequence[Expression],
    windows: Sequence[str],
    sessions: Sequence[str],
    time: RowColumn | None,
) -> None:
    """Reject windows that cannot be kept, or that would never end where they have to."""
    where = call.where
    if sessions and len(windows) > 1:
        raise TopologyException(f"{where}: {_ALONE}")
    if sessions and time is None:
        raise TopologyException(f"{where}: {SESSIONS_WITHOUT_END}")
    for one in given:
        if not one.is_attribute or not {WINDOW, SESSION} & {*_metadata(rows, one)}:
            continue
        column = rows.column(one.number)
        if sessions and one.number in rows.made:
            _check_gap(rows.made[one.number], where)
        elif sessions:
            # In Spark, they merge.
            raise TopologyException(
                f"{where}: the sessions in column {column.name!r} were made before, and do not merge here; write "
                f"F.session_window() in groupBy(), or group by {column.name}.start and {column.name}.end"
            )
        if time is not None:
            require_same_time(rows, column, time, where)
            if _is_local(column.field.dataType):
                raise TopologyException(
                    f"{where}: {column.name!r} is a window of timestamp_ntz, which has no zone as the watermark has; "
                    'make the window of a timestamp, F.window(F.col("time").cast("timestamp"), ...)'
                )
    if call.retention is not None and not windows:
        raise TopologyException(
            f"{where}: retention={call.retention!r} keeps windows that are over, and this grouping has none: group by "
            'F.window("time", "1 hour") too'
        )
    if call.retention is not None and time is None:
        raise TopologyException(
            f"{where}: agg(..., retention={call.retention!r}) needs to know when a window is over: put "
            'withWatermark("time", "10 minutes") before groupBy()'
        )
