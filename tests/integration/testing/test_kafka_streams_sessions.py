"""Kafka Streams' own tests of session windows; docs/internals/pipeline-inventory.md has which is which.

A session of Kafka Streams ends with its last record, here a gap later; and there it is over when the newest time is
later than that by more than gap and grace, here when it is so by as much. So a grace is a delay of a millisecond more.
"""

import datetime as dt

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = [pytest.mark.integration, pytest.mark.long]

GAP = 300_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def millis(time):
    at = time if isinstance(time, dt.datetime) else dt.datetime.fromisoformat(time)
    return round((at - EPOCH) / dt.timedelta(milliseconds=1))


class Counts:
    """Records counted by key and session, by their own times, in milliseconds (KStreamSessionWindowAggregate)."""

    def __init__(self, spark, *, final=False, gap=GAP, grace=0, batch="record"):
        self._gap, self._names = gap, {}
        builder = StreamsBuilder()
        records = builder.stream("in", key=String("user"), value=String("v"))
        timed = records.select("user", F.col("kafka.timestamp").alias("at"))
        session = F.session_window("at", f"{gap} milliseconds").alias("session")
        counts = timed.withWatermark("at", f"{grace + 1} milliseconds").groupBy("user", session)
        table = counts.agg(F.count("*").alias("n"), name="counts")
        (table.outputMode("append") if final else table).to("out", value=Json())
        self.driver = TopologyTestDriver(builder.build(), spark=spark, batch=batch)
        self._in, self._out = self.driver.create_input_topic("in"), self.driver.create_output_topic("out")

    def pipe(self, *records):
        """Pipe (key, time) in; return what comes of it: (key, first time, last time, count, timestamp) each."""
        for key, at in records:
            self._in.pipe_input(key, "value", at)
        return self.taken()

    def taken(self):
        found = []
        for record in self._out.read_records():
            if record.value is None:
                found.append((*self._names.pop(record.key), None, record.timestamp))
            else:
                self._names[record.key] = self._whose(record.value, "session")
                found.append((*self._names[record.key], record.value["n"], record.timestamp))
        return found

    @property
    def stored(self):
        """What the store has: (key, first time, last time, count) each."""
        return sorted((*self._whose(row, "session"), row["n"]) for row in self.driver.store("counts"))

    def _whose(self, row, name):
        return row["user"], millis(row[name]["start"]), millis(row[name]["end"]) - self._gap


@pytest.fixture
def make_counts(spark):
    made = []

    def make(**options):
        made.append(Counts(spark, **options))
        return made[-1]

    yield make
    for counts in made:
        counts.driver.close()


both = pytest.mark.parametrize("final", [False, True])


@both
def test_records_within_the_gap_are_one_session(make_counts, final):
    """KStreamSessionWindowAggregateProcessorTest.shouldCreateSingleSessionWhenWithinGap"""
    counts = make_counts(final=final)
    counts.pipe(("john", 0), ("john", 500))
    assert counts.stored == [("john", 0, 500, 2)]


