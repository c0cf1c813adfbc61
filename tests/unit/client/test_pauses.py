"""Pauses after failures: they double up to a bound, and vary."""

import pytest

from sparkrelay.client.pauses import pause_after


def test_pauses_double_up_to_the_longest():
    assert [pause_after(n, 100, 1_000, jitter=0) for n in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    assert pause_after(10_000, 100, 1_000, jitter=0) == 1_000


@pytest.mark.parametrize("failures", [0, 3, 50])
def test_pauses_vary_by_a_fifth_both_ways(failures):
    middle = pause_after(failures, 100, 1_000, jitter=0)
    pauses = [pause_after(failures, 100, 1_000) for _ in range(1_000)]
    assert 0.8 * middle <= min(pauses) < 0.9 * middle
    assert 1.1 * middle < max(pauses) <= 1.2 * middle
