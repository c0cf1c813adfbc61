"""Which columns a stream surely has, as far as that can be known before Spark is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.topology.columns import column_path, expression_path, is_star, output_name
from sparkrelay.topology.nodes import (
    AggregationNode,
    EmittingNode,
    LookupNode,
    SourceNode,
    StepNode,
    TableJoinNode,
)

if TYPE_CHECKING:
    from sparkrelay.records.formats import Format
    from sparkrelay.topology.nodes import AnyNode
    from sparkrelay.topology.structure import Step

#: Steps that leave every column there.
_KEEPING: Final = frozenset({"where", "filter", "dropna", "fillna", "withWatermark", "join"})


def known_names(node: AnyNode | None) -> frozenset[str]:
    """Return the names of columns that rows have at ``node``; there may be more."""
    match node:
        case None | AggregationNode() | TableJoinNode():
            return frozenset()
        case SourceNode():
            return _of_format(node.key, "key") | _of_format(node.value, "value")
        case StepNode() if node.step is not None:
            return _after(node.step, known_names(node.parent))
        case EmittingNode():
            return known_names(node.parent) | known_names(node.other) | {*node.step.by}
        case LookupNode():
            return known_names(node.parent) | known_names(node.table.parent)
        case _:
            return known_names(node.parent)


def _of_format(form: Format | None, place: str) -> frozenset[str]:
    return frozenset() if form is None else frozenset(form.known_columns(place))


def _after(step: Step, before: frozenset[str]) -> frozenset[str]:
    match step.kind:
        case kind if kind in _KEEPING:
            return before
        case "withColumn":
            return before | {step.args[0]}
        case "withColumns":
            return before | set(step.args[0])
        case "withColumnRenamed":
            old, new = step.args
            return (before - {old}) | {new} if old in before else before
        case "drop":
            dropped = {path[0] for path in map(column_path, step.args) if path is not None}
            return before - dropped if len(dropped) == len(step.args) else frozenset()
        case "select":
            return _selected(step.args, before, by_text=False)
        case "selectExpr":
            return _selected(step.args, before, by_text=True)
        case _:
            return frozenset()


def _selected(columns: tuple[Any, ...], before: frozenset[str], *, by_text: bool) -> frozenset[str]:
    names: set[str] = set()
    for column in columns:
        if is_star(column):
            names |= before
        else:
            name = expression_path(column)[1] if by_text else output_name(column)
            names |= set() if name is None else {name}
    return frozenset(names)
