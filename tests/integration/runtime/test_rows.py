"""Single rows that are special: tombstones behind a repartition topic, null structs, other time zones, event times."""

import json

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_tombstone_keeps_its_columns_through_a_repartition_topic(
    instance, make_topic, produce, consumed, wait_for_table
):
    source, deletes, ones, counts = (make_topic(hint, 2) for hint in ("in", "deletes", "ones", "counts"))
    produce(source, [("x", {"a": 1}), ("x", None), ("y", {"a": 2}), ("y", {"a": 3}), ("z", None), ("end", {"a": 4})])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("a int")).withColumn("v", F.lit(1))
    moved = stream.repartition("k", partitions=3)
    moved.where("k in ('x', 'y', 'z')").select("k", "a", "v").to(deletes, key=String("k"), value=Json())
    moved.select("k").to(ones, key=String("k"), value=Json())
    moved.groupBy("k").agg(F.count("*").alias("n"), F.sum("v").alias("v")).to(counts, key=String("k"), value=Json())
    streams = instance(builder)
    streams.start()
    expected = {key: {"k": key.decode(), "n": n, "v": n} for key, n in ((b"x", 1), (b"y", 2), (b"end", 1))}
    wait_for_table(counts, expected, streams)
    passed = [(key, value and json.loads(value)) for _, _, key, value in consumed(deletes)]
    assert [value for key, value in passed if key == b"x"] == [{"k": "x", "a": 1, "v": 1}, None]
    assert [value for key, value in passed if key == b"y"] == [{"k": "y", "a": a, "v": 1} for a in (2, 3)]
    assert [value for key, value in passed if key == b"z"] == [None]
    assert len(passed) == 5
    assert sorted((key, value is None) for _, _, key, value in consumed(ones)) == sorted(
        [(b"x", False), (b"x", True), (b"y", False), (b"y", False), (b"z", True), (b"end", False)]
    )
