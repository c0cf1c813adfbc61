"""Keys, windows and event times that columns cannot be: refused when the pipeline is compiled, with the remedy."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException

pytestmark = pytest.mark.integration


def test_sessions_need_a_watermark(compiled):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("t timestamp"))
    stream.groupBy("user", F.session_window("t", "1 hour")).count().to("b", value=Json())
    with pytest.raises(TopologyException, match=r"test_refused_columns.py:\d+: .* without a watermark every session"):
        compiled(builder)


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
def test_windows_of_another_time_than_the_watermarks(compiled, keys, made):
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json("page string, created timestamp, received timestamp"))
    made(stream).withWatermark("received", "1 minute").groupBy(*keys()).count().to("b", value=Json())
    with pytest.raises(
        TopologyException, match=r"test_refused_columns.py:\d+: .*'received': windows end by their own time"
    ):
        compiled(builder)


@pytest.mark.parametrize(
    ("time", "window", "made"),
    [
        ("created", lambda: F.expr("window(created, '1 hour')"), lambda s: s),
        ("created", lambda: F.window(F.col("created") + F.expr("interval 1 hour"), "1 hour"), lambda s: s),
        ("at", lambda: F.window("created", "1 hour"), lambda s: s.withColumn("at", F.col("created").cast("date"))),
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


def test_a_key_column_that_would_hide_a_field(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("user int, amount int")).where("amount > 1").to(
        "b", value=Json()
    )
    with pytest.raises(TopologyException, match=r"'user' is both the message key \(string\) and a field .* \(int\)"):
        compiled(builder)


def test_our_own_columns_are_not_suggested(compiled):
    builder = StreamsBuilder()
    builder.stream("a", key=String("user"), value=Json("amount int")).select("key_").to("b", value=Json())
    with pytest.raises(TopologyException) as caught:
        compiled(builder)
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
def test_columns_that_no_key_can_be_made_of(compiled, column, words, beside):
    schema = "tags array<string>, props map<string, int>, place struct<city struct<name string>>, bare struct<>"
    builder = StreamsBuilder()
    stream = builder.stream("a", key=String("user"), value=Json(schema))
    if not beside:
        stream = stream.withColumn("user", F.upper("user"))
    if " " in column or column == "null":
        stream, column = stream.withColumn("made", F.expr(column)), "made"
    stream.groupBy("user", column).count().to("b", value=Json())
    with pytest.raises(TopologyException, match=rf"test_refused_columns.py:\d+: .*{words}"):
        compiled(builder)


@pytest.mark.parametrize("kind", ["int", "double", "decimal(10, 2)", "string", "array<timestamp>"])
def test_event_times_of_other_types(compiled, kind):
    builder = StreamsBuilder()
    builder.stream("a", value=Json(f"at {kind}, n int"), timestamp="at").to("b")
    words = r"test_refused_columns.py:\d+: .*timestamp='at'.* bigint of milliseconds .*Json\(\"at timestamp\"\)"
    with pytest.raises(TopologyException, match=words):
        compiled(builder)
