"""Analysed plans and their expressions as Python values, all read from one ``toJSON()``.

A call to the JVM costs as much as reading a hundred nodes here. So whoever asks what a plan is made of asks these
values, and goes to the JVM (``Plan.java``) to build another plan, or for the little that JSON does not say: an
attribute's metadata, and the delay of a watermark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.jvm import catalyst_object, items, nodes_above, seq
from sparkrelay.catalyst.remembered import remembered
from sparkrelay.catalyst.unsaid import UNSAID, ask_unsaid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from py4j.java_gateway import JavaObject

    _Output = Callable[["Plan"], tuple["Column", ...]]

_PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical."
#: What each node has that is no field of its own.
_OWN: Final = frozenset({"class", "num-children"})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a plan's node.

    Attributes:
        number: Catalyst's number of it (``ExprId``), the same wherever the column is passed on as it is.
        name: as it was written.
    """

    number: int
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """An expression.

    Attributes:
        kind: name of its class: ``Add``, ``AttributeReference``.
        children: what it is made of.
        fields: its other fields, as in JSON.
        plans: of a subquery: its plan.
    """

    kind: str
    children: tuple[Expression, ...]
    fields: Mapping[str, Any]
    plans: tuple[Plan, ...] = ()

    @property
    def number(self) -> int:
        """Catalyst's number of an attribute, or of the column that an alias makes."""
        return int(self.fields["exprId"]["id"])

    @property
    def name(self) -> str:
        """The name of an attribute, an alias or a Python function."""
        return str(self.fields["name"])

    @property
    def is_attribute(self) -> bool:
        """True for a column of the plan below."""
        return self.kind == "AttributeReference"

    def below(self) -> Iterator[Expression]:
        """Yield the expression and all that it is made of; not what is in the plans of subqueries."""
        yield self
        for child in self.children:
            yield from child.below()

    def references(self) -> Iterator[int]:
        """Yield the numbers of the columns that it reads; those of an outer plan too, in a subquery."""
        for one in self.below():
            if one.is_attribute:
                yield one.number
            for plan in one.plans:
                for node in plan.below():
                    for expression in node.expressions:
                        yield from expression.references()


@dataclass(eq=False)
class Plan:
    """A node of an analysed plan.

    Attributes:
        kind: name of its class: ``Project``, ``Join``.
        children: what its rows are made of.
        fields: its fields, as in JSON.
        by_field: field -> the expressions in it, in their order.
        source: where its JVM object is found: that of the root; or its parent, and which child it is.
    """

    kind: str
    children: tuple[Plan, ...]
    fields: Mapping[str, Any]
    by_field: Mapping[str, tuple[Expression, ...]]
    source: JavaObject | tuple[Plan, int] | None = field(default=None, repr=False)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """All its expressions, in the order of Catalyst's ``expressions``."""
        return tuple(one for some in self.by_field.values() for one in some)

    @remembered
    def java(self) -> JavaObject:
        """The node itself, in the JVM."""
        assert self.source is not None, "a subquery's plan is not reached from here"
        if isinstance(self.source, tuple):
            parent, place = self.source
            return parent.java.children().apply(place)
        return self.source

    @remembered
    def ways(self) -> tuple[tuple[Expression, ...], ...]:
        """Of an ``Expand``: the rows that it makes of each, as expressions in the order of its columns."""
        if self.fields["projections"] is None:
            # What ``unpivot`` makes is no list to whoever writes the JSON.
            return tuple(tuple(map(read_expression, items(way))) for way in items(self.java.projections()))
        return tuple(tuple(map(_expression, way)) for way in self.fields["projections"])

    @property
    def generator(self) -> Expression:
        """Of a ``Generate``: what makes several rows of one."""
        return self.by_field["generator"][0]

    def below(self) -> Iterator[Plan]:
        """Yield the node and all that its rows are made of; not the plans of subqueries."""
        yield self
        for child in self.children:
            yield from child.below()

    @property
    def join_type(self) -> str:
        """Of a join: ``Inner``, ``LeftOuter``, ``LeftSemi``, ..."""
        made = self.fields["joinType"]
        return str(made.get("object") or made["product-class"]).rpartition(".")[2].rstrip("$")

    @remembered
    def text(self) -> str:
        """The node and all below it as text, with Catalyst's numbers: equal where it is one and the same plan."""
        return json.dumps([self.kind, self.fields, [child.text for child in self.children]])

    @remembered
    def output(self) -> tuple[Column, ...]:
        """Its columns."""
        if (found := _OUTPUT.get(self.kind)) is not None:
            return found(self)
        # Of a DataFrame that is joined with: whatever Spark has read.
        return tuple(Column(int(one.exprId().id()), str(one.name())) for one in items(self.java.output()))


