"""Running aggregates: a function over a window of rows gives each row its own value (``operators.running``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    _parse_datatype_json_string,
)

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import analyzed, without_leaves
from sparkrelay.catalyst.intervals import literal_us
from sparkrelay.catalyst.jvm import items, kind, nodes
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.calls import AggregateCall, read_call
from sparkrelay.operators.running.step import Frame, Running, RunningColumn
from sparkrelay.topology.event_time import EventTime
from sparkrelay.topology.nodes import EmittingNode
from sparkrelay.topology.reading.emitting import keyed, with_step
from sparkrelay.topology.reading.event_times import event_time, event_time_of, has_waited
from sparkrelay.topology.record import DELAY, as_column, attribute, filtered, named, unique
from sparkrelay.topology.refusals import FRAME, FRAME_BEHIND, FRAME_ORDER, OTHER_WINDOWS, RUNNING_OF_TABLE
from sparkrelay.topology.schemas import aggregate_spec, without_metadata

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.topology.reading.calls import Call, Reading
    from sparkrelay.topology.rows import Rows

log = logging.getLogger(__name__)

_Call = tuple[AggregateCall, tuple[str, ...], Frame, str | None]
#: The most rows before or after a row that its frame may include.
_MOST: Final = 1_000
#: Fields of ``kafka`` that say when a record came.
_BY_ARRIVAL: Final = frozenset({"offset", "timestamp"})
_TIMES: Final = (DateType, TimestampNTZType, TimestampType)
#: Functions that turn a timestamp into a number -> one of these, in µs.
_UNITS: Final = {"UnixSeconds": 1_000_000, "UnixMillis": 1_000, "UnixMicros": 1}


def running(reader: Reading, at: Plan) -> Rows:
    """Write down running aggregates; return the rows with their columns.

    Args:
        reader: of the plan.
        at: the ``Window``.

    Raises:
        TopologyException: a function or a frame is not supported, or nothing says the order of the rows.
    """
    call, record = reader.call, reader.record
    rows = reader.rows(at.children[0])
    if rows.node.is_table:
        raise TopologyException(f"{call.where}: {_said(at)}: {RUNNING_OF_TABLE}")
    partition = at.by_field.get("partitionSpec", ())
    if not partition:
        raise TopologyException(f"{call.where}: {_said(at)}: the window needs partitionBy(...) for the key")
    numbers = [one.number for one in partition]
    by = _ordered_by(call, at)
    sorted_ = _in_order(rows, by, numbers) and _by_rows(at)
    if not sorted_ and has_waited(rows, by):
        raise TopologyException(f"{call.where}: {_said(at)}: {FRAME_BEHIND}")
    order = None if sorted_ else _order(call, rows, at, by)
    if order is not None:
        rows = filtered(rows, order.number)
    taken = keyed(record, call, rows, numbers)
    rows = taken.rows
    made = items(at.java.windowExpressions())
    columns: list[Any] = []
    calls: list[_Call] = []
    extra: list[StructField] = []
    for expression in made:
        function, arguments, frame, default = _function(call, expression.child(), order)
        index = len(calls)
        names = function.argument_names(index)
        columns += [one.alias(name) for one, name in zip(arguments, names, strict=True)]
        default_name = None if default is None else f"{hidden_columns.PREFIX}default_{index}"
        if default is not None:
            columns.append(default.alias(default_name))
        calls.append((function, names, frame, default_name))
        extra.append(StructField(str(expression.name()), _parse_datatype_json_string(expression.dataType().json())))
    if order is not None:
        time = as_column(attribute(rows, order.number))
        micros = F.unix_micros(time.cast("timestamp")) if order.unit is None else time * order.unit
        columns.append(micros.alias(hidden_columns.EVENT_MICROS))
    given = named(rows, *columns)
    fields = given.schema.fields[: len(rows.columns)]
    called = unique([*(field.name for field in fields), *(field.name for field in extra)])
    extra = [StructField(name, one.dataType) for name, one in zip(called[len(fields) :], extra, strict=True)]
    step = Running(
        store="",
        columns=tuple(fields[place].name for place in taken.places),
        calls=tuple(_column(call, given.schema, one, field) for one, field in zip(calls, extra, strict=True)),
        made=without_metadata(StructType([*fields, *extra])),
        watermark=None if order is None else order.watermark,
        time=None if order is None and not sorted_ else _name_of(fields, rows, by),
        logged=call.logged,
        call_site=call.call_site,
        text=_said(at),
    )
    return with_step(record, call, taken, given, step, [one.toAttribute().withNullability(True) for one in made])


def _said(at: Plan) -> str:
    return ", ".join(words(one.children[0] if one.kind == "Alias" else one) for one in at.by_field["windowExpressions"])


class _Order(NamedTuple):
    """The column of event times that rows are ordered by.

    Attributes:
        number: Catalyst's number of the column.
        unit: how many microseconds one of it is; None for a timestamp.
        watermark: of these times.
    """

    number: int
    unit: int | None
    watermark: EventTime


def _ordered_by(call: Call, at: Plan) -> int:
    """Return the number of the column that rows are ordered by.

    Raises:
        TopologyException: they are ordered by several columns, by none, or backwards.
    """
    order = at.by_field.get("orderSpec", ())
    if len(order) != 1 or "Ascending" not in str(order[0].fields["direction"]) or not order[0].children[0].is_attribute:
        raise TopologyException(f"{call.where}: {_said(at)}: {FRAME_ORDER}")
    return order[0].children[0].number


def _name_of(fields: Sequence[StructField], rows: Rows, number: int) -> str:
    return str(fields[next(place for place, one in enumerate(rows.columns) if one.number == number)].name)


def _by_rows(at: Plan) -> bool:
    """Return whether all frames count rows, and none goes by times, which rows may share."""
    specs = (one.child().windowSpec().frameSpecification() for one in items(at.java.windowExpressions()))
    return all(kind(spec.frameType()) == "RowFrame" for spec in specs)


def _in_order(rows: Rows, by: int, partition: Sequence[int]) -> bool:
    """Return whether rows of a key come in the order of a column, from a step that gave them this order."""
    node, time = rows.node, rows.copy(by)
    if not isinstance(node, EmittingNode) or not isinstance(node.step, Running) or time is None:
        return False
    copies = (rows.copy(number) for number in partition)
    names = {str(node.leaf.columns.names[one.place]) for one in copies if one is not None and not one.fields}
    ordered = not time.fields and node.leaf.columns.names[time.place] == node.step.time
    return ordered and names >= {*node.step.columns}


def _order(call: Call, rows: Rows, at: Plan, number: int) -> _Order | None:
    """Return what rows are ordered by; None for the order of arrival.

    Raises:
        TopologyException: they are ordered by something else.
    """
    refused = TopologyException(f"{call.where}: {_said(at)}: {FRAME_ORDER}")
    time = event_time(rows)
    if time is not None and _same(rows, number, time.number):
        return _Order(number, None, event_time_of(rows, time))
    made, before = _made(rows, number)
    if made is not None and (found := _of_time(made)) is not None:
        unit, of = found
        name, delay = _watermark(before, of)
        return None if delay is None else _Order(number, unit, EventTime(name, delay))
    if made is not None and made.kind == "GetStructField" and made.fields["name"] in _BY_ARRIVAL:
        return None
    if time is None and isinstance(rows.column(number).field.dataType, _TIMES):
        log.warning(
            "%s: %s: without withWatermark() rows are taken in the order of their arrival, not of %s; put "
            'withWatermark("%s", "10 minutes") before it, with how late rows may come',
            call.where,
            _said(at),
            *[rows.column(number).name] * 2,
        )
        return None
    raise refused


def _watermark(rows: Rows, number: int) -> tuple[str, int | None]:
    """Return the name of a column below rows, and the delay of its watermark, in milliseconds; None without one."""
    for node in nodes(analyzed(rows.frame)):
        for one in items(node.output()):
            if int(one.exprId().id()) == number and one.metadata().contains(DELAY):
                return str(one.name()), int(one.metadata().getLong(DELAY))
    return "", None


def _made(rows: Rows, number: int) -> tuple[Expression | None, Rows]:
    """Return what a column is made of, and the rows in which it is; None for a column that is read."""
    while True:
        made = rows.made[number][0] if number in rows.made else None
        if made is not None and not made.is_attribute:
            return made, rows
        copy = rows.copy(number)
        before = None if copy is None or copy.fields else rows.node.origin(copy.place)
        if before is None:
            return None, rows
        rows, number = before


def _of_time(expression: Expression) -> tuple[int, int] | None:
    """Return how many microseconds one of a number of time is, and the number of the time's column."""
    unit = _UNITS.get(expression.kind)
    if expression.kind == "Cast" and str(expression.fields["dataType"]) in {"bigint", "long"}:
        unit = 1_000_000
    if unit is None or not expression.children[0].is_attribute:
        return None
    return unit, expression.children[0].number


