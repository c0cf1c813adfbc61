"""Joins of two tables: by their common key, or by a foreign key (KIP-213).

The left table's changes go to the right one's tasks by the foreign key, and are kept there beside the rows that they
name; answers come back by the left table's key, and are kept if they are of the row as it is by then::

    left table -> topic by foreign key -> its rows by foreign key, with the right table -> topic by key -> joined rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from pyspark.sql.types import BooleanType, StructField, StructType

from sparkrelay.catalyst.frames import alias, analyzed, attributes, frame_of, project, replaced
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, seq
from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import AggregationNode, RepartitionNode, TableJoinNode, tables_of
from sparkrelay.topology.reading.conditions import ONE_SIDED, differing_types
from sparkrelay.topology.reading.tables import keep_newest, stored_table
from sparkrelay.topology.record import begin, unique, with_rows
from sparkrelay.topology.schemas import without_metadata
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.nodes import StoredTable
    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.reading.conditions import Terms
    from sparkrelay.topology.rows import Rows

_HOW: Final = {
    "Inner": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "inner",
    "LeftAnti": "left",
    "ExistenceJoin": "left",
    "LeftSingle": "left",
}


class _Side(NamedTuple):
    """One of the tables.

    Attributes:
        rows: as the user wrote them.
        table: the table that holds them; or a join of others.
        key: numbers of the columns of ``rows`` that are its key, in its order; None where one of them is not there.
        places: number of a column of ``rows`` -> its place among the columns of ``table``.
    """

    rows: Rows
    table: StoredTable
    key: tuple[int, ...]
    places: dict[int, int]


def joined(reader: Reading, at: Plan, left: Rows, right: Rows, terms: Terms, above: list[tuple[Plan, int]]) -> Rows:  # noqa: PLR0917 - what is known of one step
    """Write a join of two tables down; return its rows, with the columns of the plan's node.

    Raises:
        TopologyException: the tables cannot be joined, or not in this way.
    """
    call = reader.call
    where = f"{call.where}: {call.method}()"
    how = _HOW.get(at.join_type)
    if how is None or not terms.pairs:
        raise TopologyException(
            f"{where} of two tables takes inner, left, right, full, semi and anti joins by columns that are equal, not "
            f"{at.join_type}"
            f"{'' if terms.pairs else ' without any'}"
        )
    if terms.rest and how != "inner":
        raise TopologyException(
            f"{where} of two tables: beside equal columns an inner join alone takes conditions; write them as where() "
            "behind it"
        )
    sides = [_side(reader, rows, word) for rows, word in ((left, "left"), (right, "right"))]
    pairs: dict[int, int] = {}
    for own, theirs in terms.pairs:
        if own.read.is_attribute and theirs.read.is_attribute:
            pairs.setdefault(theirs.read.number, own.read.number)
    by = [pairs.get(number) for number in sides[1].key]
    if len(pairs) != len(terms.pairs) or None in by or len(pairs) != len(sides[1].key):
        _refuse(where, sides, [(own.read, theirs.read) for own, theirs in terms.pairs])
    numbers = [number for number in by if number is not None]
    _check_kinds(where, sides, numbers)
    if tuple(numbers) == sides[0].key:
        rows = _by_key(reader, sides, how, ONE_SIDED.get(at.join_type, how))
        columns = _columns_of(rows, sides, how)
    elif {*numbers} == {*sides[0].key}:
        _refuse(where, sides, [(one.read, other.read) for one, other in terms.pairs])
    else:
        if how not in {"inner", "left"}:
            names = ", ".join(repr(sides[1].rows.column(number).name) for number in sides[1].key)
            raise TopologyException(
                f'{where} by a foreign key, {names}, takes how="inner" or how="left", not {how!r}: a row of the right '
                f"table alone has no {_key(sides[0])}, by which the joined rows are keyed; begin with the table whose "
                "rows all stay"
            )
        rows, columns = _by_foreign_key(reader, sides, numbers, how, ONE_SIDED.get(at.join_type, how))
    plan = analyzed(rows.frame)
    coalesced = _take_coalesced(above, sides, terms, rows) if how == "full" else []
    output = items(at.java.output())
    found = items(plan.output())[-1]
    if at.join_type == "ExistenceJoin":
        columns[int(output[-1].exprId().id())] = found
    if at.join_type == "LeftAnti":
        plan = catalyst("plans.logical.Filter", catalyst("expressions.Not", found), plan)
    if at.join_type == "LeftSemi" and terms.rest:
        # The condition reads columns of the right table, which are not shown.
        both = [one for child in items(at.java.children()) for one in items(child.output())]
        plan = project(_as_called(columns, [one for one in both if int(one.exprId().id()) in columns]), plan)
        plan = _filtered(plan, terms)
        plan = project(output, plan)
    else:
        plan = project([*_as_called(columns, output), *coalesced], plan)
        rows.node.finish = 1
        plan = _filtered(plan, terms)
    return with_rows(rows, frame_of(plan, reader.record.spark))


def _as_called(columns: dict[int, Any], attributes: list[Any]) -> list[Any]:
    """Return columns of the joined rows by the names and numbers that the plan knows them by."""
    return [alias(columns[int(one.exprId().id())], str(one.name()), one.exprId()) for one in attributes]


def _filtered(plan: Any, terms: Terms) -> Any:
    for rest in terms.rest:
        plan = catalyst("plans.logical.Filter", rest.java, plan)
    return plan


def _side(reader: Reading, rows: Rows, word: str) -> _Side:
    call = reader.call
    where = f"{call.where}: {call.method}()"
    table = stored_table(reader.record, rows)
    if table is None:
        last = rows.written[-1] if rows.written else None
        step = "a step" if last is None else f"{last.method}() at {last.call_site}"
        raise TopologyException(
            f"{where} of two tables finds their rows where they are stored, and behind {step} none are: "
            "builder.table() "
            "and to_table() take steps before a join, tables of agg() and of joins do not. Put the step behind the "
            "join, "
            'or write that table with to("topic"), and join with builder.table("topic", ...)'
        )
    names = table.leaf.columns.names
    if rows.node is table:
        found = {column.number: place for column in rows.columns if (place := _place(rows, column.number)) is not None}
    else:
        found = {column.number: names.index(column.name) for column in rows.columns}
    by_place = {place: number for number, place in found.items()}
    width = len(table.step.keys) if isinstance(table, AggregationNode) else table.width
    if isinstance(table, AggregationNode):
        _check_stored(where, table)
        if not table.step.newest and not table.spread.held:
            raise TopologyException(
                f"{where} of two tables has both keyed by the columns that say in which task a row is; those of the "
                f"{word} one, of {table.call_site}, are not its key's, or in another order, or computed. Write it with "
                'to("topic", key=...), and join with builder.table("topic", ...)'
            )
    lost = [names[place] for place in range(width) if place not in by_place]
    if lost:
        raise TopologyException(
            f"{where} of two tables goes by their keys, and the {word} one, of {table.call_site}, has lost "
            f"{', '.join(map(repr, lost))} of its key on the way: keep it"
        )
    key = tuple(by_place[place] for place in range(width))
    return _Side(rows, table, key, found)


def _place(rows: Rows, number: int) -> int | None:
    copy = rows.copy(number)
    return None if copy is None or copy.fields else copy.place


def _check_stored(where: str, table: AggregationNode) -> None:
    step = table.step
    values = [call.text for call in step.calls if call.distinct or call.function in _HOLDING]
    if step.window is not None and step.watermark is not None:
        what = "windows"
    elif values or step.ranking is not None:
        what = "DISTINCT, lists, sets, modes, percentiles or the best rows"
    else:
        return
    raise TopologyException(
        f'{where}: tables with {what} cannot be joined; write the table with to("topic"), and join '
        'builder.table("topic", ...)'
    )


_HOLDING: Final = frozenset(
    {"collect_list", "collect_set", "listagg", "sorted_listagg", "mode", "percentile", "percentile_disc"}
)


def _check_kinds(where: str, sides: list[_Side], own: list[int]) -> None:
    """Reject keys whose types differ (TopologyException)."""
    for mine, theirs in zip(own, sides[1].key, strict=True):
        left, right = sides[0].rows.column(mine), sides[1].rows.column(theirs)
        if left.field.dataType != right.field.dataType:
            raise TopologyException(
                f"{where}: {left.name!r} is {left.field.dataType.simpleString()} in the left table and "
                f"{right.field.dataType.simpleString()} in the right one, so equal keys are encoded differently and "
                "belong to different tasks; read both topics with the same key format"
            )


def _columns(table: StoredTable) -> list[StructField]:
    return list(table.leaf.columns.fields)


def _by_key(reader: Reading, sides: list[_Side], how: str, said: str) -> Rows:
    call = reader.call
    width = len(sides[0].key)
    left, right = (_columns(side.table) for side in sides)
    # For each side that need not have a row: whether it has one.
    flags = {"left": ["right_found"], "right": ["left_found"], "full": ["left_found", "right_found"]}.get(how, [])
    others = [StructField(field.name, field.dataType) for field in (*left[width:], *right[width:])]
    others += [StructField(name, BooleanType()) for name in flags]
    names = unique(field.name for field in (*left[:width], *others))
    fields = [
        StructField(name, field.dataType, field.nullable)
        for name, field in zip(names, (*left[:width], *others), strict=True)
    ]
    text = f"join({', '.join(names[:width])}, {said})"
    node = TableJoinNode(
        call_site=call.call_site,
        text=text,
        left=sides[0].table,
        right=sides[1].table,
        of=(sides[0].rows, sides[1].rows),
        columns=tuple(names[:width]),
        how=how,
        width=width,
    )
    for side in sides:
        reader.record.use(side.rows)
    output = attributes(without_metadata(StructType(fields)))
    reader.record.add(node, output, Spread.of_key(range(width), names[:width]), streaming=False, names=names)
    return begin(node)


def _columns_of(rows: Rows, sides: list[_Side], how: str) -> dict[int, Any]:
    """Return Catalyst's number of a column of either side -> the column of the joined rows that it is."""
    output = items(analyzed(rows.frame).output())
    width = len(sides[0].key)
    first = len(_columns(sides[0].table))
    flags = output[first + len(_columns(sides[1].table)) - width :]
    # Of each side: whether it has a row; None: it always has.
    found = {"left": (None, *flags), "right": (*flags, None), "full": tuple(flags)}.get(how, (None, None))
    known: dict[int, Any] = {}
    for index, side in enumerate(sides):
        for number, place in side.places.items():
            if place >= width:
                known[number] = output[place if index == 0 else first + place - width]
            else:
                known[number] = _where_found(found[index], output[place])
    return known


