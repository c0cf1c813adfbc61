"""Ends that write to no topic: rows that are shown, and rows that a function gets."""

import datetime as dt
import json

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import SparkRelayError
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ORDER = Json("id long, shop string, at timestamp, tags array<string>, place struct<lat: double, lon: double>")


@pytest.mark.long
def test_rows_are_shown_as_spark_shows_them(spark, capsys):
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=ORDER)
    orders.where("id > 0").show(2, truncate=8)
    orders.groupBy("shop").agg(F.count("*").alias("n")).show()
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("orders")
        for number in range(4):
            at = f"2026-01-01T00:00:0{number}Z"
            topic.pipe_input("ada", {"id": number, "shop": "a shop", "at": at, "tags": ["x"], "place": {"lat": 1.5}})
        capsys.readouterr()
        driver.process()
        out = capsys.readouterr().out
    assert "orders-show, batch 1\n" in out
    assert "+----+---+------+--------+----+--------+\n|  id|shop|" not in out
    lines = out.splitlines()
    (first,) = [index for index, line in enumerate(lines) if line == "orders-show, batch 1"]
    assert [cell.strip() for cell in lines[first + 2].split("|")[1:-1]] == ["id", "shop", "at", "tags", "place", "user"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines[first + 4 : first + 6]]
    assert rows == [
        ["1", "a shop", "2026-...", "[x]", "{1.5,...", "ada"],
        ["2", "a shop", "2026-...", "[x]", "{1.5,...", "ada"],
    ]
    assert lines[first + 6].startswith("+-"), "two rows at most"
    assert "|a shop|  4|" in out


def test_bytes_that_are_no_text_are_shown_all_the_same(spark, capsys):
    builder = StreamsBuilder()
    builder.stream("raw").select("value").show()
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("raw").pipe_input(None, b"a\xffb\x1b[2J")
        driver.process()
    assert "a\ufffdb\\x1b[2J" in capsys.readouterr().out


def test_what_a_table_deletes_is_shown_as_deleted(spark, capsys):
    builder = StreamsBuilder()
    builder.table("users", key=String("user"), value=Json("name string")).where("name <> 'x'").show()
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("users")
        topic.pipe_input("ada", {"name": "Ada"})
        assert "| ada| Ada|" in capsys.readouterr().out
        topic.pipe_input("ada", {"name": "x"})
        assert "|(deleted)| ada| Ada|" in capsys.readouterr().out


def test_a_function_gets_each_row(spark, tmp_path):
    """Of PySpark's types, with the records that have no value left out."""
    log = tmp_path / "rows"

    def note(row):
        cells = [type(row).__name__, row.user, row["id"], str(row.at), row.tags, row.place.lat]
        with log.open("a") as file:
            file.write(json.dumps(cells) + "\n")

    builder = StreamsBuilder()
    builder.stream("orders", key=String("user"), value=ORDER).where("id IS NULL OR id > 1").foreach(note)
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        topic = driver.create_input_topic("orders")
        for number in range(4):
            at = f"2026-01-01T00:00:0{number}Z"
            value = {"id": number, "at": at, "tags": ["x", None], "place": {"lat": 1.5}}
            topic.pipe_input(f"u{number}", value)
        topic.pipe_input("u9", None)
        driver.process()
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC).astimezone().replace(tzinfo=None)
    assert sorted(map(json.loads, log.read_text().splitlines())) == [
        ["Row", f"u{number}", number, str(at + dt.timedelta(seconds=number)), ["x", None], 1.5] for number in (2, 3)
    ]


def test_what_the_function_raises_fails_the_micro_batch(spark):
    def fail(row):
        raise ValueError(f"no order like {row.id}")

    builder = StreamsBuilder()
    builder.stream("orders", key=String("user"), value=ORDER).foreach(fail)
    with (
        TopologyTestDriver(builder.build(), spark=spark) as driver,
        pytest.raises(SparkRelayError, match="no order like 7"),
    ):
        driver.create_input_topic("orders").pipe_input("ada", {"id": 7})
