"""Stateful processors on the test driver."""

import datetime as dt
import random

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import Row, functions as F
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.state import TaskStore
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

CLICK = Json("page string, n long, at timestamp")
ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Counting(StatefulProcessor):
    def init(self, handle):
        self.count = handle.getValueState("count", "count long, pages array<string>")

    def handleInputRows(self, key, rows, times):
        count, pages = self.count.get() or (0, [])
        for row in rows:
            count += row.n
            pages.append(row.page)
        self.count.update((count, pages))
        yield Row(user=key[0], count=count, pages=len(pages))

    def close(self):
        pass


def click(driver, user, seconds, n=0, page="p"):
    value = {"page": page, "n": n, "at": (ZERO + dt.timedelta(seconds=seconds)).isoformat()}
    driver.create_input_topic("clicks").pipe_input(user, value, int(seconds * 1000))


def clicks_of(builder, delay=None):
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    return clicks if delay is None else clicks.withWatermark("at", delay)


def driven(spark, processor, output, mode="None", delay=None, name="counts", **options):
    builder = StreamsBuilder()
    grouped = clicks_of(builder, delay).groupBy("user")
    grouped.transformWithState(processor, output, "Update", mode, name=name).to("out", value=Json())
    return TopologyTestDriver(builder.build(), spark=spark, **options)


def rows_of(driver):
    return driver.create_output_topic("out").read_rows()


def test_a_value_is_kept_for_each_key(spark):
    with driven(spark, Counting(), "user string, count long, pages int") as driver:
        out = driver.create_output_topic("out", key=String())
        for n, user in enumerate(["ada", "bob", "ada", None, "bob"], 1):
            click(driver, user, n, n)
        assert [(record.key, record.value, record.timestamp) for record in out.read_records()] == [
            ("ada", {"user": "ada", "count": 1, "pages": 1}, 1000),
            ("bob", {"user": "bob", "count": 2, "pages": 1}, 2000),
            ("ada", {"user": "ada", "count": 4, "pages": 2}, 3000),
            ("bob", {"user": "bob", "count": 7, "pages": 2}, 5000),
        ]
        driver.restart(from_changelog=True)
        driver.batch = "all"
        for user in ["ada", "ada", "cid"]:
            click(driver, user, 0, 10)
        assert rows_of(driver)[4:] == [
            {"user": "ada", "count": 24, "pages": 4},
            {"user": "cid", "count": 10, "pages": 1},
        ]


class Everything(StatefulProcessor):
    """Keeps a value, a list and a map, and sets timers as its rows say."""

    def init(self, handle):
        self.handle = handle
        self.sum = handle.getValueState("sum", "total long")
        self.pages = handle.getListState("pages", "page string, n long")
        self.counts = handle.getMapState("counts", "page string", "n long, last string")

    def handleInputRows(self, key, rows, times):
        for row in rows:
            before = self.sum.get() if self.sum.exists() else (0,)
            self.sum.update((before[0] + row.n,))
            kind = row.n % 11
            if kind == 0:
                self.pages.clear()
            elif kind == 1:
                self.pages.put([(row.page, row.n), ("again", 0)])
            elif kind == 2:
                self.pages.appendList([(row.page, -1), (row.page, -2)])
            elif kind == 3:
                self.counts.removeKey((row.page,))
            elif kind == 4:
                self.counts.clear()
            elif kind == 5:
                self.sum.clear()
            else:
                self.pages.appendValue((row.page, row.n))
            if kind > 4:
                found = self.counts.getValue((row.page,)) if self.counts.containsKey((row.page,)) else (0, "")
                self.counts.updateValue((row.page,), (found[0] + 1, found[1] + row.page))
            if times.getCurrentProcessingTimeInMs() >= 0:
                self.timers(row, times)
        yield self.said(key, "rows")

    def timers(self, row, times):
        watermark = times.getCurrentWatermarkInMs()
        now = times.getCurrentProcessingTimeInMs() if watermark < 0 else watermark
        if row.n % 3 == 0:
            self.handle.registerTimer(now + 1000 * (1 + row.n % 7))
        elif row.n % 5 == 0:
            for due in list(self.handle.listTimers())[:1]:
                self.handle.deleteTimer(due)

    def handleExpiredTimer(self, key, times, info):
        due = info.getExpiryTimeInMs()
        self.pages.appendValue(("timer", due % 1000))
        if due % 2:
            self.handle.registerTimer(max(due, times.getCurrentWatermarkInMs()) + 3000)
        yield self.said(key, f"timer {due}")

    def said(self, key, why):
        counts = sorted((*page, *value) for page, value in self.counts.iterator())
        pages, values = self.counts.keys(), self.counts.values()
        assert [(key, *more) for key, *more in counts] == sorted((*a, *b) for a, b in zip(pages, values, strict=True))
        timers = list(self.handle.listTimers()) if self.timed else []
        text = f"{why}: {self.sum.get()} {list(self.pages.get())} {counts} {timers} {self.pages.exists()}"
        return Row(user=key[0], text=text)

    def __init__(self, *, timed=False):
        self.timed = timed

    def close(self):
        pass


