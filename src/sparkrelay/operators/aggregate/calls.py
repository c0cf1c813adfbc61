"""The aggregates of an ``agg(...)``, read from Catalyst's analyzed plan.

Catalyst has resolved names, casts and aliases: ``F.std``, ``F.expr("stddev(x) FILTER (WHERE y > 0)")`` and a grouping's
own method are the same expressions. Arguments are computed in the projection before the stateful step, expressions over
several aggregates in the one after it.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Column, functions as F
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from sparkrelay.errors import TopologyException
from sparkrelay.operators.aggregate.collected_calls import COLLECTED
from sparkrelay.runtime.compile.catalyst import items, java, kind, named, nodes
from sparkrelay.runtime.contract import hidden_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence, Set as AbstractSet

    from pyspark.sql import DataFrame

#: Spark's own overflow error recommends try_sum and try_avg.
_TRY: Final = (
    "an overflow is an error here, not null. Use a type with a wider range, "
    'F.sum(F.col("n").cast("decimal(38,0)")) or F.avg(F.col("n").cast("double"))'
)
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
        arguments: its columns; none for ``count_all``.
        distinct: True if each value of a group counts once.
        options: further options (``AggregateSpec.options``).
        text: the call in SQL, for messages.
    """

    function: str
    arguments: tuple[Column, ...]
    distinct: bool = False
    options: tuple[Any, ...] = ()
    text: str = ""

    def argument_names(self, index: int) -> tuple[str, ...]:
        """Return the names of its argument columns if it is the aggregate with this index."""
        return tuple(
            f"{hidden_columns.PREFIX}argument_{index}{f'_{place}' if place else ''}"
            for place in range(len(self.arguments))
        )


@dataclass(frozen=True, slots=True)
class AggregateCalls:
    """The aggregates of a grouping.

    Attributes:
        calls: the aggregates with state.
        results: final columns of the grouping, keys first.
        held: output columns of the stateful step: keys, then the results of the calls.
        computed: column of ``results`` -> expression over aggregates; every other column is one of ``held``.
        keys: Catalyst's grouping expressions.
    """

    calls: tuple[AggregateCall, ...]
    results: StructType
    held: StructType
    computed: Mapping[str, Computed] = field(default_factory=dict)
    keys: Sequence[Any] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The calls for messages: ``max(age) AS oldest``."""
        names = self.held.names[len(self.held) - len(self.calls) :]
        named_calls = zip(self.calls, names, strict=True)
        return tuple(call.text if call.text == name else f"{call.text} AS {name}" for call, name in named_calls)

    @property
    def words(self) -> dict[str, str]:
        """Column of ``results`` -> SQL of its expression, for columns that are not plain aggregates."""
        return {name: str(computed.expression.sql()) for name, computed in self.computed.items()}

    def finish(self, rows: DataFrame, hidden: Sequence[str]) -> DataFrame:
        """Compute the grouping's final columns from rows of the stateful step."""
        if not self.computed:
            return rows
        attributes = {str(one.name()): one for one in items(rows._jdf.queryExecution().analyzed().output())}
        keys = [(key, attributes[name]) for key, name in zip(self.keys, self.held.names, strict=False)]
        columns: list[Column] = []
        for name in self.results.names:
            if (computed := self.computed.get(name)) is None:
                columns += named([name])
                continue
            known = [*keys, *((call, attributes[held]) for call, held in computed.calls)]
            columns.append(_column(_replaced(computed.expression, known)).alias(name))
        return rows.select(*columns, *named(hidden))


@dataclass(frozen=True, slots=True)
class Computed:
    """An expression over aggregates.

    Attributes:
        expression: resolved by Catalyst.
        calls: each aggregate in it with the column of its result.
    """

    expression: Any
    calls: tuple[tuple[Any, str], ...]


def read_aggregates(grouped: DataFrame, keys: int, where: str) -> AggregateCalls:
    """Return the aggregates of a ``groupBy(...).agg(...)``.

    Args:
        grouped: its result, on a plan that never runs.
        keys: number of grouping columns.
        where: the user's line, for messages.

    Raises:
        TopologyException: an aggregate is not supported.
    """
    plan = grouped._jdf.queryExecution().analyzed()
    if kind(plan) != "Aggregate":
        raise _unsupported(where, f"{plan.nodeName()}")
    names = grouped.schema.names
    outputs = [one.child() if kind(one) == "Alias" else one for one in items(plan.aggregateExpressions())]
    calls: list[AggregateCall] = []
    held = StructType(grouped.schema.fields[:keys])
    known: list[tuple[Any, str]] = []
    computed: dict[str, Computed] = {}
    for expression, result in zip(outputs[keys:], grouped.schema.fields[keys:], strict=True):
        if kind(expression) == "AggregateExpression":
            calls.append(_call(expression, where))
            held = StructType([*held, result])
            known.append((expression, result.name))
    for expression, result in zip(outputs[keys:], grouped.schema.fields[keys:], strict=True):
        if kind(expression) == "AggregateExpression":
            continue
        inside = []
        for call in (node for node in nodes(expression) if kind(node) == "AggregateExpression"):
            name = next((name for other, name in known if other.equals(call) or other.semanticEquals(call)), None)
            if name is None:
                name = _unlike(str(call.sql()), {*names, *held.names})
                calls.append(_call(call, where))
                of = _parse_datatype_json_string(call.dataType().json())
                held = StructType([*held, StructField(name, of, bool(call.nullable()))])
                known.append((call, name))
            inside.append((call, name))
        computed[result.name] = Computed(expression, tuple(inside))
    by = items(plan.groupingExpressions())
    return AggregateCalls(tuple(calls), grouped.schema, held, computed, by)


