"""The short words of PySpark for aggregates and keys say what the long ones do."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Raw, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

ROWS = [
    ("ada", {"n": 3, "big": 1 << 40, "on": True}),
    ("ada", {"n": None, "big": 2, "on": None}),
    ("ada", {"n": 5, "big": 3, "on": False}),
    ("bob", {"n": None, "big": None, "on": False}),
]
VALUE = "n int, big long, on boolean"


def last_rows(spark, end):
    """Return the last row of each user that a pipeline makes of ROWS, with the schema Spark gives the same in batch."""
    builder = StreamsBuilder()
    end(builder.stream("in", key=String("user"), value=Json(VALUE)).groupBy("user")).to("out")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows(ROWS)
        return {row["user"]: row for row in driver.create_output_topic("out").read_rows()}


@pytest.mark.long
@pytest.mark.parametrize(
    "end",
    [
        lambda grouped: grouped.sum("n", "big"),
        lambda grouped: grouped.avg("n"),
        lambda grouped: grouped.mean("n", "big"),
        lambda grouped: grouped.min("n"),
        lambda grouped: grouped.max("n", "big"),
        lambda grouped: grouped.count(),
        lambda grouped: grouped.agg(F.count_if(F.col("n") > 3).alias("many"), F.count_if("on").alias("on")),
        lambda grouped: grouped.agg(F.count_if("on")),
        lambda grouped: grouped.agg({"n": "avg", "big": "mean", "*": "count", "on": "count"}),
    ],
    ids=["sum", "avg", "mean", "min", "max", "count", "count_if", "count_if without alias", "dictionary"],
)
def test_the_rows_are_those_of_spark_batch(spark, end):
    batch = spark.createDataFrame([(user, *row.values()) for user, row in ROWS], f"user string, {VALUE}")
    expected = {row["user"]: row.asDict() for row in end(batch.groupBy("user")).collect()}
    found = last_rows(spark, end)
    assert {user: {name: row.get(name) for name in expected[user]} for user, row in found.items()} == expected


@pytest.mark.parametrize(
    ("column", "key"),
    [("user", "ada"), ("n", 3), ("big", 1 << 40), ("raw", b"ada")],
    ids=["string", "int", "bigint", "binary"],
)
def test_a_column_is_the_key_in_the_format_of_its_type(spark, column, key):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("user"), value=Json(VALUE))
    rows.withColumn("raw", F.col("user").cast("binary")).to("out", key=column, value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("in").pipe_input(*ROWS[0])
        (record,) = driver.create_output_topic("out").read_records()
        assert record.key == key
    assert f"key: {column}" in builder.build().describe()


def test_a_column_of_another_type_is_no_key(spark):
    builder = StreamsBuilder()
    builder.stream("in", key=Raw("user"), value=Json(VALUE)).to("out", key="on", value=Json())
    with pytest.raises(TopologyException, match=r"writes column 'on' \(boolean\) as the message key.*cast it first"):
        TopologyTestDriver(builder.build(), spark=spark)


def test_a_key_that_is_not_there_is_refused(spark):
    builder = StreamsBuilder()
    builder.stream("in", key=Raw("user"), value=Json(VALUE)).to("out", key="price", value=Json())
    with pytest.raises(TopologyException, match="writes column 'price', but the columns are"):
        TopologyTestDriver(builder.build(), spark=spark)
