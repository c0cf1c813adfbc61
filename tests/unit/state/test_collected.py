"""What is made of the values of groups, beside plain Python."""

import collections
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import TopologyException
from sparkrelay.records.keys import key_bytes
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec
from sparkrelay.state.aggregate.collected import Values

NAN = float("nan")
NUMBERS = st.sampled_from([0.0, 1.0, -2.5, 7.0, NAN, math.inf, -math.inf]) | st.floats(-1e9, 1e9)
GROUPS = st.lists(st.lists(NUMBERS, max_size=9), min_size=1, max_size=5)
TEXTS = st.lists(st.lists(st.text(max_size=2), max_size=6), min_size=1, max_size=5)


def greatness(number):
    return (1, 0.0) if math.isnan(number) else (0, number)


def values_of(groups, kind):
    """Return groups of values as they are counted."""
    rows = [(place, value) for place, group in enumerate(groups) for value in group]
    packed = key_bytes([pa.array([value for _, value in rows], kind)]).cast(pa.binary())
    counts = collections.Counter(zip([place for place, _ in rows], packed.to_pylist(), strict=True))
    pairs = sorted(counts, key=lambda pair: hash(pair[1]))  # in whatever order
    return Values(
        len(groups),
        np.array([place for place, _ in pairs], dtype=np.int64),
        pa.array([value for _, value in pairs], pa.binary()),
        np.array([counts[pair] for pair in pairs], dtype=np.int64),
    )


def of(function, values, kind, result, *options, distinct=False):
    spec = AggregateSpec(function, "x", kind, result, options=options, distinct=distinct)
    return AggregateCodec([spec]).aggregates[0].of(values).cast(result).to_pylist()


def equal(one, other):
    return one == other or (one is not None and other is not None and math.isnan(one) and math.isnan(other))


@settings(deadline=None)
@given(GROUPS, st.floats(0, 1), st.booleans(), st.booleans())
def test_percentiles_lie_between_the_values_in_order(groups, percentage, descending, distinct):
    def wanted(group):
        group = {repr(value + 0.0): value for value in group}.values() if distinct else group
        ordered = sorted(group, key=greatness, reverse=descending)
        if not ordered:
            return None, None
        position = (len(ordered) - 1) * percentage
        low, high = ordered[math.floor(position)], ordered[math.ceil(position)]
        between = low if equal(low, high) else low + (position - math.floor(position)) * (high - low)
        return between, ordered[max(math.ceil(len(ordered) * percentage), 1) - 1]

    kind = pa.float64()
    values = values_of(groups, kind)
    options = ((percentage,), False, descending)
    found = of("percentile", values, kind, kind, *options, distinct=distinct)
    rank = of("approx_percentile", values, kind, kind, *options, distinct=distinct)
    lists = of("percentile_disc", values, kind, pa.list_(kind), (percentage, 0.0), True, descending, distinct=distinct)
    for group, *ours, both in zip(groups, found, rank, lists, strict=True):
        assert all(map(equal, ours, wanted(group)))
        assert both is None if not group else equal(both[0], wanted(group)[1])


@settings(deadline=None)
@given(GROUPS)
def test_the_mode_is_the_smallest_or_the_largest_of_the_most_frequent(groups):
    kind = pa.float64()
    found = [of("mode", values_of(groups, kind), kind, kind, which) for which in ("smallest", "largest")]
    for group, *ours in zip(groups, *found, strict=True):
        counts = collections.Counter(repr(value + 0.0) for value in group)
        best = [value for value in group if counts[repr(value + 0.0)] == max(counts.values())]
        wanted = [pick(best, key=greatness, default=None) for pick in (min, max)]
        assert all(map(equal, ours, wanted))


@settings(deadline=None)
@given(TEXTS, st.booleans(), st.booleans())
def test_texts_are_put_together_in_their_order(groups, descending, distinct):
    kind = pa.string()
    values = values_of(groups, kind)
    found = of("sorted_listagg", values, kind, kind, "-", descending, distinct=distinct)
    sets = of("collect_set", values, kind, pa.list_(kind))
    for group, text, own in zip(groups, found, sets, strict=True):
        in_order = sorted(set(group) if distinct else group, key=str.encode, reverse=descending)
        assert text == ("-".join(in_order) if group else None)
        assert own == sorted(set(group), key=str.encode)


def test_a_list_does_not_subtract_and_what_is_counted_does():
    for function, subtracts in (("collect_list", False), ("collect_set", True), ("mode", True)):
        spec = AggregateSpec(function, "x", pa.int64(), pa.list_(pa.int64()), options=("smallest",))
        assert AggregateCodec([spec]).subtracts is subtracts
    codec = AggregateCodec([AggregateSpec("listagg", "x", pa.string(), pa.string(), options=("", False))])
    state = codec.states(codec.partial(pa.table({"k": [1], "x": ["a"]}), ["k"]))
    assert codec.counts(codec.combine(state, state), 0).tolist() == [2]
    with pytest.raises(TopologyException, match="listagg cannot subtract a row"):
        codec.subtract(state, state)
