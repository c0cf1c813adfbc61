"""Streams that look into global tables by conditions other than the table's key.

The lookup gives each row all rows of the table in one column, an array of structs. Spark finds those that match, which
become rows; so the condition is evaluated where all other conditions are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import StructField, StructType

from sparkrelay.catalyst.frames import (
    analyzed,
    as_attribute,
    attributes,
    frame_of,
    new_number,
    project,
    replaced,
)
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items, java, kind, nothing, seq
from sparkrelay.catalyst.rewriting import all_of, where_found
from sparkrelay.catalyst.tree import Expression
from sparkrelay.errors import TopologyException
from sparkrelay.topology.reading.conditions import Both
from sparkrelay.topology.record import with_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.types import DataType

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.rows import Rows

#: Joins that emit a row at most once, whatever number of rows match.
_ONCE: Final = frozenset({"ExistenceJoin", "LeftAnti", "LeftSemi"})
_OUTER: Final = frozenset({"LeftOuter", "RightOuter"})
#: Nodes that change no row.
_NAMING: Final = frozenset({"PipeOperator", "ResolvedHint", "SubqueryAlias", "View"})

_Pairs = list[tuple[Both, Both]]


def inlined(
    table: Rows, pairs: _Pairs, rest: list[Both], where: str
) -> tuple[Rows, _Pairs, list[Both], dict[int, Any]]:
    """Return a global table without the steps behind it, and a join's condition with them.

    Args:
        table: the rows as the user wrote them.
        pairs: an expression of the stream and one of ``table`` that are equal.
        rest: what else must hold.
        where: the user's line.

    Returns:
        The rows without steps, both parts of the condition, and what columns of ``table`` are computed of.

    Raises:
        TopologyException: a step is neither a filter nor a projection.
    """
    known: list[tuple[Any, Any]] = []
    filters: list[Both] = []
    for step, _ in table.steps:
        if step.kind == "Filter":
            filters.append(Both(step.expressions[0], replaced(step.java.condition(), known)))
        elif step.kind == "Project":
            chosen = [one for one in items(step.java.projectList()) if kind(one) == "Alias"]
            known += [(one.toAttribute(), replaced(one.child(), known)) for one in chosen]
        elif step.kind not in _NAMING:
            raise TopologyException(
                f"{where}: join() with a global table: filters and other columns may stand behind it, but not "
                f"{step.kind}; write the result to a topic, and read that with builder.global_table()"
            )
    plain = with_rows(table, frame_of(table.leaf.java, table.frame.sparkSession))
    return (
        plain,
        [(own, _inlined(theirs, known)) for own, theirs in pairs],
        [_inlined(one, known) for one in (*rest, *filters)],
        {_number(one): value for one, value in known},
    )


def _inlined(one: Both, known: list[tuple[Any, Any]]) -> Both:
    made = replaced(one.java, known)
    if kind(made) != "AttributeReference":
        return Both(one.read, made)
    fields = {"exprId": {"id": _number(made)}, "name": str(made.name())}
    return Both(Expression("AttributeReference", (), fields), made)


def matching(  # noqa: PLR0917 - what is known of one step
    at: Plan,
    rows: Rows,
    table: Rows,
    names: Mapping[int, str],
    conditions: Sequence[Both],
    computed: Mapping[int, Any],
) -> Rows:
    """Return the rows of a lookup with the columns of the join.

    Args:
        at: the ``Join``.
        rows: of the lookup. Their columns: the stream's, the array of the table's rows, and whether it has any.
        table: the table's rows as the user wrote them.
        names: number of a column of ``table`` -> what the table calls it.
        conditions: what a row that matches fulfils.
        computed: number of a column of the join -> what it is of the table's columns.
    """
    plan = analyzed(rows.frame)
    *own, held, _ = items(plan.output())
    element = held.dataType().elementType()
    places = {str(name): place for place, name in enumerate(element.fieldNames())}
    columns = [
        (one, places[names[_number(one)]]) for one in items(analyzed(table.frame).output()) if _number(one) in names
    ]
    found = held
    if conditions:
        cell = java("java.util.concurrent.atomic.AtomicReference")()
        row = catalyst("expressions.NamedLambdaVariable", "row", element, False, new_number(), cell)
        holds = replaced(all_of(one.java for one in conditions), [(one, _field(row, place)) for one, place in columns])
        found = catalyst(
            "expressions.ArrayFilter", held, catalyst("expressions.LambdaFunction", holds, seq([row]), False)
        )
    known = {_number(one): one for one in own}
    output = items(at.java.output())
    if at.join_type in _ONCE:
        zero = catalyst_object("expressions.Literal").apply(0)
        some = catalyst("expressions.GreaterThan", catalyst("expressions.Size", found, False), zero)
        if at.join_type == "ExistenceJoin":
            known |= {_number(one): some for one in output if _number(one) not in known}
        else:
            kept = some if at.join_type == "LeftSemi" else catalyst("expressions.Not", some)
            plan = catalyst("plans.logical.Filter", kept, plan)
    else:
        made = attributes(StructType([StructField("row", _element(rows))]))
        explode, outer = catalyst("expressions.Explode", found), at.join_type in _OUTER
        plan = catalyst("plans.logical.Generate", explode, seq([]), outer, nothing(), made, plan)
        row = made.head()
        values = [(one, _field(row, place)) for one, place in columns]
        known |= {_number(one): value for one, value in values}
        there = catalyst("expressions.IsNotNull", row)
        for number, expression in computed.items():
            known[number] = where_found(there if outer else None, replaced(expression, values))
    stream = {_number(one) for one in own}
    shown = [one if _number(one) in stream else as_attribute(known[_number(one)], one) for one in output]
    rows.node.finish = 2
    return with_rows(rows, frame_of(project(shown, plan), rows.frame.sparkSession))


def _element(rows: Rows) -> DataType:
    array: Any = rows.schema.fields[-2].dataType
    made: DataType = array.elementType
    return made


def _number(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _field(struct: Any, place: int) -> Any:
    return catalyst("expressions.GetStructField", struct, place, nothing())
