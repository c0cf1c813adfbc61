"""Which plans only take some of the rows and columns that a step of ours makes, so that the next step can as well.

A plan is read as JSON: one call to the JVM, where a walk from node to node takes one for each attribute.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkrelay.runtime.compile.catalyst import kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

__all__ = ["Picked", "picked_rows"]

Node = dict[str, Any]
#: Of each condition its alternatives: a column, and whether it is to be true, or only not null.
Conditions = list[list[tuple[int, bool]]]

#: Stands for the number of a column that is null.
_NULL = -1


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
    conditions: tuple[tuple[tuple[str, bool], ...], ...]


def picked_rows(plan: DataFrame) -> Picked | None:
    """Return what ``plan`` takes of the rows of a step of ours if it computes nothing, or None."""
    top = below = plan._jdf.queryExecution().analyzed()
    while kind(below) in {"Filter", "Project"}:
        below = below.child()
    if kind(below) != "MapInArrow":
        return None
    every: list[Node] = json.loads(top.toJSON())
    # A filter's columns are those of what is below it.
    begin = next(node for node in every if _class(node) != "Filter")
    shown: list[list[Node]] = begin.get("projectList") or begin.get("output") or []
    outputs = [(column[0]["name"], _number(column[0])) for column in shown]
    conditions: Conditions = []
    for node in every:
        match _class(node):
            case "MapInArrow":
                return _resolved(node, outputs, conditions)
            case "Filter":
                if (found := _conditions(iter(node["condition"]))) is None:
                    return None
                conditions += found
            case "Project":
                sources = _sources(node)
                numbers = [*(number for _, number in outputs), *(number for some in conditions for number, _ in some)]
                if any(sources.get(number, number) is None for number in numbers):
                    return None
                outputs = [(name, _behind(sources, number)) for name, number in outputs]
                conditions = [[(_behind(sources, number), flag) for number, flag in some] for some in conditions]
            case _:
                return None
    return None


def _resolved(node: Node, outputs: list[tuple[str, int]], conditions: Conditions) -> Picked | None:
    names = {_number(column[0]): column[0]["name"] for column in node["output"]}
    columns = {name: names.get(number) for name, number in outputs}
    if len(columns) < len(outputs) or len(set(names.values())) < len(names):
        # Of two columns with one name, the name does not say which.
        return None
    # Null is neither there nor true.
    known = tuple(tuple((names[number], flag) for number, flag in some if number in names) for some in conditions)
    return Picked(next(iter(names)), columns, known)


def _behind(sources: dict[int, int | None], number: int) -> int:
    source = sources.get(number, number)
    assert source is not None, "those that are computed were looked for before"
    return source


def _sources(node: Node) -> dict[int, int | None]:
    """Return what columns of a projection are other columns, or nulls, under a new number; None: they are computed."""
    return {_number(column[0]): _source(column[1:]) for column in node["projectList"] if _class(column[0]) == "Alias"}


def _source(expression: list[Node]) -> int | None:
    if _class(expression[0]) == "AttributeReference":
        return _number(expression[0])
    *casts, last = expression
    is_null = all(_class(one) == "Cast" for one in casts) and _class(last) == "Literal" and last.get("value") is None
    return _NULL if is_null else None


def _conditions(expression: Iterator[Node]) -> Conditions | None:
    """Return a filter's condition as the alternatives of each of its parts; None: it is another one."""
    node = next(expression)
    match _class(node):
        case "AttributeReference":
            return [[(_number(node), True)]]
        case "IsNotNull":
            of = next(expression)
            return [[(_number(of), False)]] if _class(of) == "AttributeReference" else None
        case "And" | "Or" as how:
            left, right = _conditions(expression), _conditions(expression)
            if left is None or right is None:
                return None
            if how == "And":
                return left + right
            return [left[0] + right[0]] if len(left) == len(right) == 1 else None
    return None


def _number(node: Node) -> int:
    return int(node["exprId"]["id"])


def _class(node: Node) -> str:
    return str(node["class"]).rpartition(".")[2]
