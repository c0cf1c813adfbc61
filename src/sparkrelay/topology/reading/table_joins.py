"""Joins of two tables: by their common key, or by a foreign key (KIP-213).

The left table's changes go to the right one's tasks by the foreign key, and are kept there beside the rows that they
name; answers come back by the left table's key, and are kept if they are of the row as it is by then::

    left table -> topic by foreign key -> its rows by foreign key, with the right table -> topic by key -> joined rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.types import BooleanType, StructField, StructType

from sparkrelay.catalyst import rewriting
from sparkrelay.catalyst.frames import analyzed, as_attribute, attributes, frame_of, project, replaced
from sparkrelay.catalyst.jvm import catalyst, items, seq
from sparkrelay.catalyst.rewriting import where_found
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import AggregationNode, TableJoinNode, tables_of
from sparkrelay.topology.reading import pair_joins
from sparkrelay.topology.reading.conditions import ONE_SIDED
from sparkrelay.topology.reading.kept_tables import keyed
from sparkrelay.topology.reading.repartition import sent_by
from sparkrelay.topology.reading.tables import holds_rows, keep_newest, stored_table
from sparkrelay.topology.record import begin, unique, with_rows
from sparkrelay.topology.schemas import without_metadata
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.nodes import StoredTable
    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.reading.conditions import Both, Terms
    from sparkrelay.topology.rows import Rows

_HOW: Final = {
    "Cross": "inner",
    "Inner": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "inner",
    "LeftAnti": "left",
    "ExistenceJoin": "left",
    "LeftSingle": "left",
}


#: Joins in which a condition on both sides decides not only which pairs there are.
_COUNTING: Final = frozenset({"ExistenceJoin", "FullOuter", "LeftAnti", "LeftOuter", "LeftSemi", "RightOuter"})


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
    how = _HOW.get(at.join_type)
    if how is None:
        raise TopologyException(
            f"{reader.call.where}: {reader.call.method}() of two tables takes inner, left, right, full, semi and anti "
            f"joins, not {at.join_type}"
        )
    said = ONE_SIDED.get(at.join_type, how)
    stored = _of_stores(reader, left, right, terms, at.join_type, said)
    if stored is None:
        pair_joins.take_equal(terms, left, right)
        if at.join_type in _COUNTING and pair_joins.reads_both(terms, left, right):
            return reader.rows(read_plan(rewriting.by_pairs(at.java, *map(keyed, (left, right)))))
    rows, columns = stored or pair_joins.joined(reader, at.join_type, left, right, terms, said)
    plan = analyzed(rows.frame)
    coalesced = _take_coalesced(above, rows, terms) if how == "full" and stored is not None else []
    output = items(at.java.output())
    by_pairs = isinstance(rows.node, TableJoinNode) and bool(rows.node.by)
    found = items(plan.output())[-1]
    if at.join_type == "ExistenceJoin":
        columns[int(output[-1].exprId().id())] = found
    if at.join_type == "LeftAnti":
        plan = catalyst("plans.logical.Filter", catalyst("expressions.Not", found), plan)
    if at.join_type == "LeftSemi" and by_pairs:
        plan = catalyst("plans.logical.Filter", found, plan)
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
    return [as_attribute(columns[int(one.exprId().id())], one) for one in attributes]


def _filtered(plan: Any, terms: Terms) -> Any:
    for rest in terms.rest:
        plan = catalyst("plans.logical.Filter", rest.java, plan)
    return plan


def _key(rows: Rows) -> tuple[int, ...] | None:
    """Return the numbers of a table's key columns if a store has or can have its rows; else None."""
    node = rows.node
    if isinstance(node, TableJoinNode):
        # Pairs have no store.
        width = 0 if node.by or not rows.only_renames else node.width
    elif isinstance(node, AggregationNode):
        step = node.step
        values = [call for call in step.calls if call.distinct or call.function in _HOLDING]
        apart = values or step.ranking is not None or (step.window is not None and step.watermark is not None)
        elsewhere = not step.newest and not node.spread.held
        behind = rows.only_renames or (holds_rows(node) and node.answers is None)
        width = 0 if apart or elsewhere or not behind else len(step.keys)
    else:
        width = 0
    places = {copy.place: place for place, copy in reversed(rows.copies().items()) if not copy.fields}
    if not width or not places.keys() >= {*range(width)}:
        return None
    return tuple(rows.columns[places[place]].number for place in range(width))


def _side(reader: Reading, rows: Rows, key: tuple[int, ...]) -> _Side:
    table = stored_table(reader.record, rows)
    assert table is not None, "a store has the rows"
    names = table.leaf.columns.names
    if rows.node is table:
        found = {rows.columns[place].number: copy.place for place, copy in rows.copies().items() if not copy.fields}
    else:
        found = {column.number: names.index(column.name) for column in rows.columns}
    return _Side(rows, table, key, found)


_HOLDING: Final = frozenset(
    {"collect_list", "collect_set", "listagg", "sorted_listagg", "mode", "percentile", "percentile_disc"}
)


