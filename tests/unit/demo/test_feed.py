import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from sparkrelay.demo.feed import Feeder, Pace, split
from sparkrelay.demo.flights import FLIGHTS

PAUSES = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60)


@given(PAUSES, st.floats(0.1, 0.9))
def test_the_limit_is_never_reached_before_it_is_lifted(pauses, limit):
    pace, now, before = Pace(30.0, limit=limit, now=100.0), 100.0, 0
    for pause in pauses:
        now += pause
        due = pace.due(now)
        assert before <= due <= limit
        before = due


@given(PAUSES, st.floats(0.1, 0.9))
def test_lifted_it_gets_to_the_end_in_time(pauses, limit):
    pace, now = Pace(30.0, limit=limit, now=0.0), 0.0
    assert pace.due(now) == 0
    for pause in pauses:
        now += pause
        pace.due(now)
    pace.lift(1.0, now)
    end = now + max(30.0 - now, 10.0) * 2 + 60.0
    assert pace.due(end) == 1


def test_far_from_the_limit_it_keeps_the_rate():
    pace = Pace(30.0, limit=0.9, now=5.0)
    assert pace.due(5.0) == 0
    assert [pace.due(5.0 + second) for second in (1, 2, 3)] == pytest.approx([1 / 30, 2 / 30, 3 / 30])


def test_near_the_limit_it_goes_on_slowly():
    pace, steps, before = Pace(30.0, limit=0.5, now=0.0), [], 0
    for tick in range(600):
        due = pace.due(tick / 10)
        steps.append(due - before)
        before = due
    assert steps[1] == pytest.approx(0.1 / 30)
    # After a minute in which the story waited, there is still something to produce every second.
    assert sum(steps[-10:]) * 30_000 >= 1


def test_lifting_twice_changes_nothing():
    one, two = (Pace(30.0, limit=0.5, now=0.0) for _ in range(2))
    for pace in (one, two):
        pace.due(0.0)
        pace.lift(1.0, 10.0)
    two.lift(1.0, 15.0)
    two.lift(0.7, 16.0)
    assert one.due(20.0) == two.due(20.0)


def test_no_flight_is_left_out_or_sent_twice():
    records = [(key, b"%d" % number, number) for number, key in enumerate([b"UA", b"AA", b"9E", b"WN", b"B6"] * 20)]
    batch = pa.record_batch([*map(pa.array, zip(*records, strict=True))], ["key", "value", "timestamp"])
    taken = []
    for start, end in ((0, 1), (1, 1), (1, 60), (60, 100)):
        for some in split(batch, start, end):
            rows = [tuple(row.values()) for row in some.to_pylist()]
            assert rows == sorted(rows, key=lambda row: row[2])
            assert all(start <= row[2] < end for row in rows)
            taken += rows
    assert sorted(taken, key=lambda row: row[2]) == records
    partitions = [set(some.column("key").to_pylist()) for some in split(batch, 0, 100)]
    assert sum(len(keys) for keys in partitions) == 5, "a carrier has one partition"


def test_flights_that_never_left_are_not_counted():
    feeder = Feeder("127.0.0.1:1", "flights")
    feeder.feed()  # before begin: nothing
    assert (feeder.records, feeder.counted, feeder.produced) == (FLIGHTS, FLIGHTS - 8_255, 0)
    feeder.close()