def _where_found(found: Any | None, value: Any) -> Any:
    """Return a column, null where the side that it is of has no row."""
    if found is None:
        return value
    return catalyst(
        "expressions.If", found, value, catalyst_object("expressions.Literal").create(None, value.dataType())
    )


def _take_coalesced(above: list[tuple[Plan, int]], sides: list[_Side], terms: Terms, rows: Rows) -> list[Any]:
    """Put the key of the joined rows where Spark makes it of both sides' keys, ``coalesce(left, right)``; return it."""
    if not above or above[-1][0].kind != "Project":
        return []
    node = above[-1][0]
    if not any(part.kind == "Coalesce" for one in node.expressions for part in one.below()):
        return []
    keys = items(analyzed(rows.frame).output())[: len(sides[0].key)]
    known = []
    for own, theirs in terms.pairs:
        if theirs.read.is_attribute and theirs.read.number in sides[1].key:
            key = keys[sides[1].key.index(theirs.read.number)]
            known.append((catalyst("expressions.Coalesce", seq([own.java, theirs.java])), key))
    listed = seq(replaced(one, known) for one in items(node.java.projectList()))
    node.java = catalyst("plans.logical.Project", listed, node.children[0].java)
    return keys


def _by_foreign_key(
    reader: Reading, sides: list[_Side], own: list[int], how: str, said: str
) -> tuple[Rows, dict[int, Any]]:
    """Write a join by a foreign key down; return the table of what is joined, which is keyed as the left one."""
    call, record = reader.call, reader.record
    left, right = sides
    columns = _columns(left.table)
    width = len(left.key)
    foreign = [left.places[number] for number in own]
    names = [field.name for field in columns]
    by = tuple(names[place] for place in foreign)
    text = f"join({', '.join(by)}, {said})"
    stored = begin(left.table)
    sent = RepartitionNode(
        call_site=call.call_site,
        text=text,
        given=stored,
        columns=by,
        name=None,
        words=by,
        partitions=None,
        explicit=False,
        changes=True,
    )
    record.add(sent, analyzed(stored.frame).output(), Spread.of_key(foreign, by), streaming=False, names=names)
    both = [*foreign, *(place for place in range(width) if place not in foreign)]
    logged = all(table.step.logged for table in tables_of(right.table))
    referencing = keep_newest(
        record,
        begin(sent),
        both,
        None,
        logged,
        f"{text} by foreign key",
        call.call_site,
        words=("by", *by),
        filters=len(by) == 1,
    ).node
    assert isinstance(referencing, AggregationNode)
    theirs = _columns(right.table)[len(right.key) :]
    fields = [StructField(field.name, field.dataType) for field in (*columns, *theirs)]
    if how == "left":
        fields.append(StructField("right_found", BooleanType()))
    called = unique(field.name for field in fields)
    made = StructType([StructField(name, field.dataType) for name, field in zip(called, fields, strict=True)])
    join = TableJoinNode(
        call_site=call.call_site,
        text=text,
        left=referencing,
        right=right.table,
        of=(left.rows, right.rows),
        columns=by,
        how=how,
        width=width,
        referencing=left.table,
        foreign=len(by),
    )
    for side in sides:
        record.use(side.rows)
    keys = tuple(called[:width])
    record.add(join, attributes(made), Spread.of_key(range(width), keys), streaming=False, names=called)
    answers = RepartitionNode(
        call_site=call.call_site,
        text=text,
        given=begin(join),
        columns=keys,
        name=None,
        words=keys,
        partitions=None,
        explicit=False,
        changes=True,
    )
    record.add(
        answers, analyzed(join.leaf.frame).output(), Spread.of_key(range(width), keys), streaming=False, names=called
    )
    logged = all(table.step.logged for table in tables_of(left.table))
    rows = keep_newest(
        record,
        begin(answers),
        [*range(width)],
        None,
        logged,
        text,
        call.call_site,
        words=(),
        answers=join,
        filters=False,
    )
    output = items(analyzed(rows.frame).output())
    known: dict[int, Any] = {number: output[place] for number, place in left.places.items()}
    for number, place in right.places.items():
        if place >= len(right.key):
            known[number] = output[len(columns) + place - len(right.key)]
        else:
            found = output[-1] if how == "left" else None
            known[number] = _where_found(found, known[own[right.key.index(number)]])
    return rows, known


