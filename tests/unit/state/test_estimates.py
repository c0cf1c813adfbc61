"""The number of distinct values, about: within its error, whatever the way to it, and of damaged bytes not at all."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.records.hll_registers import registers_of
from sparkrelay.state.aggregate import AggregateCodec, AggregateSpec


def codec_of(bits, kind=None):
    kind = pa.int64() if kind is None else kind
    return AggregateCodec([AggregateSpec("approx_count_distinct", "x", kind, pa.int64(), options=(bits,))])


def states(codec, values, kind=None, groups=None):
    kind = pa.int64() if kind is None else kind
    column = pa.array(values, kind)
    rows = pa.table({"k": np.zeros(len(column), np.int64) if groups is None else groups, "x": column})
    return codec.states(codec.partial(rows, ["k"]))


def estimate(codec, state):
    return codec.results(state)[0].to_pylist()


@pytest.mark.parametrize("bits", [4, 9, 12, 14])
@pytest.mark.parametrize("count", [0, 1, 10, 300, 20_000, 500_000])
def test_the_error_is_what_was_asked_for(bits, count):
    codec, deviation = codec_of(bits), 1.106 / 2 ** (bits / 2)
    # Values in four ways that have something in common, so that a hash that shows it would be found out.
    for values in (np.arange(count), np.arange(count) << 32, -np.arange(count) * 1000, np.arange(count) * 7919 + 1):
        (found,) = estimate(codec, states(codec, values)) if count else (0,)
        assert abs(found - count) <= max(4 * deviation * count, 1), (bits, count)


def test_the_mean_of_errors_is_the_standard_deviation_and_there_is_no_bias():
    codec, count, tries = codec_of(9), 5000, 300
    generator = np.random.default_rng(5)
    values = generator.integers(0, 1 << 62, count * tries)
    found = np.array(estimate(codec, states(codec, values, groups=np.repeat(np.arange(tries), count))))
    errors = found / count - 1
    assert 0.03 < errors.std() < 0.055
    assert abs(errors.mean()) < 4 * 0.05 / tries**0.5


@settings(deadline=None, max_examples=40)
@given(st.lists(st.none() | st.text(max_size=3), max_size=40), st.integers(0, 40))
def test_states_put_together_are_the_state_of_all_rows(values, cut):
    codec = codec_of(6, pa.string())
    whole = states(codec, [*values, None], pa.string())
    parts = [states(codec, [*some, None], pa.string()) for some in (values[:cut], values[cut:])]
    assert codec.combine(*parts) == whole == codec.combine(*reversed(parts)) == codec.combine(whole, parts[0])
    nothing = pa.nulls(1, pa.binary())
    assert codec.combine(nothing, whole) == whole == codec.combine(whole, nothing)
    distinct = len(set(values) - {None})
    assert abs(estimate(codec, whole)[0] - distinct) <= max(1, distinct / 2)


def test_equal_values_of_any_type_count_once():
    nan = float("nan")
    assert estimate(
        codec_of(9, pa.float64()), states(codec_of(9, pa.float64()), [0.0, -0.0, nan, -nan], pa.float64())
    ) == [2]
    assert estimate(codec_of(9), pa.nulls(1, pa.binary())) == [0]


def test_hashes_stay_what_they_are_since_they_are_kept():
    registers, ranks = registers_of(pa.array([b"", b"a", b"SparkRelay", bytes(100)]), 9)
    assert (registers.tolist(), ranks.tolist()) == ([479, 261, 165, 290], [1, 2, 4, 1])


def test_damaged_sketches_are_an_error():
    codec = codec_of(4)
    (state,) = states(codec, [1, 2, 3])
    good = state.as_py()
    for bad in (good[:-1] + b"\xff", good[:-1] + bytes([62])):
        with pytest.raises(StoreCorruptedException, match="16 registers of up to 61"):
            codec.results(pa.array([bad]))
    # Another number of registers, whose length is right.
    (other,) = states(codec_of(5), [1, 2, 3])
    with pytest.raises(StoreCorruptedException, match="16 registers"):
        codec.results(pa.array([other.as_py()]))
