"""Streams that look into tables: a ``Join`` of an analysed plan with a stream on one side and a table on the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import (
    alias,
    analyzed,
    as_attribute,
    attributes,
    frame_of,
    new_number,
    project,
    replaced,
)
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, seq
from sparkrelay.catalyst.rewriting import all_of, where_found
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.operators.delay.step import RECORD_TIME, Delay
from sparkrelay.topology.event_time import EventTime
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import (
    AggregationNode,
    LookupNode,
    SourceNode,
    TableJoinNode,
    behind_state,
    ways_back,
)
from sparkrelay.topology.reading.conditions import ONE_SIDED, always, differing_types, equal
from sparkrelay.topology.reading.emitting import Keyed, emitting
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of, had_watermark
from sparkrelay.topology.reading.global_lookups import inlined, matching
from sparkrelay.topology.reading.kept_tables import kept_by, table_of, with_key
from sparkrelay.topology.reading.repartition import sent_by
from sparkrelay.topology.reading.tables import holds_rows, stored_table
from sparkrelay.topology.record import begin, filtered, named, unique, with_rows
from sparkrelay.topology.refusals import SUBQUERY
from sparkrelay.topology.step_words import step_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.reading.conditions import Both, Terms
    from sparkrelay.topology.rows import Rows

#: Kinds of joins in which each row comes from the stream -> what becomes of rows that find nothing.
_HOW: Final = {
    "Cross": "inner",
    "ExistenceJoin": "left",
    "Inner": "inner",
    "LeftAnti": "left",
    "LeftOuter": "left",
    "LeftSemi": "inner",
    # Of a scalar subquery: a table has one row of its key at most.
    "LeftSingle": "left",
}
_MIRRORED: Final = {"Cross": "inner", "Inner": "inner", "RightOuter": "left"}


class _Side(NamedTuple):
    """A table as it is looked into.

    Attributes:
        table: the table that holds the rows.
        rows: the rows as the user wrote them.
        key: numbers of the columns of ``rows`` that are its key, in its order; none of a total of all rows.
        names: number of a column of ``rows`` -> what the table calls it.
    """

    table: AggregationNode
    rows: Rows
    key: tuple[int, ...]
    names: dict[int, str]


def looked_up(reader: Reading, at: Plan, stream: Rows, table: Rows, terms: Terms, *, mirrored: bool) -> Rows:
    """Write down that a stream looks into a table; return the rows behind that, with the columns of the join.

    A table stays where it is. The stream goes through a repartition topic unless its rows are where the table's are;
    those of a global table are everywhere.

    Args:
        reader: of the plan.
        at: the ``Join``.
        stream: the stream's rows.
        table: the table's.
        terms: the condition, in which the stream is the left side unless ``mirrored``.
        mirrored: True where the stream is the join's right side.

    Raises:
        TopologyException: the table cannot be looked into, or not in this way.
    """
    call, record = reader.call, reader.record
    where = call.where
    how = (_MIRRORED if mirrored else _HOW).get(at.join_type)
    if how is None:
        raise TopologyException(
            f'{where}: join() with a table takes how="inner" or how="left", not {at.join_type}: rows come from the '
            "stream "
            "alone"
        )
    pairs = [(right, left) if mirrored else (left, right) for left, right in terms.pairs]
    whole, computed = terms.rest, dict[int, Any]()
    if isinstance(table.node, AggregationNode) and table.node.step.is_global and not table.is_leaf:
        table, pairs, whole, computed = inlined(table, pairs, whole, where)
    side = _side(reader, stream, table)
    by, rest = _by_key(reader, side, pairs, whole)
    if not by and at.join_type == "LeftSingle":
        raise TopologyException(f"{where}: {SUBQUERY}")
    if call.grace is not None:
        _check_grace(call.grace, side.table, where)
    stream, numbers = _with_keys(stream, by, side)
    stream, numbers = _where_the_table_is(reader, side, stream, numbers, how)
    time = event_time(stream) if side.table.step.history is not None else None
    if side.table.step.history is not None and time is None and had_watermark(stream):
        raise TopologyException(
            f"{where}: join() with a table with a history goes by the column of withWatermark(), and that is no longer "
            "there: keep it until behind the join"
        )
    shown = stream
    stream = (
        named(stream)
        if time is None
        else named(stream, F.unix_millis(as_timestamp(stream, time)).alias(hidden_columns.EVENT_TIME))
    )
    places = [next(place for place, one in enumerate(shown.columns) if one.number == number) for number in numbers]
    called = [column.name for column in stream.columns[: len(shown.columns)]]
    held = side.table.step.columns.fields[len(side.table.step.keys) :]
    if not by:
        held = [StructField("rows", ArrayType(side.table.step.columns, False))]
    order = [str(field.name) for field in held]
    names = unique([*called, *order, "found"])
    columns = [StructField(name, field.dataType) for name, field in zip(names[len(called) :], held, strict=False)]
    found = StructField(names[-1], BooleanType(), nullable=False)
    made = items(attributes(StructType([*columns, found])))
    grace = call.grace
    said = ONE_SIDED.get(at.join_type, how)
    # Of an inner join they are a condition behind it.
    more = [words(one.read) for one in rest if how != "inner" or not by]
    more += [] if grace is None else [f"grace={grace!r}"]
    text = f"join({', '.join((*(side.table.step.keys if by else ()), said, *more))})"
    node = LookupNode(
        call_site=call.call_site,
        text=text,
        given=stream,
        table=side.table,
        of=side.rows,
        columns=tuple(called[place] for place in places),
        how=how if by else "left",
        time=None if time is None else event_time_of(shown, time),
        grace=grace,
    )
    own = items(analyzed(shown.frame).output())
    spread = shown.spread
    record.add(node, seq([*own, *made]), spread, names=names)
    if not by:
        return matching(at, begin(node), side.rows, side.names, rest, computed)
    return _finished(reader, at, begin(node), own, made, side, order, numbers, rest, how, computed)


def _side(reader: Reading, stream: Rows, rows: Rows) -> _Side:
    where = reader.call.where
    found = stored_table(reader.record, rows)
    if found is None or not holds_rows(found):
        return _kept(reader, stream, rows)
    table: Any = found
    called = table.leaf.columns.names
    if rows.node is table:
        copies = ((column.number, rows.copy(column.number)) for column in rows.columns)
        names = {number: str(called[copy.place]) for number, copy in copies if copy is not None}
    else:
        names = {column.number: column.name for column in rows.columns}
    by_name = {name: number for number, name in reversed(names.items())}
    if not by_name.keys() >= {*table.step.keys}:
        raise TopologyException(f"{where}: {_lost(table.call_site, table.step.keys)}")
    key = tuple(by_name[name] for name in table.step.keys)
    return _Side(table, rows, key, names)


def _lost(call_site: CallSite, key: Sequence[str]) -> str:
    return (
        f"join() with the table of {call_site} goes by its key, {', '.join(map(repr, key))}, and a column of it is no "
        "longer there: keep it"
    )


def _kept(reader: Reading, stream: Rows, rows: Rows) -> _Side:
    """Return a table of groups, of a join or behind its steps, kept once more where it has each version of a row.

    Such a table has one version for a whole micro-batch. Behind a topic each of its changes is a record, as it would be
    behind a topic that the user writes and reads. A total of all rows is copied to every partition.
    """
    where, node = reader.call.where, table_of(rows)
    of_all = isinstance(node, AggregationNode) and node.step.of_all
    if shared := sorted(_topics(stream) & _topics(rows)):
        raise TopologyException(
            f"{where}: the table of {node.call_site} is made of {shared[0]!r}, as the stream is, so what a row finds "
            "would depend on how the stream happens to be cut. For what came before each row use a window, "
            'F.sum("x").over(Window.partitionBy("k").orderBy("time")); or write the table with to("topic"), and look '
            'into builder.table("topic", ...)'
        )
    taken, places = with_key(rows)
    taken = named(taken)
    called = unique(column.name for column in taken.columns)
    if any(place >= len(rows.columns) for place in places) and not of_all:
        raise TopologyException(f"{where}: {_lost(node.call_site, [called[place] for place in places])}")
    steps = node, step_words(rows), tuple(rows.schema.names)
    if steps not in reader.record.stored:
        text = f"{node.text}, kept for lookups"
        words = "table", *(called[place] for place in places)
        reader.record.stored[steps] = kept_by(reader, rows, taken, places, places, text, words, to_all=of_all)
        reader.record.use(rows)
    kept = reader.record.stored[steps]
    names = {column.number: name for column, name in zip(rows.columns, called, strict=False)}
    if of_all:
        return _Side(kept, rows, (), names)
    return _Side(kept, rows, tuple(rows.columns[place].number for place in places), names)


def _topics(rows: Rows) -> set[str]:
    """Return the topics of the user's from which rows come, but for tables that they looked into."""
    found: set[str] = set()
    left = [rows.node]
    while left:
        node = left.pop()
        if isinstance(node, SourceNode):
            found.update(node.topics)
        if isinstance(node, TableJoinNode):
            left += (node.left, node.right)
        left += (one.node for one in node.inputs)
    return found


