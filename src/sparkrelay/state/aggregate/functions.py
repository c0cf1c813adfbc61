"""The implementation of each aggregate function."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.errors import TopologyException
from sparkrelay.records.arrow_buffers import is_variable
from sparkrelay.state.aggregate.collected import COLLECTED, OfDistinct
from sparkrelay.state.aggregate.decimals import DecimalAverage, DecimalSum, TryAverage, TrySum, WideSum
from sparkrelay.state.aggregate.estimates import DistinctEstimate
from sparkrelay.state.aggregate.extremes import Extreme
from sparkrelay.state.aggregate.folded import FOLDED, Folded
from sparkrelay.state.aggregate.moments import COMOMENTS, MOMENTS, CoMoments, Moments
from sparkrelay.state.aggregate.picked import FirstOrLast, ValueBy
from sparkrelay.state.aggregate.sums import Average, Count, Sum
from sparkrelay.state.layout import physical_dtype

if TYPE_CHECKING:
    from sparkrelay.state.aggregate.base import Aggregate
    from sparkrelay.state.aggregate.spec import AggregateSpec


def aggregate_of(spec: AggregateSpec) -> Aggregate:
    """Return the implementation of an aggregate.

    Raises:
        TopologyException: it cannot be kept in a store; the message names it and the remedy.
    """
    kind, function = spec.input_type, spec.function
    if spec.collects:
        if function in COLLECTED:
            return COLLECTED[function](spec)
        return OfDistinct(spec, aggregate_of(replace(spec, distinct=False)))
    if function in {"count", "count_all"}:
        return Count(spec)
    if function in {"sum", "avg"}:
        if pa.types.is_decimal(kind):
            return DecimalSum(spec) if function == "sum" else DecimalAverage(spec)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise TopologyException(f"{spec}: {kind} does not add up; cast {spec.column} to a number")
        return Sum(spec) if function == "sum" else Average(spec)
    if function == "try_sum":
        return TrySum(spec)
    if function == "try_avg":
        return TryAverage(spec)
    if function in {"min", "max"}:
        _check_kept(spec, kind)
        return Extreme(spec)
    if function in {"first", "first_not_null", "last", "last_not_null"}:
        return FirstOrLast(spec)
    if function in {"max_by", "min_by"}:
        _check_kept(spec, spec.others[0][1])
        return ValueBy(spec)
    if function == "approx_count_distinct":
        return DistinctEstimate(spec)
    if function in MOMENTS:
        return Moments(spec)
    if function in COMOMENTS:
        return CoMoments(spec)
    if function in FOLDED:
        if function != "product" and not pa.types.is_integer(kind):
            raise TopologyException(f"{spec}: {kind} is not an integer type; cast {spec.column} to one")
        return Folded(spec)
    raise TopologyException(f"{spec} cannot be kept in a store; use count, sum, avg, min or max")


def wide_aggregate_of(spec: AggregateSpec) -> Aggregate:
    """Return the implementation of an intermediate aggregate, from which rows are still to be subtracted.

    Its state has the same columns; exact totals are wide enough for any intermediate value.
    """
    kind, function = spec.input_type, spec.function
    # The total of an average of whole numbers is a double.
    exact = {"sum", "avg"} if pa.types.is_decimal(kind) else {"sum"} if pa.types.is_integer(kind) else set()
    return WideSum(spec) if function in exact and not spec.collects else aggregate_of(spec)


def _check_kept(spec: AggregateSpec, kind: pa.DataType) -> None:
    if physical_dtype(kind) is None and not is_variable(kind):
        raise TopologyException(f"{spec}: values of {kind} cannot be kept in a store; aggregate their fields")
