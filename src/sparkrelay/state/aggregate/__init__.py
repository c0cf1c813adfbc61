"""Running aggregates: partial results of a batch, merged with what the store holds. Vectorised, in Arrow and numpy.

The results are Spark's: count skips nulls and count_all does not; the others skip nulls too and are null where nothing
is left; whole numbers add up to bigint, and past its range is an error (as under ANSI), as it is past the precision of
a decimal; avg of numbers is a double; NaN is greater than any number. First and last go by the order of arrival.
"""

from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.aggregate.codec import AggregateCodec
from sparkrelay.state.aggregate.functions import wide_aggregate_of
from sparkrelay.state.aggregate.spec import AggregateSpec

__all__ = ["Aggregate", "AggregateCodec", "AggregateSpec", "wide_aggregate_of"]
