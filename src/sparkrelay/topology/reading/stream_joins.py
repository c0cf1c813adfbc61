"""Joins of two streams: a ``Join`` of an analysed plan with a stream on both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import analyzed, as_attribute, attributes, frame_of, project
from sparkrelay.catalyst.intervals import interval_us
from sparkrelay.catalyst.jvm import catalyst, java
from sparkrelay.errors import TopologyException
from sparkrelay.operators.stream_join.step import LEFT_ONLY, StreamJoin
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import EmittingNode, behind_state
from sparkrelay.topology.reading.conditions import equal, take_range
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of
from sparkrelay.topology.reading.repartition import sent_by
from sparkrelay.topology.record import as_column, attribute, begin, filtered, spark_errors, unique, with_rows
from sparkrelay.topology.refusals import NO_RANGE
from sparkrelay.topology.schemas import check_groupable, without_metadata
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.reading.conditions import Both, Terms
    from sparkrelay.topology.rows import Rows

_HOW: Final = {
    "Inner": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "left_semi",
    "LeftAnti": "left_anti",
}
#: Longest range of time, in us: more than the range of event times, and safe in 64 bits.
_LONGEST_US: Final = 10_000 * 366 * 24 * 3_600 * 1_000_000
_A_DAY_US: Final = 24 * 3_600 * 1_000_000


class _Side(NamedTuple):
    """One of the streams, as the join takes it in.

    Attributes:
        rows: keys, other columns, event times.
        others: number of a column of the stream -> its name among the others.
        keys: numbers of columns of the stream that are keys as they are -> which.
    """

    rows: Rows
    others: dict[int, str]
    keys: dict[int, int]


def joined(reader: Reading, at: Plan, left: Rows, right: Rows, terms: Terms) -> Rows:
    """Write a join of two streams down; return the rows behind it, with the columns of the plan's node.

    A stream whose rows are not spread by the join's columns goes through a repartition topic.

    Raises:
        TopologyException: nothing is equal in rows that go together, nothing says when rows are too old to go together,
            or a condition is not possible.
    """
    call, record = reader.call, reader.record
    where = f"{call.where}: {call.method}()"
    how = _HOW.get(at.join_type)
    if how is None:
        raise TopologyException(f"{where} of two streams takes inner, outer, semi and anti joins, not {at.join_type}")
    span = _span(reader, left, right, terms)
    times = [_time(reader, rows, word) for rows, word in ((left, "left"), (right, "right"))]
    if not terms.pairs:
        raise TopologyException(
            f'{where} of two streams needs columns that are equal in rows that go together: on="user", or a condition '
            "with left.user == right.user"
        )
    plain = [(own, theirs) for own, theirs in terms.pairs if own.read.is_attribute and theirs.read.is_attribute]
    if plain and how == "inner":
        # What rows are joined by is their message key, too: expressions are compared behind it.
        terms.rest += [equal(own, theirs) for own, theirs in terms.pairs if (own, theirs) not in plain]
        terms.pairs = plain
    if terms.rest and how != "inner":
        raise TopologyException(
            f"{where}: {len(terms.rest)} of its conditions is neither that columns are equal nor a range of the two "
            "event "
            "times; beside these an inner join alone takes others, as where() behind it"
        )
    names = _key_names(terms)
    text = f"join({', '.join(names)}, {how}, within={span[0]} to {span[1]} us)"
    taken_names = unique([*names, *(column.name for rows in (left, right) for column in rows.columns)])[len(names) :]
    sides = []
    for place, rows in enumerate((left, right)):
        own = taken_names[: len(left.columns)] if place == 0 else taken_names[len(left.columns) :]
        sides.append(_side(reader, rows, [pair[place] for pair in terms.pairs], names, own, times[place], how))
    fields = [StructField(name, sides[0].rows.schema[name].dataType) for name in names]
    for index, name in enumerate(names):
        kinds = [side.rows.schema.fields[index].dataType for side in sides]
        if kinds[0] != kinds[1]:
            raise TopologyException(
                f"{where}: {name!r} is {kinds[0].simpleString()} in the left stream and {kinds[1].simpleString()} in "
                "the "
                "right one, so their encoded keys differ; cast one of them"
            )
    with spark_errors(call.call_site):
        check_groupable(StructType(fields), where)
    for place, side in enumerate(sides):
        if place and how in LEFT_ONLY:
            continue
        fields += [
            StructField(
                field.name, field.dataType, True if how in {"full", ("right", "left")[place]} else field.nullable
            )
            for field in side.rows.schema
            if field.name in side.others.values()
        ]
    made = StructType(fields)
    watermarks = [event_time_of(rows, time) for rows, time in zip((left, right), times, strict=True)]
    if watermarks[0].column == watermarks[1].column and left.node is not right.node:
        watermarks[1] = replace(watermarks[1], column=f"{watermarks[1].column} of the right stream")
    steps = [
        StreamJoin("", names, how, span, is_left, without_metadata(made), watermark, True, call.call_site, text)
        for is_left, watermark in zip((True, False), watermarks, strict=True)
    ]
    origins = {index: (sides[0].rows, sides[0].rows.columns[index].number) for index in range(len(names))}
    for side in sides:
        for column in side.rows.columns:
            if column.name in side.others.values() and column.name in made.names:
                origins[made.names.index(column.name)] = (side.rows, column.number)
    node = EmittingNode(
        call_site=call.call_site,
        text=text,
        given=sides[0].rows,
        step=steps[0],
        name=check_name(call.name, call.call_site),
        located=tuple(range(len(names))),
        other=sides[1].rows,
        other_step=steps[1],
        origins=origins,
    )
    output = attributes(without_metadata(made))
    record.add(node, output, Spread({}), names=made.names)
    return _finished(reader, at, node, sides, (left, right), how, terms)


def _key_names(terms: Terms) -> tuple[str, ...]:
    names = []
    for left, right in terms.pairs:
        one = left.read if left.read.is_attribute else right.read
        names.append(one.name if one.is_attribute else "key")
    return tuple(unique(names))


def _span(reader: Reading, left: Rows, right: Rows, terms: Terms) -> tuple[int, int]:
    """Return how much earlier and how much later than the left row the right one may be, in microseconds."""
    call = reader.call
    where = f"{call.where}: {call.method}()"
    found = [event_time(rows) for rows in (left, right)]
    by_condition = None
    if found[0] is not None and found[1] is not None:
        by_condition = take_range(terms, left, right, (found[0].number, found[1].number))
    if call.within is not None and by_condition is not None:
        raise TopologyException(
            f"{call.where}: within={call.within!r} of {call.method}(): its condition has a range of time already; "
            "leave "
            "one of them out"
        )
    if call.within is not None:
        written = call.within[0] if call.within[0] == call.within[1] else call.within
        with spark_errors(f"{call.where}: within={written!r} of {call.method}(), read as a delay"):
            span = interval_us(call.within[0]), interval_us(call.within[1])
    elif by_condition is not None:
        span = by_condition
        if max(map(abs, span)) >= _A_DAY_US:
            _require_days_of_24_hours(reader, where)
    else:
        missing = [word for word, time in zip(("left", "right"), found, strict=True) if time is None]
        if missing and terms.rest:
            _time(reader, left if missing[0] == "left" else right, missing[0])
        raise TopologyException(f"{where} of two streams {NO_RANGE}")
    if sum(span) > _LONGEST_US:
        raise TopologyException(f"{where}: it spans more than 10,000 years; use a shorter range")
    if sum(span) < 0:
        raise TopologyException(f"{where}: its range of time is empty: no two rows are ever so far apart")
    return span


def _require_days_of_24_hours(reader: Reading, where: str) -> None:
    """Reject time zones with days of 23 or 25 hours: Spark's intervals of a day are calendar days."""
    zone = str(reader.record.spark.conf.get("spark.sql.session.timeZone"))
    if not java("org.apache.spark.sql.catalyst.util.DateTimeUtils").getZoneId(zone).getRules().isFixedOffset():
        raise TopologyException(
            f"{where}: in the session's time zone, {zone}, a day may have 23 or 25 hours, and intervals of a day or "
            "more in a condition are such days; set spark.sql.session.timeZone to UTC, or use within=, whose days "
            "have 24 hours"
        )