def _unlike(text: str, taken: AbstractSet[str]) -> str:
    """Return ``text`` or a numbered variant that is not taken, ignoring case."""
    lower = {name.lower() for name in taken}
    names = itertools.chain([text], (f"{text} {number}" for number in itertools.count(2)))
    return next(name for name in names if name.lower() not in lower)


def _replaced(expression: Any, known: Sequence[tuple[Any, Any]]) -> Any:
    """Return an expression with the known subexpressions replaced by their columns."""
    for whole, attribute in known:
        if expression.equals(whole) or expression.semanticEquals(whole):
            return attribute
    children = items(expression.children())
    if not children:
        return expression
    replaced = [_replaced(child, known) for child in children]
    return expression.withNewChildren(java("org.apache.spark.api.python.PythonUtils").toSeq(replaced))


def _call(expression: Any, where: str) -> AggregateCall:
    return replace(_parsed_call(expression, where), text=str(expression.sql()))


def _parsed_call(expression: Any, where: str) -> AggregateCall:
    function = expression.aggregateFunction()
    found, text = kind(function), str(expression.sql())
    if str(function.prettyName()).startswith("try_"):
        raise _unsupported(where, text, _TRY)
    children = [_column(child) for child in items(function.children())]
    condition = _column(expression.filter().get()) if expression.filter().isDefined() else None
    distinct = bool(expression.isDistinct())
    if found in _ORDERED:
        nulls = not function.ignoreNulls()
        ours = _ORDERED[found] if nulls else f"{_ORDERED[found]}_not_null"
        if distinct:
            raise _unsupported(where, text)
        if nulls and condition is not None:
            return AggregateCall(ours, (children[0], condition))
        return AggregateCall(ours, (_where(condition, children[0]),))
    if found in _BY:
        if distinct:
            raise _unsupported(where, text)
        return AggregateCall(_BY[found], (children[0], _where(condition, children[1])))
    if found in COLLECTED:
        collected = COLLECTED[found](function, distinct)
        if isinstance(collected, str):
            raise _unsupported(where, text, collected)
        ours, arguments, distinct, options = collected
        first, *others = map(_column, arguments)
        return AggregateCall(ours, (_where(condition, first), *others), distinct, options)
    if found == "Count" and not distinct:
        return _count(function, children, condition)
    if found in {"CountIf", "RegrCount"}:
        counts = children[0] if found == "CountIf" else _all_there(children)
        # Neither false nor null counts.
        return AggregateCall("count", (_where(condition, F.when(counts, F.lit(True))),), distinct)
    if found in _OF_ONE_OF_PAIRS:
        ours, place = _OF_ONE_OF_PAIRS[found]
        argument = F.when(_all_there(children), children[place])
        return AggregateCall(ours, (_where(condition, argument),), distinct)
    ours = {"Count": "count", **_OF_ONE, **_OF_PAIRS}.get(found, "")
    if not ours:
        raise _unsupported(where, text)
    return AggregateCall(ours, (_where(condition, children[0]), *children[1:]), distinct and ours not in _ONCE)


def _count(function: Any, children: Sequence[Column], condition: Column | None) -> AggregateCall:
    literals = [child.value() for child in items(function.children()) if kind(child) == "Literal"]
    if None in literals:
        # Counts nothing. The type of a bare null cannot be stored.
        return AggregateCall("count", (F.lit(None).cast("boolean"),))
    if len(literals) == len(children):
        if condition is None:
            return AggregateCall("count_all", ())
        return AggregateCall("count", (F.when(condition, F.lit(True)),))
    argument = children[0] if len(children) == 1 else F.when(_all_there(children), F.lit(True))
    return AggregateCall("count", (_where(condition, argument),))


def _where(condition: Column | None, argument: Column) -> Column:
    return argument if condition is None else F.when(condition, argument)


def _all_there(columns: Sequence[Column]) -> Column:
    return functools.reduce(Column.__and__, (column.isNotNull() for column in columns))


def _column(expression: Any) -> Column:
    return Column(java("org.apache.spark.sql.classic.ExpressionUtils").column(expression))


def _unsupported(where: str, what: str, why: str = "") -> TopologyException:
    return TopologyException(f"{where}: {what} is not supported in agg(): {why or f'use one of {_KNOWN}'}")