def read_plan(java: JavaObject, known: Plan | None = None) -> Plan:
    """Return an analysed plan, read in one call to the JVM, and few more where JSON does not say all.

    Args:
        java: the plan in the JVM.
        known: a plan that it may be, or be made of, as it was read before. A window takes 50 ms to read.
    """
    above = None if known is None else nodes_above(java, known.java)
    if known is not None and above == []:
        return known
    if above is None:
        known, read = None, java
    else:
        read = catalyst_object("plans.logical.OneRowRelation").apply()
        for node in reversed(above):
            read = node.withNewChildren(seq([read]))
    text = str(read.toJSON())
    plan = _plan(json.loads(text), java, known)
    if any(field in text for field in UNSAID):
        for one in plan.below():
            if one is known:
                break
            ask_unsaid(one.expressions, one)
    return plan


def read_expression(java: JavaObject) -> Expression:
    """Return an expression in the JVM as a value."""
    return _expression(json.loads(java.toJSON()))


def expression_of(json_nodes: Any) -> Expression:
    """Return the expression that a field of another one holds, as it stands in JSON."""
    return _expression(json_nodes)


class _Fields(dict[str, tuple["Expression", ...]]):
    """Field -> its expressions; none for a field without."""

    def __missing__(self, name: str) -> tuple[Expression, ...]:
        return ()


def _plan(nodes: list[dict[str, Any]], source: JavaObject | None, known: Plan | None = None) -> Plan:
    """Return a plan given its nodes from the root on, each before what is below it; ``known`` stands for the last."""
    rest = iter(nodes)

    def read() -> Plan:
        node = next(rest)
        if known is not None and not node["num-children"]:
            return known
        children = tuple(read() for _ in range(node["num-children"]))
        fields = {name: value for name, value in node.items() if name not in _OWN}
        by_field = _Fields({name: found for name, value in fields.items() if (found := tuple(_expressions(value)))})
        plan = Plan(_kind(node), children, fields, by_field)
        for place, child in enumerate(children):
            if child is not known:
                child.source = plan, place
        return plan

    root = read()
    root.source = source
    return root


def _expressions(value: Any) -> Iterator[Expression]:
    """Yield the expressions in a node's field, however deep in lists and tuples."""
    if isinstance(value, dict):
        for inside in value.values():
            yield from _expressions(inside)
    elif _is_tree(value):
        if not value[0]["class"].startswith(_PLANS):
            yield _expression(value)
    elif isinstance(value, list):
        for inside in value:
            yield from _expressions(inside)


def _expression(nodes: list[dict[str, Any]]) -> Expression:
    rest = iter(nodes)

    def read() -> Expression:
        node = next(rest)
        children = tuple(read() for _ in range(node["num-children"]))
        fields = {name: value for name, value in node.items() if name not in _OWN}
        plans = tuple(_plan(value, None) for value in fields.values() if _is_tree(value) and _is_plan(value))
        return Expression(_kind(node), children, fields, plans)

    return read()


def _is_tree(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "class" in value[0]


def _is_plan(nodes: list[dict[str, Any]]) -> bool:
    return str(nodes[0]["class"]).startswith(_PLANS)


def _kind(node: Mapping[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def _column(named: Expression) -> Column:
    """Return the column that an attribute is, or that an alias makes."""
    return Column(named.number, named.name)


def _of_field(name: str) -> _Output:
    def output(plan: Plan) -> tuple[Column, ...]:
        return tuple(map(_column, plan.by_field.get(name, ())))

    return output


def _of_child(plan: Plan) -> tuple[Column, ...]:
    # Of a WITH clause, what is selected comes behind the definitions; of a union, the first names the columns.
    return plan.children[-1 if plan.kind == "WithCTE" else 0].output


def _of_generate(plan: Plan) -> tuple[Column, ...]:
    left_out = set(plan.fields["unrequiredChildIndex"])
    kept = (column for index, column in enumerate(plan.children[0].output) if index not in left_out)
    return (*kept, *map(_column, plan.by_field["generatorOutput"]))


def _of_window(plan: Plan) -> tuple[Column, ...]:
    return (*plan.children[0].output, *map(_column, plan.by_field["windowExpressions"]))


def _of_join(plan: Plan) -> tuple[Column, ...]:
    left, right = (child.output for child in plan.children)
    return left if plan.join_type in {"LeftSemi", "LeftAnti"} else (*left, *right)


_OUTPUT: Final[dict[str, _Output]] = {
    **dict.fromkeys(("Project",), _of_field("projectList")),
    **dict.fromkeys(("Aggregate",), _of_field("aggregateExpressions")),
    **dict.fromkeys(
        ("CTERelationRef", "Expand", "LocalRelation", "LogicalRDD", "MapInArrow", "MapInPandas", "StreamingRelationV2"),
        _of_field("output"),
    ),
    **dict.fromkeys(
        (
            "CTERelationDef",
            "CollectMetrics",
            "Deduplicate",
            "DeduplicateWithinWatermark",
            "Distinct",
            "EventTimeWatermark",
            "Filter",
            "GlobalLimit",
            "LocalLimit",
            "PipeOperator",
            "RepartitionByExpression",
            "ResolvedHint",
            "Sort",
            "SubqueryAlias",
            "Union",
            "View",
            "WithCTE",
        ),
        _of_child,
    ),
    "Generate": _of_generate,
    "Join": _of_join,
    "Window": _of_window,
}
