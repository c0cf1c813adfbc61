"""A task's ticks: calls of a stateful processor for all groups of a task."""

import datetime as dt

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
START = round(ZERO.timestamp() * 1000)
SCHEMA = "user string, n long, of long, at long"
SECOND = dt.timedelta(seconds=1)


class Quiet(StatefulProcessor):
    """Counts each user's rows, and says at each tick of whom there are how many; an empty page forgets a user."""

    def init(self, handle):
        self.count = handle.getValueState("count", "n long")

    def handleInputRows(self, key, rows, times):
        for row in rows:
            if row.page == "":
                self.count.clear()
            else:
                (n,) = self.count.get() or (0,)
                self.count.update((n + 1,))
        return iter(())

    def handleTick(self, keys, times):
        known = [(key, *self.count.get()) for key in keys if self.count.exists()]
        for user, n in known:
            yield Row(user=user[0], n=n, of=len(known), at=times.getCurrentProcessingTimeInMs() - START)

    def close(self):
        pass


class ByEventTime(Quiet):
    def handleTick(self, keys, times):
        for key in keys:
            (n,) = self.count.get()
            self.count.update((n * 10,))
            yield Row(user=key[0], n=n, of=0, at=times.getCurrentWatermarkInMs() - START)


class TooEarly(Quiet):
    def handleTick(self, keys, times):
        yield Row(user="x", n=0, of=0, at=0)


def driven(spark, processor, mode, tick, delay=None, **options):
    builder = StreamsBuilder(spark)
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string, at timestamp"))
    clicks = clicks if delay is None else clicks.withWatermark("at", delay)
    made = clicks.groupBy("user").transformWithState(processor, SCHEMA, "Append", mode, tick=tick, name="counts")
    made.to("out", value=Json())
    return TopologyTestDriver(builder.build(), spark=spark, **options)


def click(driver, user, page="p", seconds=0):
    at = (ZERO + seconds * SECOND).isoformat()
    driver.create_input_topic("clicks").pipe_input(user, {"page": page, "at": at})


def rows_of(driver):
    return [tuple(row.values()) for row in driver.create_output_topic("out").read_rows()]


@pytest.mark.long
def test_a_tick_sees_all_keys_of_the_task(spark):
    long = "x" * 500
    with driven(spark, Quiet(), "ProcessingTime", "10 seconds", wall_clock_time=START + 3000) as driver:
        for user in ("ada", "bob", "ada", long):
            click(driver, user)
        assert rows_of(driver) == []
        driver.advance_wall_clock_time(6 * SECOND)
        assert rows_of(driver) == []
        driver.advance_wall_clock_time(SECOND)
        assert rows_of(driver) == [("ada", 2, 3, 10_000), ("bob", 1, 3, 10_000), (long, 1, 3, 10_000)]
        # Several that were missed are one.
        driver.advance_wall_clock_time(35 * SECOND)
        assert rows_of(driver)[3:] == [("ada", 2, 3, 45_000), ("bob", 1, 3, 45_000), (long, 1, 3, 45_000)]
        click(driver, "bob", "")
        driver.restart(from_changelog=True)
        driver.advance_wall_clock_time(5 * SECOND)
        assert rows_of(driver)[6:] == [("ada", 2, 2, 50_000), (long, 1, 2, 50_000)]
        click(driver, "bob")
        driver.advance_wall_clock_time(10 * SECOND)
        assert [row[:3] for row in rows_of(driver)[8:]] == [("ada", 2, 3), ("bob", 1, 3), (long, 1, 3)]


def test_records_have_the_key_and_the_time_of_the_tick(spark):
    with driven(spark, Quiet(), "ProcessingTime", "10 seconds", wall_clock_time=START + 3000) as driver:
        click(driver, "ada")
        driver.advance_wall_clock_time(12 * SECOND)
        (record,) = driver.create_output_topic("out", key=String()).read_records()
        assert (record.key, record.timestamp) == ("ada", START + 10_000)


def test_ticks_go_by_the_watermark_and_may_change_state(spark):
    with driven(spark, ByEventTime(), "EventTime", "10 seconds", "2 seconds") as driver:
        for seconds in (3, 5, 11):
            click(driver, "ada", seconds=seconds)
        assert rows_of(driver) == []
        click(driver, "bob", seconds=13)
        assert rows_of(driver) == [("ada", 3, 0, 11_000), ("bob", 1, 0, 11_000)]
        click(driver, "ada", seconds=29)
        assert rows_of(driver)[2:] == [("ada", 31, 0, 27_000), ("bob", 10, 0, 27_000)]


def test_a_row_belongs_to_a_key(spark):
    with driven(spark, TooEarly(), "ProcessingTime", "1 second", wall_clock_time=START) as driver:
        click(driver, "ada")
        with pytest.raises(JobFailed, match="belong to a group"):
            driver.advance_wall_clock_time(2 * SECOND)


@pytest.mark.parametrize(
    ("mode", "tick", "words"),
    [
        ("None", "1 second", 'needs timeMode="ProcessingTime" or "EventTime"'),
        ("ProcessingTime", 5, 'takes tick="1 minute", an interval as text, not 5'),
        ("ProcessingTime", "soon", "soon"),
        ("ProcessingTime", "0 seconds", "at least a millisecond"),
    ],
)
def test_ticks_that_are_refused(spark, mode, tick, words):
    with pytest.raises(TopologyException, match=f"test_ticks.py:.*{words}"):
        driven(spark, Quiet(), mode, tick)


def test_a_processor_without_the_method_is_refused(spark):
    class Without(Quiet):
        handleTick = None  # noqa: N815 - PySpark's way of writing

    with pytest.raises(TopologyException, match=r"calls handleTick\(keys, timerValues\), and Without has none"):
        driven(spark, Without(), "ProcessingTime", "1 second")