def texts(driver, since=0):
    return [(row["user"], row["text"]) for row in rows_of(driver)[since:]]


def test_a_processor_does_what_it_does_in_pyspark_s_tester(spark):
    rng = random.Random(11)
    tester = TwsTester(Everything())
    with driven(spark, Everything(), "user string, text string", partitions=2, batch="all") as driver:
        seen = 0
        for cut in range(6):
            rows = [(rng.choice("abc"), rng.choice("pqr"), rng.randint(0, 60)) for _ in range(rng.randint(1, 25))]
            for user, page, n in rows:
                click(driver, user, 0, n, page)
            batch = []
            for user in dict.fromkeys(row[0] for row in rows):
                own = [Row(user=user, page=page, n=n) for who, page, n in rows if who == user]
                batch += [tuple(row) for row in tester.test(user, own)]
            found = texts(driver, seen)
            seen += len(found)
            assert sorted(found) == sorted(batch)
            if cut in {1, 3}:
                driver.restart(from_changelog=cut == 3)
        assert seen > 12


@pytest.mark.parametrize("mode", ["ProcessingTime", "EventTime"])
def test_timers_are_fired_as_in_pyspark_s_tester(spark, mode):
    rng = random.Random(mode)
    options = {"eventTimeExtractor": lambda row: row.ms} if mode == "EventTime" else {}
    tester = TwsTester(Everything(timed=True), timeMode=mode, **options)
    start = round(ZERO.timestamp() * 1000)
    options = {"delay": "2 seconds"} if mode == "EventTime" else {"wall_clock_time": start}
    if mode == "ProcessingTime":
        tester.setProcessingTime(start)
    with driven(spark, Everything(timed=True), "user string, text string", mode, **options) as driver:
        seen, now, fired = 0, -1, 0
        for step in range(40):
            ms = 5000 + 700 * step + step + rng.randint(-3000, 1000)
            user, page, n = rng.choice("abc"), rng.choice("pq"), rng.randint(0, 60)
            row = Row(user=user, page=page, n=n, ms=start + ms)
            if mode == "EventTime":
                click(driver, user, ms / 1000, n, page)
                expected = [] if start + ms <= tester._currentWatermarkMs else tester.test(user, [row])
                if ms - 2000 > now:
                    now = ms - 2000
                    expected += tester.setWatermark(start + now)
            else:
                click(driver, user, 0, n, page)
                expected = tester.test(user, [row])
                driver.advance_wall_clock_time(dt.timedelta(milliseconds=701))
                expected += tester.setProcessingTime(tester._currentProcessingTimeMs + 701)
            found = texts(driver, seen)
            seen += len(found)
            assert sorted(found) == sorted(map(tuple, expected)), step
            fired += sum(" timer " in f" {text}" for _, text in found)
            if step in {13, 27}:
                driver.restart(from_changelog=step == 27)
        assert fired > 10


class Expiring(StatefulProcessor):
    """What it is given lasts for ten seconds."""

    def init(self, handle):
        self.value = handle.getValueState("value", "n long", 10_000)
        self.items = handle.getListState("items", "n long", 10_000)
        self.map = handle.getMapState("map", "page string", "n long", 10_000)

    def handleInputRows(self, key, rows, times):
        for row in rows:
            if row.n:
                self.value.update((row.n,))
                self.items.appendValue((row.n,))
                self.map.updateValue((row.page,), (row.n,))
        entries = sorted((*page, *n) for page, n in self.map.iterator())
        assert (self.items.exists(), self.map.exists()) == (bool(list(self.items.get())), bool(entries))
        text = f"{self.value.get()} {[n for (n,) in self.items.get()]} {entries}"
        yield Row(user=key[0], text=text)

    def close(self):
        pass


