"""Pauses after failures: they double up to a bound, and vary."""

import pytest

from sparkrelay.client.backoff import Backoff


def test_pauses_double_up_to_the_longest_until_a_success():
    backoff = Backoff(100, 1_000, jitter=0)
    assert [backoff.next() for _ in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    backoff.reset()
    assert backoff.next() == 100
    assert Backoff(100, 1_000, jitter=0, failures=2).next() == 400
    assert Backoff(100, 1_000, jitter=0, failures=10_000).next() == 1_000


def test_other_bounds_share_the_count_of_failures():
    backoff = Backoff(100, 1_000, jitter=0)
    assert [backoff.next(first=5), backoff.next(), backoff.next(first=5, longest=12)] == [5, 200, 12]


@pytest.mark.parametrize("failures", [0, 3, 50])
def test_pauses_vary_by_a_fifth_both_ways(failures):
    middle = Backoff(100, 1_000, jitter=0, failures=failures).next()
    pauses = [Backoff(100, 1_000, failures=failures).next() for _ in range(1_000)]
    assert 0.8 * middle <= min(pauses) < 0.9 * middle
    assert 1.1 * middle < max(pauses) <= 1.2 * middle
