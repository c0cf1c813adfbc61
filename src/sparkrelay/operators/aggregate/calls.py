"""The aggregates of an ``agg(...)``, read from Catalyst's analyzed plan.

Catalyst has resolved names, casts and aliases: ``F.std``, ``F.expr("stddev(x) FILTER (WHERE y > 0)")`` and a grouping's
own method are the same expressions. Arguments are computed in the projection before the stateful step, expressions over
several aggregates in the one after it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import Column, functions as F

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import without_leaves
from sparkrelay.catalyst.jvm import items, java, kind, nodes, pattern
from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.collected_calls import COLLECTED

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Catalyst's aggregates of one column -> function.
_OF_ONE: Final = {
    "Sum": "sum",
    "Average": "avg",
    "Min": "min",
    "Max": "max",
    "BoolAnd": "min",
    "BoolOr": "max",
    "BitAndAgg": "bit_and",
    "BitOrAgg": "bit_or",
    "BitXorAgg": "bit_xor",
    "Product": "product",
    "VariancePop": "var_pop",
    "VarianceSamp": "var_samp",
    "StddevPop": "stddev_pop",
    "StddevSamp": "stddev_samp",
    "Skewness": "skewness",
    "Kurtosis": "kurtosis",
}
#: Aggregates of pairs without nulls.
_OF_PAIRS: Final = {
    "CovPopulation": "covar_pop",
    "CovSample": "covar_samp",
    "Corr": "corr",
    "RegrSXY": "regr_sxy",
    "RegrSlope": "regr_slope",
    "RegrIntercept": "regr_intercept",
    "RegrR2": "regr_r2",
}
#: Aggregates of one column of such pairs -> function, column.
_OF_ONE_OF_PAIRS: Final = {
    "RegrAvgX": ("avg", 1),
    "RegrAvgY": ("avg", 0),
    "RegrSXX": ("sum_of_squares", 1),
    "RegrSYY": ("sum_of_squares", 0),
}
_ORDERED: Final = {"First": "first", "AnyValue": "first", "Last": "last"}
_BY: Final = {"MaxBy": "max_by", "MinBy": "min_by"}
_KNOWN: Final = (
    "count, count_if, sum, avg, min, max, count_distinct, first, last, any_value, max_by, min_by, bool_and, bool_or, "
    "bit_and, bit_or, bit_xor, product, stddev, variance, skewness, kurtosis, corr, covar_pop, covar_samp, regr_..., "
    "collect_list, collect_set, listagg, mode, median, percentile, approx_percentile and approx_count_distinct"
)
#: Idempotent functions: DISTINCT makes no difference.
_ONCE: Final = frozenset({"min", "max", "bit_and", "bit_or"})


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate.

    Attributes:
        function: its name in ``AggregateSpec``.
        arity: number of its arguments; none for ``count_all``.
        distinct: True if each value of a group counts once.
        options: further options (``AggregateSpec.options``).
        text: the call in SQL, for messages.
    """

    function: str
    arity: int
    distinct: bool = False
    options: tuple[Any, ...] = ()
    text: str = ""

    def argument_names(self, index: int) -> tuple[str, ...]:
        """Return the names of its argument columns if it is the aggregate with this index."""
        return tuple(
            f"{hidden_columns.PREFIX}argument_{index}{f'_{place}' if place else ''}" for place in range(self.arity)
        )


class ReadCall(NamedTuple):
    """An aggregate in an analysed plan.

    Attributes:
        call: what is kept of it.
        arguments: its arguments.
        expression: Catalyst's.
    """

    call: AggregateCall
    arguments: tuple[Column, ...]
    expression: Any


def read_calls(results: Sequence[Any], where: str, *, of_table: bool = False) -> tuple[list[ReadCall], dict[int, int]]:
    """Return the aggregates in results of the JVM's.

    Each result that is an aggregate has one of its own, so that the store has a column of that name; what is computed
    of several takes those that are there.

    Args:
        results: what an aggregation results in.
        where: the user's line, for messages.
        of_table: whether the rows change and go. Then a least value must know those that come after it.

    Returns:
        The aggregates; and place of a result that is one -> which.

    Raises:
        TopologyException: an aggregate is not supported.
    """
    found: list[ReadCall] = []
    direct: dict[int, int] = {}
    aggregate = pattern("AGGREGATE_EXPRESSION")

    def add(call: Any) -> None:
        found.append(read_call(call, where, of_table=of_table))

    for place, result in enumerate(results):
        if kind(result) == "Alias" and kind(result.child()) == "AggregateExpression":
            direct[place] = len(found)
            add(result.child())
    for place, result in enumerate(results):
        if place not in direct and result.containsPattern(aggregate):
            for call in (node for node in nodes(result) if kind(node) == "AggregateExpression"):
                if not any(one.expression.equals(call) or one.expression.semanticEquals(call) for one in found):
                    add(call)
    return found, direct