def stored(driver, store="counts"):
    """Return how many keys the store of the one task has."""
    directory = driver._tasks.directories(0)[0]
    opened = TaskStore.open(directory, create=False)
    try:
        return opened.rows(store)
    finally:
        opened.close(clean=False)


def test_what_expires_is_read_as_absent_and_removed(spark):
    start = round(ZERO.timestamp() * 1000)
    options = {"mode": "ProcessingTime", "wall_clock_time": start}
    with driven(spark, Expiring(), "user string, text string", **options) as driver:

        def at(seconds, n=0, page="p"):
            driver.advance_wall_clock_time(ZERO + dt.timedelta(seconds=seconds) - now(driver))
            click(driver, "ada", 0, n, page)
            return texts(driver)[-1][1]

        assert at(0, 1, "p") == "(1,) [1] [('p', 1)]"
        assert at(6, 2, "q") == "(2,) [1, 2] [('p', 1), ('q', 2)]"
        assert at(9.999) == "(2,) [1, 2] [('p', 1), ('q', 2)]"
        assert at(10) == "(2,) [2] [('q', 2)]"
        driver.restart(from_changelog=True)
        assert at(15.999) == "(2,) [2] [('q', 2)]"
        assert at(16, 0) == "None [] []"
        assert at(17, 3, "p") == "(3,) [3] [('p', 3)]"
        assert at(20, 4, "p") == "(4,) [3, 4] [('p', 4)]"
        # Without a row: all is removed by the clock.
        driver.advance_wall_clock_time(dt.timedelta(seconds=11))
        assert stored(driver) == 0
        driver.restart(from_changelog=True)
        assert stored(driver) == 0
        assert at(40) == "None [] []"


def now(driver):
    return dt.datetime.fromtimestamp(driver._now_ms / 1000, dt.UTC)


@pytest.mark.long
def test_the_cut_into_micro_batches_changes_no_state(spark):
    rng = random.Random(5)
    rows = [(rng.choice("abcd"), rng.choice("pqr"), rng.randint(0, 60)) for _ in range(60)]
    results = []
    for batch in ("record", "all", "some"):
        with driven(
            spark, Everything(), "user string, text string", batch="record" if batch == "record" else "all"
        ) as driver:
            for number, (user, page, n) in enumerate(rows):
                click(driver, user, 0, n, page)
                if batch == "some" and rng.random() < 0.2:
                    driver.process()
                    if number > 40:
                        driver.restart(from_changelog=True)
            results.append(dict(texts(driver)))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) == 4


class Broken(Counting):
    def handleInputRows(self, key, rows, times):
        [row] = rows
        if row.n == 1:
            raise KeyError("what is missing")
        if row.n == 2:
            self.count.update((row.page, []))
        if row.n == 3:
            yield Row(user=key[0], count="many", pages=1)
        if row.n == 4:
            yield Row(user=key[0], other=1, pages=1)


@pytest.mark.parametrize(
    ("n", "message"),
    [
        (1, r"KeyError: 'what is missing' in Broken\.handleInputRows\(\) for key \('ada',\) .*test_transformations"),
        (
            2,
            r"TypeError: value state 'count' takes count, pages, got \('p', \[\]\).*key \('ada',\) .*handleInput",
        ),
        (
            3,
            r"TypeError: outputStructType takes user, count, pages, got \('ada', 'many', 1\): .*for key \('ada',\)",
        ),
        (4, r"TypeError: outputStructType takes user, count, pages, got a Row of user, other, pages"),
    ],
)
def test_a_failure_names_the_processor_and_the_key(spark, n, message):
    options = {"config": {"max.batch.retries": 0}}
    with (
        driven(spark, Broken(), "user string, count long, pages int", **options) as driver,
        pytest.raises(JobFailed, match=message),
    ):
        click(driver, "ada", 0, n)


class Late(StatefulProcessor):
    def init(self, handle):
        self.handle = handle

    def handleInputRows(self, key, rows, times):
        for row in rows:
            self.handle.registerTimer(int(row.at.timestamp() * 1000) + 5000)
            yield Row(user=key[0], text=f"row {row.n}")

    def handleExpiredTimer(self, key, times, info):
        over = times.getCurrentWatermarkInMs() - info.getExpiryTimeInMs()
        yield Row(user=key[0], text=f"over by {over}")

    def close(self):
        pass