def _key(side: _Side) -> str:
    return ", ".join(repr(side.rows.column(number).name) for number in side.key)


def _refuse(where: str, sides: list[_Side], pairs: list[tuple[Any, Any]]) -> NoReturn:
    left, right = (_key(side) for side in sides)
    for own, theirs in pairs:
        if (types := differing_types(own, theirs)) is not None:
            name = next(iter(own.children), own).name if own.kind == "Cast" else own.name
            raise TopologyException(
                f"{where}: {name!r} is {types[0]} in the left table and {types[1]} in the right one, so equal keys are "
                "encoded differently and belong to different tasks; read both topics with the same key format"
            )
    named = ", ".join(repr(own.name) if own.is_attribute else "an expression" for own, _ in pairs)
    if left == right:
        raise TopologyException(
            f"{where} of two tables goes by their key, {left}, not by {named}: say "
            f"on={[*left.replace(chr(39), '').split(', ')]!r}"
        )
    raise TopologyException(
        f"{where} of two tables goes by their keys, which are {left} in the left one and {right} in the right one, "
        "not by "
        f"{named}: join by all of both in their order, or make a table that is keyed alike, "
        "to_stream().repartition(...).to_table(). Or by a foreign key: then on= is the right table's key, of which the "
        "left one has columns; where the right one names rows of the left one, begin with it, right.join(left, ...)"
    )
