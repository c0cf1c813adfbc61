"""Catalyst expressions of aggregates that collect a group's values, and of approximate ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.catalyst.jvm import items, kind

if TYPE_CHECKING:
    from collections.abc import Callable

    #: Function, Catalyst's arguments, whether each value counts once, options.
    Found = tuple[str, list[Any], bool, tuple[Any, ...]]

#: HLL++ with 2^p registers has a relative standard deviation of this / 2^(p/2) (Spark's rule for choosing p).
_DEVIATION: Final = 1.106
_MOST_REGISTERS: Final = 14


def _list(function: Any, distinct: bool) -> Found | str:
    if not function.ignoreNulls():
        return "lists skip nulls; collect structs to keep them, collect_list(struct(x))"
    return "collect_set" if distinct else "collect_list", [function.child()], False, ()


def _set(function: Any, _: bool) -> Found | str:
    if not function.ignoreNulls():
        return "sets skip nulls; collect structs to keep them, collect_set(struct(x))"
    return "collect_set", [function.child()], False, ()


def _listagg(function: Any, distinct: bool) -> Found | str:
    child, delimiter = function.child(), function.delimiter()
    value = delimiter.eval(None)
    if value is None:
        value = ""
    binary = str(child.dataType().simpleString()) == "binary"
    value = (bytes(value) if value else b"") if binary else str(value)
    orders = items(function.orderExpressions())
    if not orders:
        # Without an order, the order of equal texts is irrelevant.
        return "sorted_listagg" if distinct else "listagg", [child], distinct, (value, False)
    if len(orders) > 1 or not orders[0].child().semanticEquals(child):
        return (
            "texts can only be ordered by themselves or by arrival; collect structs that begin with the order instead: "
            "array_join(transform(array_sort(collect_list(struct(o, x))), s -> s.x), ',')"
        )
    descending = "Descending" in str(orders[0].direction().getClass().getSimpleName())
    return "sorted_listagg", [child], distinct, (value, descending)


def _mode(function: Any, _: bool) -> Found | str:
    reverse = function.reverseOpt()
    largest = reverse.isDefined() and not reverse.get()
    return "mode", [function.child()], False, ("largest" if largest else "smallest",)


def _median(function: Any, distinct: bool) -> Found | str:
    return "percentile", [function.child()], distinct, ((0.5,), False, False)


def _percentile(function: Any, distinct: bool) -> Found | str:
    child, percentage, frequency = items(function.children())
    options = _percentages(percentage, descending=bool(function.reverse()))
    if kind(frequency) == "Literal" and frequency.value() == 1:
        return "percentile", [child], distinct, options
    if distinct:
        return "a frequency cannot be combined with DISTINCT; remove one of them"
    return "percentile", [child, frequency], False, options


def _percentile_cont(function: Any, distinct: bool) -> Found | str:
    child, percentage = items(function.children())
    return "percentile", [child], distinct, _percentages(percentage, descending=bool(function.reverse()))


def _percentile_disc(function: Any, distinct: bool) -> Found | str:
    if function.legacyCalculation():
        return "Spark 3's calculation is not supported; set spark.sql.legacy.percentileDiscCalculation to false"
    child, percentage = items(function.children())
    return "percentile_disc", [child], distinct, _percentages(percentage, descending=bool(function.reverse()))


def _approx_percentile(function: Any, distinct: bool) -> Found | str:
    child, percentage, _ = items(function.children())
    return "approx_percentile", [child], distinct, _percentages(percentage, descending=False)


def _percentages(expression: Any, *, descending: bool) -> tuple[Any, ...]:
    value = expression.eval(None)
    if isinstance(value, float | int):
        return (float(value),), False, descending
    return tuple(float(one) for one in value.toDoubleArray()), True, descending


def _approx_count_distinct(function: Any, _: bool) -> Found | str:
    deviation = float(function.relativeSD())
    registers = math.ceil(2 * math.log2(_DEVIATION / deviation))
    if registers > _MOST_REGISTERS:
        least = _DEVIATION / 2 ** (_MOST_REGISTERS / 2)
        return (
            f"rsd={deviation} needs {1 << registers} bytes a group; use at least {least:.4f}, or count_distinct, which "
            "is exact"
        )
    return "approx_count_distinct", [function.child()], False, (max(registers, 4),)


#: Catalyst's class -> the reader of such a function, given whether each value counts once. It returns the state, or why
#: the aggregate is not supported.
COLLECTED: Final[dict[str, Callable[[Any, bool], Found | str]]] = {
    "CollectList": _list,
    "CollectSet": _set,
    "ListAgg": _listagg,
    "Mode": _mode,
    "Median": _median,
    "Percentile": _percentile,
    "PercentileCont": _percentile_cont,
    "PercentileDisc": _percentile_disc,
    "ApproximatePercentile": _approx_percentile,
    "HyperLogLogPlusPlus": _approx_count_distinct,
}
