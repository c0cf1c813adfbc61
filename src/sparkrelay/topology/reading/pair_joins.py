"""Many-to-many joins of two tables, by equal columns or expressions (``operators.pair_join``).

The changes of both tables go to repartition topics by the equal columns. Their readers store the rows by these columns
and their own key. Pairs are made from the two stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.types import BooleanType, StructField, StructType

from sparkrelay.catalyst.frames import alias, analyzed, attributes, frame_of, new_number, project
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, seq
from sparkrelay.catalyst.rewriting import where_found
from sparkrelay.catalyst.tree import Expression
from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import AggregationNode, TableJoinNode
from sparkrelay.topology.reading.conditions import Both, always, pair_of
from sparkrelay.topology.reading.kept_tables import kept_by, with_key
from sparkrelay.topology.record import begin, filtered, named, unique, with_rows
from sparkrelay.topology.refusals import SUBQUERY
from sparkrelay.topology.schemas import without_metadata
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.reading.conditions import Terms
    from sparkrelay.topology.rows import Rows

#: Join type of a plan -> kind of join.
_HOW: Final = {
    "Cross": "inner",
    "Inner": "inner",
    "LeftOuter": "left",
    "LeftSingle": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "exists",
    "LeftAnti": "exists",
    "ExistenceJoin": "exists",
}
#: Kind of join -> whether left and right rows without a partner are emitted.
_STAYING: Final = {"inner": (False, False), "left": (True, False), "right": (False, True), "full": (True, True)}
_STAYING["exists"] = _STAYING["left"]


class _Stored(NamedTuple):
    """A table, stored by the equal columns and its own key.

    Attributes:
        node: the table.
        places: number of a column of the user's rows -> its index among the columns of ``node``.
        own: number of columns of the rows' own key.
    """

    node: AggregationNode
    places: dict[int, int]
    own: int


def joined(  # noqa: PLR0917 - what is known of one step
    reader: Reading, join_type: str, left: Rows, right: Rows, terms: Terms, said: str
) -> tuple[Rows, dict[int, Any]]:
    """Record a join; return its rows, and a mapping from the columns of both sides, by number, to its columns.

    Conditions that remain in ``terms`` read both sides and must be applied to the rows. The last column of a semi, anti
    or existence join is the flag for a partner.

    Raises:
        TopologyException: there are no equal columns, or such a condition is not part of an inner join.
    """
    call, record = reader.call, reader.record
    where = f"{call.where}: {call.method}()"
    how = _HOW[join_type]
    left, right = _conditions_of_one_side(terms, left, right, how)
    pairs = terms.pairs = terms.pairs or [(always(), always())]
    if join_type == "LeftSingle" and (terms.rest or not _is_unique(right, terms)):
        raise TopologyException(f"{where}: {SUBQUERY}")
    own = [one for one, _ in pairs]
    names = unique(one.read.name if one.read.is_attribute else f"by_{place}" for place, one in enumerate(own, 1))
    text = f"join({', '.join(names)}, {said})"
    staying = _STAYING[how]
    whole = _whole_side(left, right, pairs, how)
    sides = [
        _stored(
            reader,
            rows,
            by,
            names,
            text,
            not_null=not staying[place],
            word=("left", "right")[place],
            whole=None if whole is None else place == whole,
        )
        for place, (rows, by) in enumerate(((left, own), (right, [other for _, other in pairs])))
    ]
    width = len(pairs)
    columns = _columns(sides, width, how)
    flags = {"left": ["right_found"], "right": ["left_found"], "full": ["left_found", "right_found"]}
    found = [StructField(name, BooleanType()) for name in flags.get(how, ["found"] if how == "exists" else [])]
    called = unique(field.name for field in (*columns, *found))
    fields = [StructField(name, one.dataType) for name, one in zip(called, (*columns, *found), strict=True)]
    node = TableJoinNode(
        call_site=call.call_site,
        text=text,
        left=sides[0].node,
        right=sides[1].node,
        of=(left, right),
        columns=tuple(called[:width]),
        how=how,
        width=width + sides[0].own + (0 if how == "exists" else sides[1].own),
        by=width,
    )
    for rows in (left, right):
        record.use(rows)
    # Rows with a null in the equal columns may be in any task.
    spread = Spread.of_key(range(width), called[:width]) if how == "inner" and whole is None else Spread({})
    record.add(node, attributes(without_metadata(StructType(fields))), spread, streaming=False, names=called)
    rows = begin(node)
    return rows, _known(items(analyzed(rows.frame).output()), sides, width, how, len(found))


def _columns(sides: Sequence[_Stored], width: int, how: str) -> list[StructField]:
    """Return the columns of pairs: equal columns, left key, right key, other left columns, other right columns."""
    left, right = (list(side.node.leaf.columns.fields) for side in sides)
    first, second = (width + side.own for side in sides)
    if how == "exists":
        return left
    return [*left[:first], *right[width:second], *left[first:], *right[second:]]


def _known(output: list[Any], sides: Sequence[_Stored], width: int, how: str, flags: int) -> dict[int, Any]:
    """Map the columns of both sides, by number, to columns of the join."""
    left, right = sides
    first, second = width + left.own, width + right.own
    if how == "exists":
        return {number: output[place] for number, place in left.places.items()}
    found = output[len(output) - flags :]
    # For each side, the flag that it has a row; None: it always has one.
    there = {"left": (None, *found), "right": (*found, None), "full": tuple(found)}.get(how, (None, None))
    behind = width + left.own + right.own
    of_left = len(left.node.leaf.columns.fields) - first
    known: dict[int, Any] = {}
    for number, place in left.places.items():
        known[number] = output[place if place < first else place - first + behind]
        if place < width:
            known[number] = where_found(there[0], known[number])
    for number, place in right.places.items():
        at = place if place < width else place + left.own if place < second else place - second + behind + of_left
        known[number] = where_found(there[1], output[at]) if place < width else output[at]
    return known


def _whole_side(left: Rows, right: Rows, pairs: Sequence[tuple[Both, Both]], how: str) -> int | None:
    """Return which side every task gets whole; None if equal columns spread both over the tasks.

    A side is whole where no column of it is compared with one of the other: a total of all rows, or the right rows.
    """
    if any({*own.read.references()} and {*theirs.read.references()} for own, theirs in pairs):
        return None
    totals = [isinstance(rows.node, AggregationNode) and rows.node.step.of_all for rows in (left, right)]
    if how == "inner":
        return 0 if totals == [True, False] else 1
    # Who has no partner in one task might have one in another.
    return {"left": 1, "exists": 1, "right": 0}.get(how)


def _stored(
    reader: Reading,
    rows: Rows,
    by: Sequence[Both],
    names: Sequence[str],
    text: str,
    *,
    not_null: bool,
    word: str,
    whole: bool | None,
) -> _Stored:
    """Record the table that stores one side by the equal columns and its own key.

    Args:
        reader: of the plan.
        rows: the side's.
        by: its equal columns or expressions.
        names: their names.
        text: description of the join.
        not_null: whether to drop rows with a null in them, which match nothing.
        word: ``left`` or ``right``.
        whole: whether each task gets all of its rows; None if neither side is whole.
    """
    record = reader.record
    taken, key = with_key(rows)
    plan = analyzed(taken.frame)
    output = items(plan.output())
    numbers = [int(one.exprId().id()) for one in output]
    places: list[int] = []
    computed: list[Any] = []
    for name, one in zip(names, by, strict=True):
        place = numbers.index(one.read.number) if one.read.is_attribute and not _is_normalized(one) else None
        # Key columns are copied, so that the key of a pair contains the whole key of each row.
        if place is not None and place not in (*places, *key):
            places.append(place)
        else:
            places.append(len(output) + len(computed))
            computed.append(alias(one.java, name, new_number()))
    if computed:
        taken = with_rows(taken, frame_of(project([*output, *computed], plan), record.spark))
    taken = named(taken)
    if not_null:
        taken = filtered(taken, *(taken.columns[place].number for place in places))
    kept = kept_by(
        reader,
        rows,
        taken,
        key if whole is False else places,
        [*places, *key],
        text,
        (word, *names),
        to_all=whole is True,
    )
    order = [*places, *key]
    order += [place for place in range(len(taken.columns)) if place not in order]
    index_of = {place: index for index, place in enumerate(order)}
    return _Stored(kept, {column.number: index_of[place] for place, column in enumerate(rows.columns)}, len(key))


def _is_unique(right: Rows, terms: Terms) -> bool:
    """Return whether at most one right row matches: its whole key is compared."""
    taken, key = with_key(right)
    return {taken.columns[place].number for place in key} <= {
        theirs.read.number for _, theirs in terms.pairs if theirs.read.is_attribute
    }


def _is_normalized(one: Both) -> bool:
    """Return whether key encoding changes values of this type, such as ``-0.0`` to ``0.0``."""
    return any(kind in str(one.java.dataType().catalogString()) for kind in ("double", "float"))


def _conditions_of_one_side(terms: Terms, left: Rows, right: Rows, how: str) -> tuple[Rows, Rows]:
    """Apply the conditions that read one side only, and remove them from ``terms``.

    They filter the side's rows. If the join also emits rows without a partner, they become pairs instead: the condition
    equals true.
    """
    numbers = [{column.number for column in rows.columns} for rows in (left, right)]
    rest, yes = [], always()
    for one in terms.rest:
        read = {*one.read.references()}
        own, theirs = (read <= side for side in numbers)
        if not read or own is theirs:
            rest.append(one)
        elif own and _STAYING[how][0]:
            terms.pairs.append((one, yes))
        elif own:
            left = _where(left, one)
        elif _STAYING[how][1]:
            terms.pairs.append((yes, one))
        else:
            right = _where(right, one)
    terms.rest = rest
    return left, right


def _where(rows: Rows, condition: Both) -> Rows:
    plan = catalyst("plans.logical.Filter", condition.java, analyzed(rows.frame))
    return with_rows(rows, frame_of(plan, rows.frame.sparkSession))


def null_safe(terms: Terms, left: Rows, right: Rows) -> tuple[list[tuple[Both, Both]], list[Both]]:
    """Return both sides of each ``a <=> b`` of ``terms``, and the other conditions that are no pairs."""
    sides = [{column.number for column in rows.columns} for rows in (left, right)]
    found, rest = [], []
    for one in terms.rest:
        pair = pair_of(one, *sides) if one.read.kind == "EqualNullSafe" else None
        if pair is None:
            rest.append(one)
        else:
            found.append(pair)
    return found, rest


def take_equal(terms: Terms, left: Rows, right: Rows) -> None:
    """Replace each ``a <=> b`` of ``terms`` by two pairs: of null flags, and of values."""
    found, terms.rest = null_safe(terms, left, right)
    for own, theirs in found:
        terms.pairs += [(_is_null(own), _is_null(theirs)), (_or_default(own), _or_default(theirs))]


def reads_both(terms: Terms, left: Rows, right: Rows) -> bool:
    """Return whether a condition other than equality reads columns of both sides."""
    sides = [{column.number for column in rows.columns} for rows in (left, right)]
    return any(all({*one.read.references()} & side for side in sides) for one in terms.rest)


def _is_null(one: Both) -> Both:
    return Both(Expression("IsNull", (one.read,), {}), catalyst("expressions.IsNull", one.java))


def _or_default(one: Both) -> Both:
    default = catalyst_object("expressions.Literal").default(one.java.dataType())
    return Both(Expression("Coalesce", (one.read,), {}), catalyst("expressions.Coalesce", seq([one.java, default])))