def read_call(call: Any, where: str, *, of_table: bool = False) -> ReadCall:
    """Return one aggregate; arguments and errors as of :func:`read_calls`."""
    function, arguments, distinct, options = _parsed_call(call, where)
    distinct = distinct or (of_table and function in _ONCE)
    text = without_leaves(str(call.sql()))
    return ReadCall(AggregateCall(function, len(arguments), distinct, options, text), arguments, call)


class _Parsed(NamedTuple):
    function: str
    arguments: tuple[Column, ...]
    distinct: bool = False
    options: tuple[Any, ...] = ()


def _parsed_call(expression: Any, where: str) -> _Parsed:
    function = expression.aggregateFunction()
    found, text = kind(function), without_leaves(str(expression.sql()))
    children = [_column(child) for child in items(function.children())]
    condition = _column(expression.filter().get()) if expression.filter().isDefined() else None
    distinct = bool(expression.isDistinct())
    if found in _ORDERED:
        nulls = not function.ignoreNulls()
        ours = _ORDERED[found] if nulls else f"{_ORDERED[found]}_not_null"
        if distinct:
            raise _unsupported(where, text)
        if nulls and condition is not None:
            return _Parsed(ours, (children[0], condition))
        return _Parsed(ours, (_where(condition, children[0]),))
    if found in _BY:
        if distinct:
            raise _unsupported(where, text)
        return _Parsed(_BY[found], (children[0], _where(condition, children[1])))
    if found in COLLECTED:
        collected = COLLECTED[found](function, distinct)
        if isinstance(collected, str):
            raise _unsupported(where, text, collected)
        ours, arguments, distinct, options = collected
        first, *others = map(_column, arguments)
        return _Parsed(ours, (_where(condition, first), *others), distinct, options)
    if found == "Count" and not distinct:
        return _count(function, children, condition)
    if found in {"CountIf", "RegrCount"}:
        counts = children[0] if found == "CountIf" else _all_there(children)
        # Neither false nor null counts.
        return _Parsed("count", (_where(condition, F.when(counts, F.lit(True))),), distinct)
    if found in _OF_ONE_OF_PAIRS:
        ours, place = _OF_ONE_OF_PAIRS[found]
        argument = F.when(_all_there(children), children[place])
        return _Parsed(ours, (_where(condition, argument),), distinct)
    ours = {"Count": "count", **_OF_ONE, **_OF_PAIRS}.get(found, "")
    if not ours:
        raise _unsupported(where, text)
    if str(function.prettyName()).startswith("try_") and _overflows(function.child().dataType(), ours):
        ours = f"try_{ours}"
    return _Parsed(ours, (_where(condition, children[0]), *children[1:]), distinct and ours not in _ONCE)


def _overflows(kind: Any, function: str) -> bool:
    """Return whether a sum, or an average, of a type may be out of the result's range; doubles become infinite."""
    name = str(kind.typeName())
    return name.startswith("decimal") or (function == "sum" and name not in {"double", "float"})


def _count(function: Any, children: Sequence[Column], condition: Column | None) -> _Parsed:
    literals = [child.value() for child in items(function.children()) if kind(child) == "Literal"]
    if None in literals:
        # Counts nothing. The type of a bare null cannot be stored.
        return _Parsed("count", (F.lit(None).cast("boolean"),))
    if len(literals) == len(children):
        if condition is None:
            return _Parsed("count_all", ())
        return _Parsed("count", (F.when(condition, F.lit(True)),))
    argument = children[0] if len(children) == 1 else F.when(_all_there(children), F.lit(True))
    return _Parsed("count", (_where(condition, argument),))


def _where(condition: Column | None, argument: Column) -> Column:
    return argument if condition is None else F.when(condition, argument)


def _all_there(columns: Sequence[Column]) -> Column:
    return functools.reduce(Column.__and__, (column.isNotNull() for column in columns))


def _column(expression: Any) -> Column:
    return Column(java("org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def _unsupported(where: str, what: str, why: str = "") -> TopologyException:
    return TopologyException(f"{where}: {what} is not supported in agg(): {why or f'use one of {_KNOWN}'}")
