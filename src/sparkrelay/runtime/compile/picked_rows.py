"""Plans that only select rows and columns of a step of ours, which the next step can do itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.runtime.compile.catalyst import analyzed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from sparkrelay.runtime.compile.catalyst import Node

#: The alternatives of each condition: a column, and whether it must be true, or only not null.
Conditions = tuple[tuple[tuple[str, bool], ...], ...]


class Picked(NamedTuple):
    """A selection of the rows of a step of ours.

    Attributes:
        of: Catalyst's number of the rows' first column, which identifies them.
        columns: name in the plan -> name in the rows; None: the column is null.
        conditions: a row is selected if each of them has an alternative that holds: a column (by its name in the rows)
            is not null, or with the flag it is true.
    """

    of: int
    columns: dict[str, str | None]
    conditions: Conditions


#: Catalyst's number of a column -> its name in the rows; None: it is null. Without computed columns.
_Known = dict[int, str | None]


def picked_rows(plan: DataFrame) -> Picked | None:
    """Return the selection that ``plan`` makes of a step's rows; None if it computes anything."""
    node = analyzed(plan)
    above = []
    while node.kind in {"Filter", "Project"}:
        above.append(node)
        node = node.children[0]
    if node.kind != "MapInArrow":
        return None
    shown = node.output
    if len({name for _, name in shown}) < len(shown):
        # The names are ambiguous.
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
    """Yield the column of the rows, or None for null, that a projection's column is; nothing if it is computed."""
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
    """Return a filter's condition as alternatives of each of its parts; None if it has another form."""
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
    """Return the condition that a column is true, or not null; None if the column is computed."""
    if attribute.number not in known:
        return None
    name = known[attribute.number]
    return ((),) if name is None else (((name, is_true),),)