def _by_key(
    reader: Reading, side: _Side, pairs: list[tuple[Both, Both]], rest: list[Both]
) -> tuple[list[Both], list[Both]]:
    """Return what the stream looks by, in the order of the table's key, and what else must hold.

    A global table, which is everywhere, is also looked into by other conditions: by nothing, then.

    Raises:
        TopologyException: it is not the table's key.
    """
    found: dict[int, Both] = {}
    others = list(rest)
    for own, theirs in pairs:
        number = theirs.read.number if theirs.read.is_attribute else None
        if number in side.key and number not in found:
            found[number] = own
        else:
            others.append(equal(own, theirs))
    if len(found) < len(side.key):
        for own, theirs in pairs:
            of_key = not {*side.key}.isdisjoint(theirs.read.references()) or not side.table.step.is_global
            if of_key and (types := differing_types(own.read, theirs.read)) is not None:
                name = side.rows.column(side.key[0]).name
                raise TopologyException(
                    f"{reader.call.where}: join() with the table of {side.table.call_site}: its key {name!r} is "
                    f"{types[1]}, and the stream's column {types[0]}; cast the stream's, "
                    f'withColumn("{name}", F.col("{name}").cast("{types[1]}"))'
                )
        if side.table.step.is_global:
            return [], [*rest, *(equal(own, theirs) for own, theirs in pairs)]
        listed = ", ".join(repr(theirs.read.name) for _, theirs in pairs if theirs.read.is_attribute) or "no column"
        key = ", ".join(map(repr, side.table.step.keys))
        raise TopologyException(
            f"{reader.call.where}: join() with the table of {side.table.call_site} goes by its key, {key}, not by "
            f"{listed}; {_way_to_key(side, pairs)}"
        )
    # A total has no key that anybody knows: it is looked into by a constant.
    return [found[number] for number in side.key] or [always()], others


