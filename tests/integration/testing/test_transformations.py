"""Stateful processors on the test driver."""

import datetime as dt

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

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
