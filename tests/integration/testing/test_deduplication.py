"""Streams without duplicates on the test driver: what Spark's suites say, and beside Spark batch over the same rows."""

import datetime as dt
import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

CLICK = Json("page string, n long, at timestamp")
ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def clicks_of(builder, delay=None):
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    return clicks if delay is None else clicks.withWatermark("at", delay)


def click(driver, user, seconds, n=0, page="p"):
    value = {"page": page, "n": n, "at": (ZERO + dt.timedelta(seconds=seconds)).isoformat()}
    driver.create_input_topic("clicks").pipe_input(user, value, int(seconds * 1000))


def driven(spark, build, delay=None, **options):
    builder = StreamsBuilder()
    build(clicks_of(builder, delay)).to("out", value=Json())
    return TopologyTestDriver(builder.build(), spark=spark, **options)


def numbers(driver):
    return [row["n"] for row in driver.create_output_topic("out").read_rows()]


def test_the_first_row_of_each_key_goes_on_as_it_is(spark):
    with driven(spark, lambda clicks: clicks.dropDuplicates(["user"], name="users")) as driver:
        out = driver.create_output_topic("out", key=String())
        for n, user in enumerate(["ada", "bob", "ada", None, "cid", "bob"]):
            click(driver, user, n, n)
        assert [(record.key, record.value["n"], record.timestamp) for record in out.read_records()] == [
            ("ada", 0, 0),
            ("bob", 1, 1000),
            ("cid", 4, 4000),
        ]
        driver.restart(from_changelog=True)
        driver.batch = "all"
        for n, user in enumerate(["dan", "ada", "dan", "eve"], 6):
            click(driver, user, 0, n)
        assert numbers(driver)[3:] == [6, 9]
        with pytest.raises(ValueError, match=r"store 'users' holds the keys of dropDuplicates\(user\)"):
            driver.store("users")
