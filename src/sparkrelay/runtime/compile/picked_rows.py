"""Which plans only take some of the rows and columns that a step of ours makes, so that the next step can as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sparkrelay.runtime.compile.catalyst import items, kind, number_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = ["Picked", "picked_rows"]

#: Of each condition its alternatives: a column, and whether it is to be true, or only not null.
Conditions = tuple[tuple[tuple[str, bool], ...], ...]


class Picked(NamedTuple):
    """What a plan takes of the rows that a step of ours makes.

    Attributes:
        of: Catalyst's number of those rows' first column, by which they are known.
        columns: name in the plan -> name in the rows; None: the column is null.
        conditions: a row is taken if of each of them something is so: a column (by its name in the rows) is not null,
            or, where the flag is True, it is true.
    """

    of: int
    columns: dict[str, str | None]
    conditions: Conditions


#: Catalyst's number of a column -> its name in the rows; None: it is null. Computed ones are left out.
_Known = dict[int, str | None]


def picked_rows(plan: DataFrame) -> Picked | None:
    """Return what ``plan`` takes of the rows of a step of ours if it computes nothing, or None."""
    node = plan._jdf.queryExecution().analyzed()
    above = []
    while (what := kind(node)) in {"Filter", "Project"}:
        above.append((what, node))
        node = node.child()
    if what != "MapInArrow":
        return None
    shown = [(number_of(column), str(column.name())) for column in items(node.output())]
    if len({name for _, name in shown}) < len(shown):
        # Of two columns with one name, the name does not say which.
        return None
    of, known, conditions = shown[0][0], _Known(shown), Conditions()
    for what, node in reversed(above):
        if what == "Project":
            columns = [(number_of(column), column) for column in items(node.projectList())]
            shown = [(number, str(column.name())) for number, column in columns]
            known = {number: source for number, column in columns for source in _source(column, known)}
        elif (found := _conditions(node.condition(), known)) is None:
            return None
        else:
            conditions += found
    taken = {name: known[number] for number, name in shown if number in known}
    return Picked(of, taken, conditions) if len(taken) == len(shown) else None


def _source(column: Any, known: _Known) -> Iterator[str | None]:
    """Yield what column of the rows, or null, a column of a projection is; nothing if it is computed."""
    expression = column.child() if kind(column) == "Alias" else column
    if kind(expression) == "AttributeReference":
        if (number := number_of(expression)) in known:
            yield known[number]
        return
    while kind(expression) == "Cast":
        expression = expression.child()
    if kind(expression) == "Literal" and expression.value() is None:
        yield None


def _conditions(expression: Any, known: _Known) -> Conditions | None:
    """Return a filter's condition as the alternatives of each of its parts; None: it is another one."""
    match kind(expression):
        case "AttributeReference":
            return _condition(expression, known, is_true=True)
        case "IsNotNull":
            of = expression.child()
            return _condition(of, known, is_true=False) if kind(of) == "AttributeReference" else None
        case "And" | "Or" as how:
            left, right = _conditions(expression.left(), known), _conditions(expression.right(), known)
            if left is None or right is None:
                return None
            if how == "And":
                return left + right
            return (left[0] + right[0],) if len(left) == len(right) == 1 else None
    return None


def _condition(attribute: Any, known: _Known, *, is_true: bool) -> Conditions | None:
    """Return that a column is true, or not null; null is neither. None: the column is computed."""
    if (number := number_of(attribute)) not in known:
        return None
    name = known[number]
    return ((),) if name is None else (((name, is_true),),)