def _way_to_key(side: _Side, pairs: list[tuple[Both, Both]]) -> str:
    """Return what to do where a stream's columns are not those of a table's key."""
    key = side.table.step.keys
    if len(key) > 1 or len(pairs) > 1:
        return f"say on={list(key) if len(key) > 1 else key[0]!r}, and give the stream's columns these names"
    own = pairs[0][0].read.name if pairs and pairs[0][0].read.is_attribute else "column"
    return (
        f'give the stream\'s column the same name, withColumnRenamed("{own}", "{key[0]}"), or make a table that is '
        f'keyed by it, repartition("{own}").to_table()'
    )


def _check_grace(grace: Any, table: AggregationNode, where: str) -> None:
    if not (isinstance(grace, str) and grace.strip()):
        raise TopologyException(
            f'{where}: grace= of join() takes an interval such as "5 minutes", not {grace!r}; without it rows do not '
            "wait"
        )
    if table.step.history is None:
        what = "a global table has none" if table.step.is_global else 'give it one, table(..., history="1 hour")'
        raise TopologyException(
            f"{where}: grace={grace!r} of join() delays rows for late table rows, which needs a table with a history: "
            f"only that knows the version of a row's time (KIP-923): {what}"
        )


def _with_keys(stream: Rows, by: list[Both], side: _Side) -> tuple[Rows, list[int]]:
    """Return the stream with columns for what it looks by, where that is computed, and the numbers of all of them."""
    if all(one.read.is_attribute for one in by):
        return stream, [one.read.number for one in by]
    plan = analyzed(stream.frame)
    made, numbers = [], []
    for one, name in zip(by, side.table.step.keys, strict=True):
        if one.read.is_attribute:
            numbers.append(one.read.number)
            continue
        column = alias(one.java, str(name), new_number())
        made.append(column)
        numbers.append(int(column.exprId().id()))
    frame = frame_of(project([*items(plan.output()), *made], plan), stream.frame.sparkSession)
    return with_rows(stream, frame), numbers