def _same(rows: Rows, one: int, other: int) -> bool:
    return one == other or (rows.copy(one) is not None and rows.copy(one) == rows.copy(other))


def _function(
    call: Call, window: Any, order: _Order | None
) -> tuple[AggregateCall, tuple[Any, ...], Frame, Any | None]:
    """Return the aggregate of a function over a window, its arguments, its frame, and its default.

    Raises:
        TopologyException: the function or the frame is not supported.
    """
    function, found = window.windowFunction(), kind(window.windowFunction())
    where = f"{call.where}: {without_leaves(str(window.sql()))}"
    if found in {"Lag", "Lead"} and not bool(function.ignoreNulls()):
        offset = int(function.offset().eval(None))
        first = AggregateCall("first", 1, text=without_leaves(str(window.sql())))
        default = function.default()
        missing = None if kind(default) == "Literal" and default.value() is None else as_column(default)
        return first, (as_column(function.input()),), _within(where, Frame(offset, offset)), missing
    if found == "RowNumber":
        return AggregateCall("count_all", 0, text="row_number()"), (), Frame(), None
    if found != "AggregateExpression":
        raise TopologyException(f"{where}: {OTHER_WINDOWS}")
    read = read_call(function, call.where)
    if read.call.distinct:
        raise TopologyException(f"{where}: {OTHER_WINDOWS}")
    return read.call, read.arguments, _frame(where, window.windowSpec().frameSpecification(), order), None


