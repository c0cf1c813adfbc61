"""When a DataFrame is collected again, and how long its old rows will do."""

import itertools

from hypothesis import given, strategies as st

from sparkrelay.runtime.spark.refresh_schedule import RefreshSchedule


def test_rows_are_collected_again_once_they_are_old():
    schedule = RefreshSchedule(600, now=1000)
    assert not schedule.due(1599)
    assert schedule.due(1600)
    schedule.collected(1700)
    assert not schedule.due(2299)
    assert schedule.due(2300)
    assert schedule.age(2300) == 600


def test_a_source_that_is_away_for_a_moment_is_asked_again_with_growing_pauses():
    schedule = RefreshSchedule(600, now=0)
    tries = []
    now = 600
    while len(tries) < 9:
        if schedule.due(now):
            tries.append(now)
            assert not schedule.failed(now)
        now += 1
    assert [b - a for a, b in itertools.pairwise(tries)] == [1, 2, 4, 8, 16, 32, 60, 60]
    schedule.collected(now)
    assert not schedule.due(now + 599)
    assert schedule.age(now + 1) == 1
    assert not schedule.failed(now + 600), "it begins anew"


def test_old_rows_do_no_more_once_it_has_failed_for_as_long_as_they_may_be_old():
    schedule = RefreshSchedule(600, now=0)
    # Nobody had anything to join for an hour.
    assert schedule.due(3600)
    assert not schedule.failed(3600)
    assert not schedule.failed(4199)
    assert not schedule.due(4199.5)
    assert schedule.due(4200), "however short the pause was so far"
    assert schedule.failed(4200)
    assert schedule.due(4200), "no micro-batch goes on without"
    assert schedule.failed(4201)
    schedule.collected(4202)
    assert not schedule.due(4203)


@given(every=st.floats(0.001, 1e6), steps=st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=50))
def test_rows_are_never_used_longer_than_said(every, steps):
    """A micro-batch runs unless ``failed`` says so: then its rows are young, or have failed for less than ``every``."""
    now, schedule, collected_at, failing_since = 0.0, RefreshSchedule(every, 0.0), 0.0, None
    for pause, works in steps:
        now += pause
        over = False
        if schedule.due(now):
            if works:
                schedule.collected(now)
                collected_at, failing_since = now, None
            else:
                failing_since = now if failing_since is None else failing_since
                over = schedule.failed(now)
        young = now < collected_at + every
        assert over == (failing_since is not None and now - failing_since >= every)
        assert over or young or failing_since is not None
