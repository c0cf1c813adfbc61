"""Keys, windows and event times that columns cannot be: refused where they are written, with the remedy."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException

pytestmark = pytest.mark.integration


def test_sessions_need_a_watermark(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("t timestamp"))
    grouped = stream.groupBy("user", F.session_window("t", "1 hour"))
    with pytest.raises(TopologyException, match=r"test_refused_columns.py:\d+: .* without a watermark every session"):
        grouped.count()


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        (lambda: [F.window("created", "1 hour")], lambda s: s),
        (lambda: ["user", F.window("created", "1 hour", "30 minutes")], lambda s: s),
        (lambda: [F.expr("window(created, '1 hour')").alias("w")], lambda s: s),
        (lambda: ["user", "w"], lambda s: s.withColumn("w", F.window("created", "1 hour"))),
        (lambda: ["page", "w"], lambda s: s.withColumn("w", F.window(F.col("created").cast("timestamp"), "1 hour"))),
        (lambda: ["page", "w"], lambda s: s.withColumn("w", F.window("kafka.timestamp", "1 hour"))),
    ],
)
def test_windows_of_another_time_than_the_watermarks(spark, keys, made):
    schema = Json("page string, created timestamp, received timestamp")
    stream = StreamsBuilder().stream("a", key=String("user"), value=schema)
    grouped = made(stream).withWatermark("received", "1 minute").groupBy(*keys())
    with pytest.raises(
        TopologyException, match=r"test_refused_columns.py:\d+: .*'received': windows end by their own time"
    ):
        grouped.count()


@pytest.mark.parametrize(
    ("time", "window", "made"),
    [
        ("created", lambda: F.expr("window(created, '1 hour')"), lambda s: s),
        ("created", lambda: F.window(F.col("created") + F.expr("interval 1 hour"), "1 hour"), lambda s: s),
        (
            "at",
            lambda: "w",
            lambda s: s.withColumn("w", F.window("created", "1 hour")).withColumnRenamed("created", "at"),
        ),
    ],
)
def test_windows_of_what_the_watermark_is_made_of(compiled, time, window, made):
    builder = StreamsBuilder()
    stream = made(builder.stream("a", key=String("user"), value=Json("page string, created timestamp")))
    stream.withWatermark(time, "1 minute").groupBy("page", window()).count().to("b", value=Json())
    compiled(builder)


def test_a_watermark_of_a_date(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("created date"))
    with pytest.raises(TopologyException, match=r'test_refused_columns.py:\d+: .*`created`.*"DATE".*"TIMESTAMP"'):
        stream.withWatermark("created", "1 minute")


def test_a_key_column_that_would_hide_a_field(spark):
    builder = StreamsBuilder()
    with pytest.raises(
        TopologyException,
        match=r"test_refused_columns.py:\d+: .*'user' is both the message key \(string\) and a field .* \(int\)",
    ):
        builder.stream("a", key=String("user"), value=Json("user int, amount int"))


def test_our_own_columns_are_not_suggested(spark):
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json("amount int"))
    with pytest.raises(TopologyException) as caught:
        stream.select("key_")
    assert "__sparkrelay" not in str(caught.value)
    assert "`user`" in str(caught.value)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("tags", r"'tags' \(array<string>\).*F.to_json\(\"tags\"\).alias\(\"tags\"\)"),
        ("props", r"'props' \(map<string,int>\).*F.to_json\(F.array_sort\(F.map_entries\(\"props\"\)\)\)"),
        ("place", r"'place' \(struct<city:struct<name:string>>\).*to_json.*, or by fields of it"),
        ("bare", r"'bare' \(struct<>\)"),
        ("interval 1 day", r"'made' \(interval day\).*cast\(\"string\"\)"),
        ("null", r"'made' \(void\).*cast\(\"string\"\)"),
    ],
)
@pytest.mark.parametrize("beside", [True, False], ids=["beside the key", "after a repartition"])
def test_columns_that_no_key_can_be_made_of(spark, column, words, beside):
    schema = "tags array<string>, props map<string, int>, place struct<city struct<name string>>, bare struct<>"
    stream = StreamsBuilder().stream("a", key=String("user"), value=Json(schema))
    if not beside:
        stream = stream.withColumn("user", F.upper("user"))
    if " " in column or column == "null":
        stream, column = stream.withColumn("made", F.expr(column)), "made"
    grouped = stream.groupBy("user", column)
    with pytest.raises(TopologyException, match=rf"test_refused_columns.py:\d+: .*{words}"):
        grouped.count()


@pytest.mark.parametrize("kind", ["int", "double", "decimal(10, 2)", "string", "array<timestamp>"])
def test_event_times_of_other_types(spark, kind):
    builder = StreamsBuilder()
    words = r"test_refused_columns.py:\d+: .*timestamp='at'.* bigint of milliseconds .*Json\(\"at timestamp\"\)"
    with pytest.raises(TopologyException, match=words):
        builder.stream("a", value=Json(f"at {kind}, n int"), timestamp="at")
