"""Columns on a real broker; tests/integration/testing/test_columns.py has what they may be."""

import json

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def values_of(consumed, topic):
    return [json.loads(value) for _, _, _, value in consumed(topic)]


def test_columns_that_only_unused_results_are_made_of(instance, make_topic, produce, consumed, wait_for_table):
    """The proof on a real broker: an aggregate, a plain topic and a repartition topic of the same steps."""
    source, counts, passed, moved = (make_topic(hint, 1) for hint in ("in", "counts", "passed", "moved"))
    produce(source, [("a", {"n": 5, "s": "x", "time": "2024-03-01T12:00:00Z"})])
    builder = StreamsBuilder()
    schema = "n int, s string, time timestamp, rest array<struct<x int>>"
    stream = builder.stream(source, key=String("k"), value=Json(schema))
    more = stream.withColumn("day", F.to_date("time")).selectExpr("*", "upper(s) as s2", "size(rest) as r")
    more = more.transform(lambda rows: rows.withColumn("l", F.length("s")))
    more.groupBy("k").agg(F.sum("n").alias("n")).to(counts, key=String("k"), value=Json())
    more.select("n").to(passed, value=Json())
    more.repartition("n").select("n", "l").select("n").to(moved, value=Json())
    streams = instance(builder)
    streams.start()
    wait_for_table(counts, {b"a": {"k": "a", "n": 5}}, streams)
    assert values_of(consumed, passed) == [{"n": 5}]
    wait_for_table(moved, {(5).to_bytes(4, "big"): {"n": 5}}, streams)