def _frame(where: str, frame: Any, order: _Order | None) -> Frame:
    by_rows = kind(frame.frameType()) == "RowFrame"
    lower, upper = frame.lower(), frame.upper()
    if by_rows:
        end = _place(upper)
        if end is None:
            raise TopologyException(f"{where}: {FRAME}")
        return _within(where, Frame(_place(lower), end))
    if kind(upper) != "CurrentRow" or kind(lower) == "UnboundedFollowing":
        raise TopologyException(f"{where}: {FRAME}")
    first = kind(lower) == "UnboundedPreceding"
    if order is None:
        if not first:
            raise TopologyException(f"{where}: {FRAME}")
        # Of rows in the order of arrival none is beside another one.
        return Frame()
    if first:
        return Frame(reach_us=-1)
    if kind(lower) == "CurrentRow":
        return Frame(reach_us=0)
    value = literal_us(lower.eval(None))
    interval = "Interval" in str(lower.dataType().getClass().getSimpleName())
    if value is None or value > 0:
        raise TopologyException(f"{where}: {FRAME}")
    return Frame(reach_us=-value * (1 if interval else order.unit or 1))


def _place(bound: Any) -> int | None:
    if kind(bound) == "CurrentRow":
        return 0
    return None if kind(bound).startswith("Unbounded") else int(bound.eval(None))


def _within(where: str, frame: Frame) -> Frame:
    if max(frame.end, frame.rows_before) > _MOST:
        raise TopologyException(f"{where}: {FRAME}")
    return frame


def _column(call: Call, schema: StructType, one: _Call, field: StructField) -> RunningColumn:
    function, names, frame, default = one
    arguments = [schema[name] for name in names]
    spec = aggregate_spec(function.function, arguments, field, call.where, options=function.options)
    if spec.collects:
        raise TopologyException(f"{call.where}: {function.text}: {OTHER_WINDOWS}")
    return RunningColumn(field.name, spec, frame, default)
