"""What topology believes about Columns, against PySpark's own, and the plan's steps run on real DataFrames."""

import subprocess
import sys

import pandas as pd
import pytest
from pyspark.sql import SparkSession, functions as F

from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.calls.row_steps import make_step
from sparkrelay.topology.columns import argument_text, column_path, is_column, is_star, output_name, quoted
from sparkrelay.topology.lineage import Lineage

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def spark():

    live = SparkSession.getActiveSession()
    session = live or SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    if live is None:
        session.stop()


@pytest.fixture(scope="module")
def rows(spark):
    return spark.createDataFrame([("Aa", "JFK", 3)], "carrier string, origin string, delay int").selectExpr(
        "*", "timestamp'2013-01-01 05:00:00' as time", "named_struct('key', carrier, 'b.c', origin) as kafka"
    )


def test_plain_columns_are_distinguished_from_expressions(spark, rows):

    assert is_column(F.col("a"))
    assert column_path(F.col("a")) == ("a",)
    assert column_path(F.col("kafka.key")) == ("kafka", "key")
    assert column_path(F.col("kafka.`b.c`")) == ("kafka", "b.c")
    assert column_path(F.col("a").alias("b")) == ("a",)
    assert column_path(F.expr("a")) == ("a",)
    assert is_star(F.col("*"))
    assert not is_star(F.col("kafka.*"))
    for expression in (
        F.upper("a"),
        F.lit("a"),
        F.col("a") + 1,
        F.col("a").cast("int"),
        F.expr("a as b"),
        rows.carrier,
    ):
        assert column_path(expression) is None, expression


def test_names_of_results_are_sparks_or_unknown(spark, rows):

    c = F.col
    known = [
        "carrier",
        "kafka.key",
        c("carrier"),
        c("carrier").alias("x"),
        c("kafka.`b.c`"),
        F.upper("origin"),
        F.length(F.trim("origin")),
        F.concat("origin", F.lit("b c")),
        F.date_trunc("day", "time"),
        F.substring("origin", 1, 2),
        F.round(c("delay") / 2, 1),
        F.window("time", "1 day"),
        c("delay") % 2,
        c("delay") > 1,
        F.expr("carrier as q"),
    ]
    for column in known:
        assert output_name(column) == rows.select(column).columns[0]
    unknown = [
        c("delay").cast("string"),
        c("origin").isNull(),
        (c("delay") > 1) & (c("delay") < 5),
        F.expr("delay + 1"),
    ]
    for column in unknown:
        assert output_name(column) is None, column


COLUMNS = """
half = F.udf(lambda x: x / 2, "double")
columns = [F.rand(), F.uuid(), F.shuffle("a"), F.transform("a", lambda x: x + 1), half("x"), half(F.upper("x"))]
columns += [F.col("a").isin({"some", "of", "these", "texts"}), F.transform("b", lambda x: x == F.lit("y_1 #2"))]
"""


@pytest.mark.long
def test_text_is_the_same_in_every_process(spark):
    names = {"F": F}
    exec(COLUMNS, names)
    here = [argument_text(column) for column in names["columns"]]
    program = f"""
from pyspark.sql import SparkSession, functions as F
from sparkrelay.topology.columns import argument_text
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
F.transform("a", lambda x: F.upper(x)), F.col("so that counters differ")
{COLUMNS}
print("texts:", [argument_text(column) for column in columns])
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert f"texts: {here}" in done.stdout.splitlines()
    assert "rand(seed)" in here
    assert "@" not in str(here)


def test_lineage_follows_what_spark_does(spark, rows):

    chains = [
        [("withColumnRenamed", "carrier", "c"), ("select", "c", "delay")],
        [("withColumns", {"origin": F.col("carrier"), "carrier": F.col("origin")})],
        [("selectExpr", "upper(carrier) as carrier", "carrier as kept")],
        [("select", "kafka.*")],
        [("drop", "carrier"), ("withColumn", "carrier", F.col("kafka.key"))],
        [("withColumn", "CARRIER", F.upper("origin"))],
    ]
    for chain in chains:
        lineage, after = Lineage.of_source(String("carrier"), Json("origin string")), rows
        for kind, *args in chain:
            step = make_step(kind, tuple(args), None)
            lineage, after = lineage.after(step), getattr(after, kind)(*args)
        values = after.collect()[0].asDict()
        for name, value in values.items():
            # "Aa" is the key and occurs nowhere else.
            assert (lineage.locate([quoted((name,))]) is not None) == (value == "Aa"), (chain, name)


def test_computed_grouping_keys_have_sparks_names(spark, rows):

    for keys in (
        [F.upper("origin")],
        [F.window("time", "1 day")],
        [F.upper("origin"), "kafka.key"],
        ["origin", F.hour("time")],
    ):
        builder = StreamsBuilder()
        builder.stream("t", value=Json("any string")).select("*").drop("kafka").withColumn(
            "kafka", F.upper("x")
        ).groupBy(*keys).count()
        writer, reader = builder.build().legs
        shipped = rows
        for step in writer.before[3:]:
            args = step.args if step.kind != "where" else (step.args[0],)
            shipped = getattr(shipped, step.kind)(*args)
        assert set(writer.sink.key) <= set(shipped.columns)
        assert shipped.groupBy(*reader.aggregation.keys).count().columns == rows.groupBy(*keys).count().columns


def test_arguments_of_udfs_are_shown_by_name(spark):

    @F.pandas_udf("double")
    def half(values: pd.Series) -> pd.Series:
        return values / 2

    assert argument_text(half("delay")) == "half(delay)"
