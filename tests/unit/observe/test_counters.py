"""What an instance counts."""

import threading

import pytest

from sparkrelay.observe.counters import Counters, Durations


def test_a_duration_counts_in_its_bucket_and_all_above():
    durations = Durations(bounds_s=(0.1, 1.0, 10.0), counts=(0, 0, 0))
    for seconds in (0.1, 0.5, 2.0, 99.0):
        durations = durations.with_one(seconds)
    assert durations.counts == (1, 2, 3)
    assert durations.count == 4
    assert durations.total_s == pytest.approx(101.6)


def test_totals_are_a_copy():
    counters = Counters()
    before = counters.totals()
    counters.batch(at=1.0, seconds=0.1, commit_seconds=0.01, records={"a": 2}, rows_written=1, reopened=0, failed=False)
    assert (before.batches.count, dict(before.records), before.last_batch_at) == (0, {}, None)
    after = counters.totals()
    assert (after.batches.count, after.commits.count, dict(after.records), after.rows_written) == (1, 1, {"a": 2}, 1)
    with pytest.raises(TypeError):
        after.records["a"] = 3


def test_late_rows_are_added_up_by_store():
    counters = Counters()
    for late in ({"windows": 2, "joined": 0}, {"windows": 1}, {}):
        counters.batch(
            at=1.0, seconds=0.1, commit_seconds=0.01, records={}, rows_written=0, reopened=0, failed=False, late=late
        )
    assert dict(counters.totals().late) == {"windows": 3, "joined": 0}


def test_many_threads_lose_nothing():
    counters = Counters()

    def count():
        for _ in range(2000):
            counters.restored(1)
            counters.rebalance(0.1)
            counters.error("broker")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    totals = counters.totals()
    assert (totals.restored, totals.rebalances.count, totals.errors["broker"]) == (8000, 8000, 8000)