def _time(reader: Reading, rows: Rows, side: str) -> Any:
    found = event_time(rows)
    if found is None:
        raise TopologyException(
            f"{reader.call.where}: {reader.call.method}() of two streams needs to know when no row will come any more "
            'that goes with a stored one: put withWatermark("time", "10 minutes") before it, on the '
            f"{side} stream too, with the column of its event times and how late rows may come; behind a union, an "
            "aggregation or another join it is said anew"
        )
    return found


def _side(  # noqa: PLR0917 - what is known of one step
    reader: Reading,
    rows: Rows,
    keys: list[Both],
    names: tuple[str, ...],
    others: list[str],
    time: Any,
    how: str,
) -> _Side:
    """Return a stream as the join takes it in, spread by the join's columns."""
    call = reader.call
    plain = {one.read.number: index for index, one in enumerate(keys) if one.read.is_attribute}
    call_others = {column.number: name for column, name in zip(rows.columns, others, strict=True)}
    if len(keys) == 1 and how == "inner" and keys[0].read.is_attribute:
        # A null is equal to nothing, and need not travel.
        rows = filtered(rows, keys[0].read.number)
    columns = [as_column(one.java).alias(name) for one, name in zip(keys, names, strict=True)]
    columns += [as_column(attribute(rows, number)).alias(name) for number, name in call_others.items()]
    micros = F.unix_micros(as_timestamp(rows, time)).alias(hidden_columns.EVENT_MICROS)
    places = [
        next((place for place, c in enumerate(rows.columns) if c.number == one.read.number), -1)
        if one.read.is_attribute
        else -1
        for one in keys
    ]
    located = None if behind_state(rows.node) or -1 in places else rows.spread.locate(places)
    with spark_errors(call.call_site):
        if located is not None and located.columns == tuple(places):
            return _Side(with_rows(rows, rows.frame.select(*columns, micros), unsaid=1), call_others, plain)
        given = with_rows(rows, rows.frame.select(*columns), unsaid=1)
    behind = sent_by(reader.record, given, range(len(names)), call.call_site)
    shipped = next(column for column in behind.columns if column.name == call_others[time.number])
    micros = F.unix_micros(as_timestamp(behind, shipped)).alias(hidden_columns.EVENT_MICROS)
    own = [as_column(attribute(behind, column.number)) for column in behind.columns]
    return _Side(with_rows(behind, behind.frame.select(*own, micros), unsaid=1), call_others, plain)