def test_late_rows_are_dropped_and_timers_of_idle_tasks_fire(spark):
    options = {"delay": "1 second", "config": {"watermark.idle.ms": 60_000}}
    with driven(spark, Late(), "user string, text string", "EventTime", **options) as driver:
        for n, seconds in enumerate((10, 30, 28, 29, 31)):
            click(driver, "ada", seconds, n)
        out = driver.create_output_topic("out", key=String())
        assert [record.value["text"] for record in out.read_records()] == [
            "row 0",
            "row 1",
            "over by 14000",
            "row 3",
            "row 4",
        ]
        driver.advance_wall_clock_time(dt.timedelta(seconds=59))
        assert out.is_empty
        driver.advance_wall_clock_time(dt.timedelta(seconds=1))
        records = out.read_records()
        assert [(record.timestamp, record.value["text"].partition(" by ")[0]) for record in records] == [
            (round(ZERO.timestamp() * 1000) + due * 1000, "over") for due in (34, 35, 36)
        ]


class InPandas(StatefulProcessor):
    def init(self, handle):
        self.sum = handle.getValueState("sum", "n long")

    def handleInputRows(self, key, rows, times):
        total = sum(int(frame["n"].sum()) for frame in rows) + (self.sum.get() or (0,))[0]
        self.sum.update((np.int64(total),))
        yield pd.DataFrame({"sum": [total], "page": [key[0]], "second": [key[1]]})

    def close(self):
        pass


def test_pandas_frames_and_computed_keys_and_what_follows(spark):
    builder = StreamsBuilder()
    grouped = clicks_of(builder).groupBy("page", (F.col("n") % 2).alias("odd"))
    made = grouped.transformWithStateInPandas(InPandas(), "page string, second long, sum long", "append", "NONE")
    later = made.where("sum > 3").withColumn("at", F.lit("2026-01-01").cast("timestamp")).withWatermark("at", "1 day")
    later.groupBy("page").agg(F.max("sum").alias("most")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2, batch="all") as driver:
        for n, page in enumerate(("p", "q", "p", "q", None, "p"), 1):
            click(driver, f"u{n}", n, n, page)
        first = rows_of(driver)
        click(driver, "u", 9, 7, "p")
        click(driver, "u", 9, 8, None)
        assert {(row["page"], row["most"]) for row in [*first, *rows_of(driver)]} >= {("p", 6), ("p", 11), ("q", 6)}


def compiled(spark, processor, output="user string, count long, pages int", mode="None", **to):
    builder = StreamsBuilder()
    made = clicks_of(builder).groupBy("user").transformWithState(processor, output, "Update", mode)
    made.to("out", value=Json(), **to)
    TopologyTestDriver(builder.build(), spark=spark).close()


class Asking(Counting):
    def __init__(self, ask):
        self.ask = ask

    def init(self, handle):
        self.ask(handle)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda h: h.getValueState("v", "n"), "value state 'v': schema='n' is not a schema"),
        (
            lambda h: h.getValueState("v", "n long", 5),
            "value state 'v': ttlDurationMs=5 needs timeMode",
        ),
        (lambda h: h.getValueState("v", "n long", 0), "ttlDurationMs=0 must be a positive number of milliseconds"),
        (
            lambda h: (h.getListState("v", "n long"), h.getMapState("v", "n long", "n long")),
            "two variables with this name",
        ),
        (
            lambda h: h.getMapState("m", "v variant", "n long"),
            "map state 'm': a variant cannot be stored; store F.to_json",
        ),
        (
            lambda h: h.getListState("l", "v interval day"),
            "list state 'l': column 'v' .interval day. cannot be kept as state",
        ),
        (
            lambda h: h.registerTimer(5),
            r"Asking\.init\(\) failed on the driver.*registerTimer\(5\): timers belong to a group",
        ),
        (lambda h: 1 / 0, r"init\(\) failed on the driver, which calls it to find the variables: ZeroDivisionError"),
    ],
)
def test_what_init_asks_for_is_checked_when_the_pipeline_is_built(spark, ask, message):
    with pytest.raises(TopologyException, match=message):
        compiled(spark, Asking(ask))


def test_what_comes_out_is_checked_when_the_pipeline_is_built(spark):
    with pytest.raises(TopologyException, match="page"):
        compiled(spark, Counting(), key=String("page"))
    with pytest.raises(TopologyException, match="outputStructType='nothing' "):
        compiled(spark, Counting(), "nothing")
    with pytest.raises(TopologyException, match="outputStructType has column 'a' twice"):
        compiled(spark, Counting(), "a long, a long")
