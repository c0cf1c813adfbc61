"""Rows on a real broker: tombstones in a repartition topic, and times at which its topics do not keep them.

The rest of what rows may be is in tests/integration/testing/test_rows.py.
"""

import json

import pytest
from pyspark.sql import functions as F
from tests.waiting import LONG

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_a_tombstone_keeps_its_columns_through_a_repartition_topic(
    instance, make_topic, produce, consumed, wait_for_table
):
    """The proof on a real broker: three partitions between two topics of two."""
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


def test_rows_that_their_topic_will_delete_are_warned_of(instance, make_topic, produce, consumed, wait_until, caplog):
    # Without a timestamp, which is -1, a record is kept as long as if it were of now.
    builder, sinks = StreamsBuilder(), {}
    for timestamp in (77, -1):
        source, sinks[timestamp] = make_topic("in"), make_topic("out", config={"retention.ms": "604800000"})
        produce(source, [{"key": "k", "value": {"n": 1}, "timestamp": timestamp}])
        builder.stream(source, value=Json("n int")).to(sinks[timestamp], value=Json())
    streams = instance(builder)
    streams.start()
    warning = "topic {!r} deletes records 7 days, 0:00:00 after their timestamps"
    wait_until(lambda: warning.format(sinks[77]) in caplog.text, "nobody warns")
    wait_until(lambda: consumed(sinks[-1]), "a row is missing")
    assert streams.stop(LONG)
    assert f"topic {sinks[-1]!r} deletes" not in caplog.text


def test_rows_of_before_1970_do_not_reach_a_topic(instance, make_topic, produce, consumed, wait_until):
    """A broker with a compression of its own refuses them, and compacts no more."""
    source, sink = make_topic("in"), make_topic("out", config={"compression.type": "gzip"})
    times = ["1969-12-31T23:59:59.999Z", "1950-01-01T00:00:00Z", "1970-01-01T00:00:00Z"]
    produce(source, [{"key": "k", "value": {"at": time}, "timestamp": 77} for time in times])
    builder = StreamsBuilder()
    builder.stream(source, value=Json("at timestamp"), timestamp="at").select("at").to(sink, value=Json())
    streams = instance(builder, {"deserialization.exception.handler": "log-and-continue"})
    streams.start()
    wait_until(lambda: consumed(sink) or streams.exception(), "a row is missing")
    assert streams.exception() is None
    assert [message.timestamp()[1] for message in consumed(sink, full=True)] == [0]
