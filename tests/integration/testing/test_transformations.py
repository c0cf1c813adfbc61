"""Stateful processors on the test driver."""

import datetime as dt
import random

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from sparkrelay import Json, StreamsBuilder, String
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
