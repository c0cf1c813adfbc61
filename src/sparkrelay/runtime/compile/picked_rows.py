"""Which plans only take some of the rows and columns that a step of ours makes, so that the next step can as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.runtime.compile.catalyst import analyzed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from sparkrelay.runtime.compile.catalyst import Node

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
    node = analyzed(plan)
    above = []
    while node.kind in {"Filter", "Project"}:
        above.append(node)
        node = node.children[0]
    if node.kind != "MapInArrow":
        return None
    shown = node.output
    if len({name for _, name in shown}) < len(shown):
        # Of two columns with one name, the name does not say which.
        return None
    of, known, conditions = shown[0].number, _Known(shown), Conditions()
    for node in reversed(above):
        if node.kind == "Project":
            shown = node.output
            made = ((number, node.aliases.get(number)) for number, _ in shown)
            known = {number: source for number, alias in made for source in _source(number, alias, known)}
            continue
        (condition,) = node.expressions
        if (found := _conditions(condition, known)) is None:
            return None
        conditions += found
    taken = {name: known[number] for number, name in shown if number in known}
    return Picked(of, taken, conditions) if len(taken) == len(shown) else None


def _source(number: int, alias: Node | None, known: _Known) -> Iterator[str | None]:
    """Yield what column of the rows, or null, a column of a projection is; nothing if it is computed."""
    expression = None if alias is None else alias.children[0]
    if expression is None or expression.kind == "AttributeReference":
        read = number if expression is None else expression.number
        if read in known:
            yield known[read]
        return
    while expression.kind == "Cast":
        (expression,) = expression.children
    if expression.kind == "Literal" and expression.java.value() is None:
        yield None


def _conditions(expression: Node, known: _Known) -> Conditions | None:
    """Return a filter's condition as the alternatives of each of its parts; None: it is another one."""
    match expression.kind:
        case "AttributeReference":
            return _condition(expression, known, is_true=True)
        case "IsNotNull":
            (of,) = expression.children
            return _condition(of, known, is_true=False) if of.kind == "AttributeReference" else None
        case "And" | "Or" as how:
            left, right = (_conditions(side, known) for side in expression.children)
            if left is None or right is None:
                return None
            if how == "And":
                return left + right
            return (left[0] + right[0],) if len(left) == len(right) == 1 else None
    return None


def _condition(attribute: Node, known: _Known, *, is_true: bool) -> Conditions | None:
    """Return that a column is true, or not null; null is neither. None: the column is computed."""
    if attribute.number not in known:
        return None
    name = known[attribute.number]
    return ((),) if name is None else (((name, is_true),),)