def _finished(  # noqa: PLR0917 - what is known of one step
    reader: Reading,
    at: Plan,
    node: EmittingNode,
    sides: list[_Side],
    streams: tuple[Rows, Rows],
    how: str,
    terms: Terms,
) -> Rows:
    """Return the rows of a join with the columns of the plan's node."""
    rows = begin(node)
    plan = analyzed(rows.frame)
    output = plan.output()
    made = {str(name): output.apply(place) for place, name in enumerate(node.leaf.columns.names)}
    keys = [made[name] for name in node.step.by]
    # Of which side a key is known without looking at whether it has a row.
    whole = {"inner": (0, 1), "left": (0,), "right": (1,), "left_semi": (0,), "left_anti": (0,)}.get(how, ())
    known: dict[int, Any] = {}
    for place, (side, stream) in enumerate(zip(sides, streams, strict=True)):
        if place and how in LEFT_ONLY:
            continue
        for column in stream.columns:
            if column.number in side.keys and place in whole:
                known[column.number] = keys[side.keys[column.number]]
            else:
                known[column.number] = made[side.others[column.number]]
    one = at.java.output()
    shown = [one.apply(place) for place in range(int(one.size()))]
    columns = [as_attribute(known[int(a.exprId().id())], a) for a in shown]
    plan = project(columns, plan)
    node.finish = 1
    for rest in terms.rest:
        plan = catalyst("plans.logical.Filter", rest.java, plan)
    return with_rows(rows, frame_of(plan, reader.record.spark))
