"""Single rows that are special: null structs, other time zones, event times, arrays and maps."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def newest(driver, topic, **formats):
    """Return the last value of each key of a topic."""
    return {record.key: record.value for record in driver.create_output_topic(topic, **formats).read_records()}


def test_a_null_struct_is_another_group_than_one_of_nulls(spark):
    targets = [None, {}, {"city": "x"}, None, {"city": "x"}, {}, None]
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("place struct<city string>"))
    shown = F.to_json("place").alias("place")
    stream.groupBy("k", "place").agg(F.count("*").alias("n")).select("k", shown, "n").to("counts", value=Json())

    rows = [("u", None if target is None else (target.get("city"),)) for target in targets]
    batch = spark.createDataFrame(rows, "k string, place struct<city: string>")
    counted = batch.groupBy("k", "place").agg(F.count("*").alias("n")).select("k", shown, "n").collect()
    expected = {(row["place"], row["n"]) for row in counted}
    assert len(expected) == 3
    settings = {"max.batch.records": 3}
    with TopologyTestDriver(builder.build(), settings, spark=spark, batch="all", partitions=2) as driver:
        driver.create_input_topic("in").pipe_rows(("u", {"place": target}) for target in targets)
        assert {(row.get("place"), row["n"]) for row in newest(driver, "counts").values()} == expected


@pytest.fixture
def in_new_york(spark):
    """The session is in another zone than UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


def test_windows_in_a_session_that_is_not_in_utc(in_new_york, spark):
    times = [f"2024-03-0{day}T{hour}:00:00Z" for day in (1, 2) for hour in ("00", "04", "23")]
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("k"), value=Json("time timestamp"), timestamp="time")
    days = stream.groupBy("k", F.window("time", "1 day")).agg(F.count("*").alias("n"), F.max("time").alias("last"))
    days.select("k", "window.start", "n", "last").to("days", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        driver.create_input_topic("in").pipe_rows(("u", {"time": time}) for time in times)
        found = sorted(newest(driver, "days").values(), key=lambda row: row["start"])
    assert found == [
        {"k": "u", "start": f"2024-03-0{day}T00:00:00.000Z", "n": 3, "last": f"2024-03-0{day}T23:00:00.000Z"}
        for day in (1, 2)
    ]


def test_what_can_be_an_event_time(spark):
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
    for number, (key, value, _, _) in enumerate(kinds):
        # No step reads the column.
        stream = builder.stream(f"in{number}", key=key, value=value, timestamp="at")
        stream.select(F.lit(1).alias("one")).to(f"out{number}", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for number, (key, _, written, _) in enumerate(kinds):
            row = b'{"n": 1}' if key else {"n": 1, "at": written}
            driver.create_input_topic(f"in{number}").pipe_input(written if key else b"k", row, 77)
        outputs = [driver.create_output_topic(f"out{number}") for number in range(len(kinds))]
        times = [[record.timestamp for record in output.read_records()] for output in outputs]
    assert times == [[expected] for *_, expected in kinds]


def test_groups_by_what_is_offered_instead_of_arrays_and_maps(spark):
    rows = [{"tags": ["a", "b"], "place": {"city": {"name": "x"}}}, {"tags": [], "place": None}]
    maps = [{"p": 1, "q": 2}, {"q": 2, "p": 1}]
    builder = StreamsBuilder()
    schema = "tags array<string>, props map<string, int>, place struct<city struct<name string>>"
    stream = builder.stream("in", key=String("k"), value=Json(schema))
    props = F.to_json(F.array_sort(F.map_entries("props"))).alias("props")
    texts = [F.to_json(name).alias(name) for name in ("tags", "place")]
    stream.groupBy("k", props, *texts).count().select("tags", "count", "place").to("counts", key=String("tags"))
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        driver.create_input_topic("in").pipe_rows(("u", {**row, "props": props}) for row in rows for props in maps)
        assert newest(driver, "counts") == {
            '["a","b"]': {"tags": '["a","b"]', "count": 2, "place": '{"city":{"name":"x"}}'},
            "[]": {"tags": "[]", "count": 2},
        }