def _of_stores(  # noqa: PLR0917 - what is known of one step
    reader: Reading, left: Rows, right: Rows, terms: Terms, join_type: str, said: str
) -> tuple[Rows, dict[int, Any]] | None:
    """Record a join by key or by a foreign key; return None if the equal columns are neither."""
    how = _HOW[join_type]
    key, other = _key(left), _key(right)
    if key is None or other is None:
        return None
    # A join by key takes nulls for equal.
    safe, rest = pair_joins.null_safe(terms, left, right)
    own = _equal_to(right, other, terms.pairs + safe)
    if own is not None and not (rest and how != "inner") and _copies(left, own) == _copies(left, key):
        terms.pairs, terms.rest = terms.pairs + safe, rest
        sides = [_side(reader, left, key), _side(reader, right, other)]
        rows = _by_key(reader, sides, how, said)
        return rows, _columns_of(rows, sides, how)
    if terms.rest and how != "inner":
        return None
    own = _equal_to(right, other, terms.pairs)
    if own is not None and {*_copies(left, own)} != {*_copies(left, key)} and how in {"inner", "left"}:
        sides = [_side(reader, left, key), _side(reader, right, other)]
        return _by_foreign_key(reader, sides, own, how, said)
    # The right table may reference the left one.
    how = {"Inner": "inner", "RightOuter": "left"}.get(join_type, "")
    own = _equal_to(left, key, [(theirs, own) for own, theirs in terms.pairs])
    if not how or own is None or {right.copy(number) for number in own} == {right.copy(number) for number in other}:
        return None
    return _by_foreign_key(reader, [_side(reader, right, other), _side(reader, left, key)], own, how, said)


def _copies(rows: Rows, numbers: tuple[int, ...]) -> list[Any]:
    """Return which columns of their node these are: a column may be a copy of another one."""
    return [rows.copy(number) for number in numbers]


def _equal_to(rows: Rows, key: tuple[int, ...], pairs: list[tuple[Both, Both]]) -> tuple[int, ...] | None:
    """Return the columns that the pairs compare with the key of ``rows``, in its order; None if they compare others."""
    keys = {rows.copy(number): number for number in key}
    found: dict[int, int] = {}
    for own, theirs in pairs:
        number = keys.get(rows.copy(theirs.read.number)) if own.read.is_attribute and theirs.read.is_attribute else None
        if number is None or number in found:
            return None
        found[number] = own.read.number
    return tuple(found[number] for number in key) if len(found) == len(key) else None


def _columns(table: StoredTable) -> list[StructField]:
    return list(table.leaf.columns.fields)


def _as_seen(side: _Side) -> list[StructField]:
    """Return the columns of a table by the names that the user's rows give them."""
    called = {place: side.rows.column(number).name for number, place in side.places.items()}
    return [
        StructField(called.get(place, field.name), field.dataType) for place, field in enumerate(_columns(side.table))
    ]


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
                known[number] = where_found(found[index], output[place])
    return known


def _take_coalesced(above: list[tuple[Plan, int]], rows: Rows, terms: Terms) -> list[Any]:
    """Put the key of the joined rows where Spark makes it of both sides' keys, ``coalesce(left, right)``; return it."""
    if not above or above[-1][0].kind != "Project":
        return []
    node = above[-1][0]
    if not any(part.kind == "Coalesce" for one in node.expressions for part in one.below()):
        return []
    assert isinstance(rows.node, TableJoinNode), "what is joined by its key"
    keys = items(analyzed(rows.frame).output())[: rows.node.width]
    right = rows.node.of[1]
    places = [right.copy(number) for number in _key(right) or ()]
    known = []
    for own, theirs in terms.pairs:
        if (copy := right.copy(theirs.read.number)) in places:
            known.append((catalyst("expressions.Coalesce", seq([own.java, theirs.java])), keys[places.index(copy)]))
    listed = seq(replaced(one, known) for one in items(node.java.projectList()))
    node.java = catalyst("plans.logical.Project", listed, node.children[0].java)
    return keys


def _by_foreign_key(
    reader: Reading, sides: list[_Side], own: tuple[int, ...], how: str, said: str
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
    sent = sent_by(record, stored, foreign, call.call_site, text=text, words=by, changes=True)
    both = [*foreign, *(place for place in range(width) if place not in foreign)]
    logged = all(table.step.logged for table in tables_of(right.table))
    referencing = keep_newest(
        record,
        sent,
        both,
        None,
        logged,
        f"{text} by foreign key",
        call.call_site,
        words=("by", *by),
        filters=len(by) == 1,
    ).node
    assert isinstance(referencing, AggregationNode)
    # Workers know the left columns by their names in the left table.
    fields = [*columns, *_as_seen(right)[len(right.key) :]]
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
    answers = sent_by(record, begin(join), range(width), call.call_site, text=text, words=keys, changes=True)
    logged = all(table.step.logged for table in tables_of(left.table))
    rows = keep_newest(
        record,
        answers,
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
            known[number] = where_found(found, known[own[right.key.index(number)]])
    return rows, known
