"""Single rows that are special: tombstones behind a repartition topic, null structs, other time zones, event times."""

import json
from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, StreamsBuilder, String

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


def test_a_null_struct_is_another_group_than_one_of_nulls(spark, instance, make_topic, produce, table, wait_until):
    source, sink = make_topic("in", 2), make_topic("counts", 2)
    targets = [None, {}, {"city": "x"}, None, {"city": "x"}, {}, None]
    produce(source, [("u", {"place": target}) for target in targets])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("place struct<city string>"))
    shown = F.to_json("place").alias("place")
    stream.groupBy("k", "place").agg(F.count("*").alias("n")).select("k", shown, "n").to(sink, value=Json())
    streams = instance(builder, {"max.batch.records": 3})
    streams.start()

    rows = [("u", None if target is None else (target.get("city"),)) for target in targets]
    batch = spark.createDataFrame(rows, "k string, place struct<city: string>")
    counted = batch.groupBy("k", "place").agg(F.count("*").alias("n")).select("k", shown, "n").collect()
    expected = {(row["place"], row["n"]) for row in counted}
    assert len(expected) == 3
    wait_until(
        lambda: {(row.get("place"), row["n"]) for row in table(sink).values()} == expected or streams.exception(),
        "the groups are others than Spark's",
    )
    assert streams.exception() is None


@pytest.fixture
def in_new_york(spark):
    """The session is on another zone than UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_windows_in_a_session_that_is_not_on_utc(in_new_york, instance, make_topic, produce, table, wait_until):
    source, sink = make_topic("in", 2), make_topic("days", 2)
    times = [f"2024-03-0{day}T{hour}:00:00Z" for day in (1, 2) for hour in ("00", "04", "23")]
    produce(source, [("u", {"time": time}) for time in times])
    builder = StreamsBuilder()
    stream = builder.stream(source, key=String("k"), value=Json("time timestamp"), timestamp="time")
    days = stream.groupBy("k", F.window("time", "1 day")).agg(F.count("*").alias("n"), F.max("time").alias("last"))
    days.select("k", "window.start", "n", "last").to(sink, value=Json())
    streams = instance(builder)
    streams.start()
    expected = [
        {"k": "u", "start": f"2024-03-0{day}T00:00:00.000Z", "n": 3, "last": f"2024-03-0{day}T23:00:00.000Z"}
        for day in (1, 2)
    ]
    wait_until(
        lambda: sorted(table(sink).values(), key=lambda row: row["start"]) == expected or streams.exception(),
        "not the days",
    )
    assert streams.exception() is None


def test_what_can_be_an_event_time(instance, make_topic, produce, consumed, wait_until):
    at = datetime(2024, 3, 1, 12, 30, 0, 250_000, tzinfo=UTC)
    day = at.replace(hour=0, minute=0, second=0, microsecond=0)
    ms = int(at.timestamp() * 1000)
    # Format of the key and of the value, what is written as "at", and the event time; null means the record's own.
    kinds = [
        (None, Json("at timestamp, n int"), at.isoformat(), ms),
        (None, Json("at timestamp_ntz, n int"), "2024-03-01T12:30:00.250", ms),
        (None, Json("at date, n int"), "2024-03-01", int(day.timestamp() * 1000)),
        (None, Json("at bigint, n int"), ms, ms),
        (None, Json("at bigint, n int"), None, 77),
        (Long("at"), Json("n int"), ms, ms),
        (Long("at"), None, ms, ms),
    ]
    builder = StreamsBuilder()
    sinks = []
    for number, (key, value, written, _) in enumerate(kinds):
        source, sink = make_topic(f"in{number}"), make_topic(f"out{number}")
        row = {"key": b"k" if key is None else written.to_bytes(8, "big"), "timestamp": 77}
        produce(source, [{**row, "value": {"n": 1, **({} if key else {"at": written})}}])
        # No step reads the column.
        stream = builder.stream(source, key=key, value=value, timestamp="at")
        stream.select(F.lit(1).alias("one")).to(sink, value=Json())
        sinks.append(sink)
    streams = instance(builder)
    streams.start()
    wait_until(lambda: all(consumed(sink) for sink in sinks) or streams.exception(), "rows are missing")
    assert streams.exception() is None
    times = [[message.timestamp()[1] for message in consumed(sink, full=True)] for sink in sinks]
    assert times == [[expected] for *_, expected in kinds]


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
    assert streams.stop(120)
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


def test_groups_by_what_is_offered_instead_of_arrays_and_maps(instance, make_topic, produce, wait_for_table):
    source, sink = make_topic("in", 2), make_topic("counts", 2)
    rows = [{"tags": ["a", "b"], "place": {"city": {"name": "x"}}}, {"tags": [], "place": None}]
    maps = [{"p": 1, "q": 2}, {"q": 2, "p": 1}]
    produce(source, [("u", {**row, "props": props}) for row in rows for props in maps])
    builder = StreamsBuilder()
    schema = "tags array<string>, props map<string, int>, place struct<city struct<name string>>"
    stream = builder.stream(source, key=String("k"), value=Json(schema))
    props = F.to_json(F.array_sort(F.map_entries("props"))).alias("props")
    texts = [F.to_json(name).alias(name) for name in ("tags", "place")]
    stream.groupBy("k", props, *texts).count().select("tags", "count", "place").to(sink, key=String("tags"))
    streams = instance(builder)
    streams.start()
    expected = {
        b'["a","b"]': {"tags": '["a","b"]', "count": 2, "place": '{"city":{"name":"x"}}'},
        b"[]": {"tags": "[]", "count": 2},
    }
    wait_for_table(sink, expected, streams)
