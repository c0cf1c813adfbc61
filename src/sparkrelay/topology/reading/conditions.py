"""Conditions of joins, taken apart: what is equal, how far apart times may be, and what else must hold."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.catalyst.intervals import literal_us
from sparkrelay.catalyst.jvm import catalyst, items
from sparkrelay.catalyst.rewriting import true
from sparkrelay.catalyst.tree import Expression, expression_of
from sparkrelay.catalyst.words import type_words
from sparkrelay.topology.refusals import NOT_IN

if TYPE_CHECKING:
    from collections.abc import Iterator, Set as AbstractSet

    from sparkrelay.topology.rows import Rows

_MIRRORED: Final = {
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
    "LessThan": "GreaterThan",
    "LessThanOrEqual": "GreaterThanOrEqual",
}


#: Joins of which the left side alone is seen -> what ``join()`` calls them.
ONE_SIDED: Final = {"LeftSemi": "left_semi", "LeftAnti": "left_anti"}


class Both(NamedTuple):
    """An expression as a value, and in the JVM."""

    read: Expression
    java: Any


@dataclass(slots=True)
class Terms:
    """A join's condition.

    Attributes:
        pairs: an expression of the left side and one of the right that are equal.
        rest: what else must hold.
    """

    pairs: list[tuple[Both, Both]] = field(default_factory=list)
    rest: list[Both] = field(default_factory=list)


def terms_of(condition: Both | None, left: Rows, right: Rows) -> Terms:
    """Return what a condition consists of.

    Raises:
        ValueError: it is ``NOT IN``, of columns that may be null.
    """
    terms = Terms()
    sides = ({column.number for column in left.columns}, {column.number for column in right.columns})
    for one in map(_without_nulls, _conjuncts(condition)):
        if one.read.kind == "EqualTo" and (pair := pair_of(one, *sides)) is not None:
            terms.pairs.append(pair)
        else:
            terms.rest.append(one)
    return terms


def pair_of(one: Both, left: AbstractSet[int], right: AbstractSet[int]) -> tuple[Both, Both] | None:
    """Return the left and the right side of a comparison; None if it does not compare columns of both sides.

    Args:
        one: the comparison.
        left: numbers of the left columns.
        right: numbers of the right columns.
    """
    first, second = (Both(*both) for both in zip(one.read.children, items(one.java.children()), strict=True))
    if _is_of(first, left) and _is_of(second, right):
        return first, second
    if _is_of(first, right) and _is_of(second, left):
        return second, first
    return None


def _without_nulls(one: Both) -> Both:
    """Return what ``NOT IN`` asks, ``a = b OR (a = b) IS NULL``, without its second part where neither is ever null."""
    if one.read.kind != "Or" or one.read.children[1].kind != "IsNull":
        return one
    read, second = one.read.children
    java, null = items(one.java.children())
    if read.kind != "EqualTo" or not java.semanticEquals(null.children().head()):
        return one
    if second.children[0].kind == "EqualTo" and any(part.fields.get("nullable") for part in read.below()):
        raise ValueError(NOT_IN)
    return Both(read, java)


def null_aware(condition: Both) -> tuple[Both, list[Both]] | None:
    """Return what ``NOT IN`` asks of columns that may be null, and the other conditions; None without exactly one."""
    found, others = [], []
    for one in _conjuncts(condition):
        try:
            others.append(_without_nulls(one))
        except ValueError:
            found.append(one)
    return (found[0], others) if len(found) == 1 else None


def always() -> Both:
    """Return the condition that holds of every row."""
    return Both(Expression("Literal", (), {"value": "true", "dataType": "boolean"}), true())


def equal(own: Both, theirs: Both) -> Both:
    """Return the condition that both are equal."""
    return Both(
        Expression("EqualTo", (own.read, theirs.read), {}), catalyst("expressions.EqualTo", own.java, theirs.java)
    )


def differing_types(own: Expression, theirs: Expression) -> tuple[str, str] | None:
    """Return the types of two columns that are compared by a cast of one of them; None for other expressions."""
    plain = [one.children[0] if one.kind == "Cast" else one for one in (own, theirs)]
    if not all(one.is_attribute for one in plain) or "Cast" not in {own.kind, theirs.kind}:
        return None
    first, second = (type_words(one.fields["dataType"]) for one in plain)
    return first, second


def _is_of(one: Both, numbers: AbstractSet[int]) -> bool:
    read = {*one.read.references()}
    return bool(read) and read <= numbers


def _conjuncts(condition: Both | None) -> Iterator[Both]:
    if condition is None or (condition.read.kind == "Literal" and condition.read.fields.get("value") == "true"):
        return
    if condition.read.kind == "And":
        for read, java in zip(condition.read.children, items(condition.java.children()), strict=True):
            yield from _conjuncts(Both(read, java))
    else:
        yield condition


def take_range(terms: Terms, left: Rows, right: Rows, times: tuple[int, int]) -> tuple[int, int] | None:
    """Take from a condition how much earlier and later than the left row the right one may be, in microseconds.

    Args:
        terms: the condition; what is taken is no longer in its rest.
        left: the rows of the left side.
        right: those of the right one.
        times: Catalyst's numbers of their event times.

    Returns:
        Both; None if there are not both.
    """
    bounds: dict[str, list[int]] = {"least": [], "most": []}
    rest, pairs = [], []
    for one in terms.rest:
        for part in _comparisons(one):
            bound = _bound(part, left, right, times)
            if bound is None:
                rest.append(part)
            else:
                bounds[bound[0]].append(bound[1])
    for own, theirs in terms.pairs:
        plain = own.read.is_attribute and theirs.read.is_attribute
        if plain and _is_time(own.read.number, left, times[0]) and _is_time(theirs.read.number, right, times[1]):
            bounds["least"].append(0)
            bounds["most"].append(0)
        else:
            pairs.append((own, theirs))
    if not bounds["least"] or not bounds["most"]:
        return None
    terms.rest, terms.pairs = rest, pairs or terms.pairs
    return -max(bounds["least"]), min(bounds["most"])


def _comparisons(one: Both) -> list[Both]:
    """Return the comparisons that a condition is: ``BETWEEN`` is two."""
    if one.read.kind != "Between":
        return [one]
    given, *bounds = (
        Both(expression_of(one.read.fields[name]), getattr(one.java, name)()) for name in ("input", "lower", "upper")
    )
    return [
        Both(Expression(kind, (given.read, bound.read), {}), catalyst(f"expressions.{kind}", given.java, bound.java))
        for kind, bound in zip(("GreaterThanOrEqual", "LessThanOrEqual"), bounds, strict=True)
    ]


def _bound(one: Both, left: Rows, right: Rows, times: tuple[int, int]) -> tuple[str, int] | None:
    """Return how a comparison bounds the right row's time minus the left row's; None if it is another condition."""
    kind = one.read.kind
    if kind not in _MIRRORED:
        return None
    first, second = (_time(*both) for both in zip(one.read.children, items(one.java.children()), strict=True))
    if first is None or second is None:
        return None
    if _is_time(first[0], left, times[0]) and _is_time(second[0], right, times[1]):
        kind, first, second = _MIRRORED[kind], second, first
    elif not (_is_time(first[0], right, times[1]) and _is_time(second[0], left, times[0])):
        return None
    # The right time + a compared with the left time + b.
    apart = second[1] - first[1]
    match kind:
        case "GreaterThanOrEqual":
            return "least", apart
        case "GreaterThan":
            return "least", apart + 1
        case "LessThanOrEqual":
            return "most", apart
        case _:
            return "most", apart - 1


def _is_time(number: int, rows: Rows, time: int) -> bool:
    """Return whether a column of rows is their event time, or a copy of it."""
    if number == time:
        return True
    if number not in {column.number for column in rows.columns}:
        return False
    copy = rows.copy(number)
    return copy is not None and copy == rows.copy(time)


def _time(read: Expression, java: Any) -> tuple[int, int] | None:
    """Return the column that an expression is, and what is added to it, in microseconds; None for another one."""
    if read.is_attribute:
        return read.number, 0
    if len(read.children) == 1:
        # What Spark puts in the place of others: a Cast of a timestamp to a timestamp, DatetimeSub.
        child = java.children().head()
        same = read.kind == "Cast" and java.dataType().equals(child.dataType())
        return _time(read.children[0], child) if same or read.kind in _PASSED else None
    if read.kind in {"TimestampAddInterval", "TimeAdd"}:
        begin, added = zip(read.children, items(java.children()), strict=True)
        time, us = _time(*begin), _interval(*added)
        return None if time is None or us is None else (time[0], time[1] + us)
    return None


_PASSED: Final = frozenset({"DatetimeSub", "KnownNotNull", "PreciseTimestampConversion"})


def _interval(read: Expression, java: Any) -> int | None:
    if read.kind == "UnaryMinus":
        us = _interval(read.children[0], java.children().head())
        return None if us is None else -us
    if not java.foldable():
        return None
    value = java.eval(None)
    return None if value is None else literal_us(value)
