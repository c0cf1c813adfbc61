"""Fields of expressions that a plan's JSON leaves out although they make a difference to a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.jvm import items

if TYPE_CHECKING:
    from collections.abc import Sequence

#: How JSON shows that there may be some.
UNSAID: Final = (
    *('"options":null', '"escapeChar":null', '"patterns":null', '"evalMode":null', '"evalContext":null'),
    '"dataType":"binary"',
)
#: Fields that are asked for wherever they are.
_ASKED: Final = frozenset({"escapeChar", "options", "patterns"})
#: Fields that say what becomes of an error.
_TRIED: Final = frozenset({"evalMode", "evalContext"})
_ALL: Final = 2**31 - 1


def ask_unsaid(expressions: Sequence[Any], node: Any) -> None:
    """Ask the JVM for what JSON has left out, and write it into the fields.

    Args:
        expressions: of a node of a plan (``tree.Expression``).
        node: the node (``tree.Plan``).
    """
    # Most casts and sums are not tried, and one look at the node's text shows it.
    may_be = any(not _TRIED.isdisjoint(part.fields) for one in expressions for part in one.below())
    tried = may_be and "try_" in str(node.java.simpleString(_ALL))
    if any(_lacks(part, tried=tried) for one in expressions for part in one.below()):
        _ask(expressions, items(node.java.expressions()), tried=tried)


def _ask(expressions: Sequence[Any], java: list[Any], *, tried: bool) -> None:
    for one, there in zip(expressions, java, strict=True):
        if not any(_lacks(part, tried=tried) for part in one.below()):
            continue
        fields = one.fields
        if _lacks(one, tried=tried):
            if one.kind == "Literal":
                fields["value"] = there.value().hex()
            for name in _ASKED & fields.keys():
                fields[name] = str(getattr(there, name)().toString() if name != "escapeChar" else there.escapeChar())
            if "evalMode" in fields:
                fields["evalMode"] = str(there.evalMode().toString())
            elif "evalContext" in fields:
                fields["evalMode"] = str(there.evalContext().evalMode().toString())
        _ask(one.children, items(there.children()), tried=tried)


def _lacks(one: Any, *, tried: bool) -> bool:
    """Return whether a field of an expression is to be asked for."""
    if one.kind == "Literal":
        return one.fields["dataType"] == "binary" and one.fields.get("value") is not None
    if any(one.fields.get(name, "") is None for name in _ASKED):
        return True
    return tried and any(one.fields.get(name, "") is None for name in _TRIED)
