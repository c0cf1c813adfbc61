"""When a copy is caught up: one by one, and for a whole group at once."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from sparkrelay.assignment.lags import are_caught_up, is_caught_up, shortest_lag_to_catch_up
from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX, UNKNOWN_OFFSET_SUM

LAGS = st.sampled_from([LATEST_OFFSET, UNKNOWN_OFFSET_SUM, 0, 1, 10_000, LONG_MAX]) | st.integers(0, LONG_MAX)


@pytest.mark.parametrize(
    ("lag", "acceptable", "caught_up"),
    [
        (LATEST_OFFSET, 0, True),
        (0, 0, True),
        (1, 0, False),
        (10_000, 10_000, True),
        (10_001, 10_000, False),
        (UNKNOWN_OFFSET_SUM, 10_000, False),
        (UNKNOWN_OFFSET_SUM, LONG_MAX, True),
        (LONG_MAX, LONG_MAX, True),
        (LONG_MAX, LONG_MAX - 1, False),
    ],
)
def test_caught_up_is_within_the_acceptable_lag(lag, acceptable, caught_up):
    assert is_caught_up(lag, acceptable) is caught_up


@given(st.lists(LAGS, max_size=8), LAGS.filter(lambda lag: lag >= 0))
def test_a_whole_group_is_judged_as_each_copy_is(lags, acceptable):
    together = are_caught_up(np.array(lags, np.int64), acceptable)
    assert together.tolist() == [is_caught_up(lag, acceptable) for lag in lags]


@given(st.integers(0, LONG_MAX))
def test_the_shortest_lag_to_catch_up_is_next_to_an_acceptable_one(acceptable):
    lag = shortest_lag_to_catch_up(acceptable)
    assert is_caught_up(lag, acceptable) is (acceptable == LONG_MAX)
    assert acceptable == LONG_MAX or is_caught_up(lag - 1, acceptable)
