"""Running aggregates: partial results of a batch, merged with what the store holds. Vectorised, in Arrow and numpy.

The results are Spark's: all aggregates but count_all skip nulls, and without values all but the counts are null; whole
numbers add up to bigint; exceeding its range, or a decimal's precision, is an error as under ANSI; avg of numbers is a
double; NaN is greater than any number. First and last go by the order of arrival.
"""

from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.aggregate.codec import AggregateCodec
from sparkrelay.state.aggregate.functions import wide_aggregate_of
from sparkrelay.state.aggregate.spec import AggregateSpec

__all__ = ["Aggregate", "AggregateCodec", "AggregateSpec", "wide_aggregate_of"]