@both
def test_a_record_between_two_sessions_makes_them_one(make_counts, final):
    """shouldMergeSessions; there also one that is over goes on, as long as its store has it."""
    counts = make_counts(final=final, grace=GAP)
    counts.pipe(("mel", 0))
    assert counts.stored == [("mel", 0, 0, 1)]
    counts.pipe(("mel", GAP + 1))
    assert counts.stored == [("mel", 0, 0, 1), ("mel", GAP + 1, GAP + 1, 1)]
    counts.pipe(("mel", GAP // 2))
    assert counts.stored == [("mel", 0, GAP + 1, 3)]


def test_what_is_over_takes_no_record(make_counts):
    """Where shouldMergeSessions has three records in one session, which it has said before to be over."""
    counts = make_counts(final=True)
    assert counts.pipe(("mel", 0)) == []
    assert counts.pipe(("mel", GAP + 1)) == [("mel", 0, 0, 1, 0)]
    assert counts.pipe(("mel", GAP // 2)) == []
    assert counts.stored == [("mel", GAP // 2, GAP + 1, 2)]


@both
def test_records_of_one_time_are_one_session(make_counts, final):
    """shouldUpdateSessionIfTheSameTime"""
    counts = make_counts(final=final)
    counts.pipe(("mel", 0), ("mel", 0))
    assert counts.stored == [("mel", 0, 0, 2)]


@both
def test_records_further_apart_than_the_gap_are_several_sessions(make_counts, final):
    """shouldHaveMultipleSessionsForSameIdWhenTimestampApartBySessionGap; its cache is a micro-batch here."""
    counts = make_counts(final=final, batch="all")
    second, third = GAP + 1, 2 * GAP + 2
    expected = [("mel", 0, 0, 1, 0), ("mel", second, second, 2, second), ("mel", third, third, 3, third)]
    found = counts.pipe(("mel", 0), *[("mel", second)] * 2, *[("mel", third)] * 3)
    assert sorted(found) == (expected[:2] if final else expected)


@both
def test_merged_sessions_leave_the_store(make_counts, final):
    """shouldRemoveMergedSessionsFromStateStore"""
    counts = make_counts(final=final)
    counts.pipe(("a", 0))
    assert counts.stored == [("a", 0, 0, 1)]
    counts.pipe(("a", 100))
    assert counts.stored == [("a", 0, 100, 2)]


@both
def test_sessions_of_several_keys(make_counts, final):
    """shouldHandleMultipleSessionsAndMerging"""
    counts = make_counts(final=final, batch="all")
    half, second, third = GAP // 2, GAP + 1, GAP + 1 + GAP // 2
    at_once = [*((key, 0) for key in "abcd"), ("d", half)]
    found = counts.pipe(*at_once, ("a", second), ("b", second), ("a", third), ("c", third))
    over = [("a", 0, 0, 1, 0), ("b", 0, 0, 1, 0), ("c", 0, 0, 1, 0), ("d", 0, half, 2, half)]
    still = [("a", second, third, 2, third), ("b", second, second, 1, second), ("c", third, third, 1, third)]
    assert sorted(found) == (over if final else sorted([*over, *still]))


@both
def test_the_store_has_each_session(make_counts, final):
    """shouldGetAggregatedValuesFromValueGetter, while both are open"""
    counts = make_counts(final=final, grace=1)
    counts.pipe(("a", 0), ("a", GAP + 1), ("a", GAP + 1))
    assert counts.stored == [("a", 0, 0, 1), ("a", GAP + 1, GAP + 1, 2)]


def test_each_record_brings_its_session(make_counts):
    """shouldImmediatelyForwardNewSessionWhenNonCachedStore"""
    counts = make_counts()
    for key in "abc":
        assert counts.pipe((key, 0)) == [(key, 0, 0, 1, 0)]


def test_a_session_that_grows_is_deleted_first(make_counts):
    """shouldImmediatelyForwardRemovedSessionsWhenMerging"""
    counts = make_counts()
    assert counts.pipe(("a", 0)) == [("a", 0, 0, 1, 0)]
    assert counts.pipe(("a", 5)) == [("a", 0, 0, None, 0), ("a", 0, 5, 2, 5)]


@both
def test_records_without_a_key(make_counts, final):
    """shouldLogAndMeterWhenSkippingNullKeyWithBuiltInMetrics; no metric yet. They move no time either."""
    counts = make_counts(final=final)
    assert counts.pipe((None, 0), ("a", 0), (None, 10 * GAP)) == ([] if final else [("a", 0, 0, 1, 0)])
    assert counts.stored == [("a", 0, 0, 1)]


@pytest.mark.parametrize("grace", [0, 1])
def test_late_records(make_counts, grace):
    """shouldLogAndMeterWhenSkippingLateRecordWithZeroGrace, ...WithNonzeroGrace"""
    counts = make_counts(gap=10, grace=grace)
    assert counts.pipe(("dummy", 0), ("on time", 0)) == [("dummy", 0, 0, 1, 0), ("on time", 0, 0, 1, 0)]
    if grace:
        assert counts.pipe(("dummy", 11), ("on time too", 0)) == [("dummy", 11, 11, 1, 11), ("on time too", 0, 0, 1, 0)]
    counts.pipe(("dummy", 11 + grace))
    assert counts.pipe(("late", 0)) == []
    assert all(key != "late" for key, *_ in counts.stored)


@both
def test_counts_of_sessions(make_counts, final):
    """SessionWindowedKStreamImplTest.shouldCountSessionWindowedWithCaching..., shouldMaterializeCount"""
    counts = make_counts(gap=500, final=final)
    found = [counts.pipe(record) for record in (("1", 10), ("1", 15), ("1", 600), ("2", 600), ("2", 599))]
    assert found == (
        [[], [], [("1", 10, 15, 2, 15)], [], []]
        if final
        else [
            [("1", 10, 10, 1, 10)],
            [("1", 10, 10, None, 10), ("1", 10, 15, 2, 15)],
            [("1", 600, 600, 1, 600)],
            [("2", 600, 600, 1, 600)],
            [("2", 600, 600, None, 600), ("2", 599, 600, 2, 600)],
        ]
    )
    # What is over is removed here, whether only final rows go on or all.
    assert counts.stored == [("1", 600, 600, 1), ("2", 599, 600, 2)]


@both
def test_final_results_of_sessions(make_counts, final):
    """SuppressScenarioTest.shouldSupportFinalResultsForSessionWindows

    There a session is deleted in between also where it stays what it is, but for its count.
    """
    counts = make_counts(gap=5, final=final)
    records = (("k1", 0), ("k1", 5), ("k1", 1), ("k2", 11), ("k1", 5), ("k1", 30))
    found = [row for record in records for row in counts.pipe(record)]
    assert found == (
        [("k1", 0, 5, 3, 5), ("k2", 11, 11, 1, 11)]
        if final
        else [
            *(("k1", 0, 0, 1, 0), ("k1", 0, 0, None, 0), ("k1", 0, 5, 2, 5), ("k1", 0, 5, 3, 5)),
            *(("k2", 11, 11, 1, 11), ("k1", 30, 30, 1, 30)),
        ]
    )