def _where_the_table_is(
    reader: Reading, side: _Side, stream: Rows, numbers: list[int], how: str
) -> tuple[Rows, list[int]]:
    """Return the stream where the table's rows of its keys are."""
    call, record = reader.call, reader.record
    if side.table.step.is_global or not side.key:
        kind = "a global table" if side.table.step.is_global else "a total of all rows"
        if call.name is not None:
            raise TopologyException(
                f"{call.where}: name={call.name!r} of join() names a repartition topic, and none is needed for {kind}; "
                "leave it out"
            )
        if behind_state(stream.node):
            raise TopologyException(
                f"{call.where}: join() with {kind} behind an aggregation, a join of streams or dropDuplicates() is not "
                f'there yet; write its rows to a topic first, repartition("{stream.columns[0].name}")'
            )
        return stream, numbers
    places = [next(place for place, one in enumerate(stream.columns) if one.number == number) for number in numbers]
    located = None if behind_state(stream.node) else stream.spread.locate(places)
    name = check_name(call.name, call.call_site)
    if call.grace is None and located is not None and located.columns == tuple(places):
        return stream, numbers
    if len(numbers) == 1 and how == "inner":
        stream = filtered(stream, numbers[0])
    if call.grace is not None:
        if behind_state(stream.node) or len([*ways_back(stream.node)]) > 1:
            # A leg keeps one store, and a store of rows that wait has one leg.
            stream = sent_by(record, stream, places, call.call_site)
        stream = _delayed(reader, stream, places)
    stream = sent_by(record, stream, places, call.call_site, name=name)
    record.use(stream)
    return stream, [stream.columns[place].number for place in places]


def _delayed(reader: Reading, rows: Rows, places: list[int]) -> Rows:
    """Write down that rows wait for a table's that come late (KIP-923)."""
    call = reader.call
    time = event_time(rows)
    micros = F.lit(None).cast("bigint") if time is None else F.unix_micros(as_timestamp(rows, time))
    watermark = EventTime(RECORD_TIME, 0) if time is None else event_time_of(rows, time)
    grace = call.grace
    assert grace is not None, "without it rows do not wait"

    def step(columns: tuple[str, ...], made: StructType) -> Delay:
        text = f"join({', '.join(columns)}, grace={grace!r})"
        return Delay("", columns, grace, made, watermark, call.call_site, text)

    return emitting(reader.record, call, Keyed(rows, tuple(places), tuple(places)), step, micros)


def _finished(  # noqa: PLR0917 - what is known of one step
    reader: Reading,
    at: Plan,
    rows: Rows,
    own: list[Any],
    made: list[Any],
    side: _Side,
    order: list[str],
    numbers: list[int],
    rest: list[Both],
    how: str,
    computed: Mapping[int, Any],
) -> Rows:
    """Return the rows of a lookup with the columns of the join."""
    plan = analyzed(rows.frame)
    found = made[-1]
    known = {int(one.exprId().id()): one for one in own}
    columns = dict(zip(order, made, strict=False))
    given = {number: columns[name] for number, name in side.names.items() if name in columns}
    keys = {number: known[numbers[index]] for index, number in enumerate(side.key)}
    theirs = {int(one.exprId().id()): one for one in items(analyzed(side.rows.frame).output())}
    column_of = given | keys
    values = [(one, column_of[number]) for number, one in theirs.items()]
    if rest:
        # In place of the table's columns, which are made only behind it: those that were found.
        condition = replaced(all_of(one.java for one in rest), values)
        if how == "inner":
            plan = catalyst("plans.logical.Filter", condition, plan)
        else:
            false = catalyst_object("expressions.Literal").FalseLiteral()
            holds = catalyst("expressions.And", found, catalyst("expressions.Coalesce", seq([condition, false])))
            now = alias(holds, "found", new_number())
            plan = project([*own, *made, now], plan)
            found = now.toAttribute()
    if at.join_type == "LeftAnti":
        plan = catalyst("plans.logical.Filter", catalyst("expressions.Not", found), plan)
    output = at.java.output()
    shown = []
    for place in range(int(output.size())):
        one = output.apply(place)
        number = int(one.exprId().id())
        if number in known:
            shown.append(known[number])
            continue
        if at.join_type == "ExistenceJoin":
            # Behind the stream's columns: whether there is a row.
            shown.append(as_attribute(found, one))
            continue
        value = replaced(computed[number], values) if number in computed else column_of[number]
        may_lack = how == "left" and (number in keys or number in computed or rest)
        shown.append(as_attribute(where_found(found if may_lack else None, value), one))
    rows.node.finish = 2 if rest else 1
    return with_rows(rows, frame_of(project(shown, plan), reader.record.spark))
