"""Aggregates inside of expressions: each is kept, and Catalyst computes the rest behind the stateful step."""

import json

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

VALUE = "n int, price decimal(10,2), at timestamp"
ROWS = [
    (user, {"n": n, "price": n * 1.25, "at": f"2026-01-01T0{n % 5}:30:00Z"})
    for n, user in enumerate(["ada", "bob", "ada", "cy", "ada", "bob", "cy", "bob", "ada"])
]


def aggregates():
    """Return aggregates with names as well as without, some of which stand in several expressions."""
    return [
        (F.sum("n") / F.count("*")).alias("mean"),
        F.sum("n").alias("total"),
        F.round(F.avg("price"), 2),
        (F.sum("n") * 2 + F.length("user")).alias("more"),
        F.expr("max(n) FILTER (WHERE n < 5) - min(n)").alias("range"),
        F.concat("user", F.lit(": "), F.count_distinct("n").cast("string")).alias("text"),
        F.struct(F.sum("n").alias("a"), F.max("price").cast("double").alias("b")).alias("both"),
        F.when(F.count("*") > 2, "many").otherwise("few").alias("size"),
        F.lit(7).alias("seven"),
        F.size(F.collect_set("n")).alias("kinds"),
        (F.median("n") + F.expr("percentile_disc(0.1) WITHIN GROUP (ORDER BY n)")).alias("middle"),
    ]


def stream_of(builder):
    return builder.stream("in", key=String("user"), value=Json(VALUE))


def batch_of(spark):
    rows = spark.createDataFrame([(user, row["n"], row["price"], row["at"]) for user, row in ROWS],
                                 "user string, n int, price double, at string")  # fmt: skip
    return rows.select(
        "user", "n", F.col("price").cast("decimal(10,2)").alias("price"), F.to_timestamp("at").alias("at")
    )


def as_read(rows):
    """Return rows of a batch as they are read from a topic."""
    return [json.loads(row[0]) for row in rows.select(F.to_json(F.struct("*"))).collect()]


def piped(driver, size=4):
    topic = driver.create_input_topic("in")
    for start in range(0, len(ROWS), size):
        topic.pipe_rows(ROWS[start : start + size])
        driver.process()
        driver.restart(from_changelog=start % 8 == 0)


def last_rows(driver, topic="out"):
    """Return the last row of each user whose last row is no deletion."""
    rows = {}
    for record in driver.create_output_topic(topic).read_records():
        rows[record.key] = record.value
    return sorted((row for row in rows.values() if row is not None), key=lambda row: row["user"])


@pytest.mark.parametrize("steps", ["none", "select", "where", "to_stream"])
def test_expressions_of_aggregates_are_those_of_spark_batch(spark, steps):
    def behind(table):
        if steps == "select":
            return table.select("user", "mean", (F.col("total") + 1).alias("next"), "both.a")
        if steps == "where":
            return table.where("mean > 3.4")
        return table

    builder = StreamsBuilder()
    table = behind(stream_of(builder).groupBy("user").agg(*aggregates(), name="kept"))
    (table.to_stream() if steps == "to_stream" else table).to("out")
    expected = behind(batch_of(spark).groupBy("user").agg(*aggregates()))
    expected = sorted(as_read(expected), key=lambda row: row["user"])
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        piped(driver)
        assert last_rows(driver) == expected
        kept = driver.store("kept")[0]
        assert "sum(n)" not in kept, "it is kept under its own name"
        assert {"user", "total", "count(1)", "avg(price)", "count(DISTINCT n)"} < kept.keys()


@pytest.mark.long
@pytest.mark.parametrize("batch", ["all", "record"])
def test_two_sinks_and_another_grouping_behind_see_the_same_columns(spark, batch):
    builder = StreamsBuilder()
    table = stream_of(builder).groupBy("user").agg(*aggregates(), name="kept")
    table.to("out")
    table.where("size = 'many'").to("many")
    table.to_stream().groupBy("size").agg(F.count("*").alias("changes"), name="sizes").to("sizes")
    everything = batch_of(spark).groupBy("user").agg(*aggregates())
    with TopologyTestDriver(builder.build(), spark=spark, batch=batch) as driver:
        piped(driver)
        assert last_rows(driver) == sorted(as_read(everything), key=lambda row: row["user"])
        many = sorted(as_read(everything.where("size = 'many'")), key=lambda row: row["user"])
        assert last_rows(driver, "many") == many
        assert {row["size"] for row in driver.store("sizes")} == {"few", "many"}


@pytest.mark.long
def test_final_rows_of_windows_are_computed_too(spark):
    window = F.window("at", "1 hour")
    computed = [
        (F.sum("n") / F.count_distinct("user")).alias("share"),
        F.date_format(F.col("window.end"), "HH").alias("hour"),
        (F.max("n") - F.min("n")).alias("range"),
    ]
    builder = StreamsBuilder()
    stream = stream_of(builder).withWatermark("at", "10 hours")
    stream.groupBy(window).agg(*computed, name="kept").outputMode("append").select("share", "hour", "range").to("out")
    expected = batch_of(spark).groupBy(window).agg(*computed).select("share", "hour", "range")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        piped(driver)
        assert driver.create_output_topic("out").read_rows() == []
        driver.create_input_topic("in").pipe_rows([("end", {**ROWS[0][1], "at": "2026-01-09T00:00:00Z"})])
        driver.process()
        found = driver.create_output_topic("out").read_rows()
        assert len(found) == expected.count()
        wanted = as_read(expected)
        names = ("share", "hour", "range")
        assert sorted(tuple(row[name] for name in names) for row in found) == sorted(
            tuple(row[name] for name in names) for row in wanted
        )


def test_columns_that_are_not_grouped_by_are_refused_with_the_line(spark):
    grouped = stream_of(StreamsBuilder()).groupBy("user")
    with pytest.raises(TopologyException, match=r"test_computed_aggregates.py:\d+: .*MISSING_AGGREGATION"):
        grouped.agg((F.sum("n") + F.col("n")).alias("x"))


def test_aggregates_inside_are_kept_once_and_refused_as_others_are(spark):
    grouped = stream_of(StreamsBuilder()).groupBy("user")
    with pytest.raises(TopologyException, match=r"histogram_numeric\(n, 3\) is not supported in agg"):
        grouped.agg(F.size(F.expr("histogram_numeric(n, 3)")).alias("x"))


def test_two_results_of_one_name_are_refused_though_they_are_computed(spark):
    halves = [(F.sum("n") / 2).alias("half"), (F.max("n") / 2).alias("half")]
    for aggregated in (halves, [(F.sum("n") / 2).alias("user")], [halves[0], F.max("n").alias("half")]):
        changes = stream_of(StreamsBuilder()).groupBy("user").agg(*aggregated).to_stream()
        with pytest.raises(TopologyException, match=r"test_computed_aggregates.py:\d+: .* two columns '(half|user)'"):
            changes.foreach(print)
