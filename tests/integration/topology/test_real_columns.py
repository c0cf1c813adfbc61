"""What pipelines make of Columns, beside PySpark's own DataFrames, and in every process alike."""

import subprocess
import sys

import pandas as pd
import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = pytest.mark.integration

VALUE = "carrier string, origin string, delay int, time timestamp"


@pytest.fixture
def rows(spark):
    row = ("Jfk", "Aa", "b", 3, None)
    return spark.createDataFrame([row], f"message string, {VALUE}").select(
        "carrier", "origin", "delay", "time", "message"
    )


def stream():
    return StreamsBuilder().stream("t", key=String("message"), value=Json(VALUE))


CHAINS = [
    lambda s: s.withColumnRenamed("message", "m").select("m", "delay"),
    lambda s: s.withColumns({"origin": F.col("message"), "message": F.col("origin")}),
    lambda s: s.selectExpr("upper(message) as message", "message as kept"),
    lambda s: s.drop("message").withColumn("message", F.col("carrier")),
    lambda s: s.withColumn("MESSAGE", F.upper("origin")),
    lambda s: s.select(F.struct("message", "delay").alias("both")).select("both.*"),
]


@pytest.mark.parametrize("chain", CHAINS)
def test_rows_are_located_by_the_columns_that_hold_the_message_key(spark, rows, chain):
    after = chain(rows)
    values = after.first().asDict()
    assert [name for name in chain(stream()).columns if name != "kafka"] == after.columns
    for name, value in values.items():
        builder = StreamsBuilder()
        chain(builder.stream("t", key=String("message"), value=Json(VALUE))).groupBy(name).count().to("counts")
        # "Jfk" is the key and occurs nowhere else; without a topic there is one sub-topology.
        assert (len(builder.build().subtopologies) == 1) == (value == "Jfk"), name


KEYS = [
    lambda: [F.upper("origin")],
    lambda: [F.window("time", "1 day")],
    lambda: [F.upper("origin"), "kafka.offset"],
    lambda: ["origin", F.hour("time")],
    lambda: ["ORIGIN", F.expr("delay % 2")],
    lambda: [F.col("delay").cast("string"), F.col("origin").isNull()],
]


@pytest.mark.parametrize("keys", KEYS)
def test_computed_grouping_keys_have_sparks_names(spark, rows, keys):
    frame = rows.selectExpr("*", "named_struct('offset', 1L) as kafka")
    assert stream().groupBy(*keys()).count().columns == frame.groupBy(*keys()).count().columns


COLUMNS = """
half = F.udf(lambda x: x / 2, "double")
columns = [F.rand(), F.uuid(), F.shuffle("a"), F.transform("a", lambda x: x + 1), half("x"), half(F.col("x") + 1)]
columns += [F.col("t").isin({"some", "of", "these", "texts"}), F.transform("b", lambda x: x == F.lit("y_1 #2"))]
builder = StreamsBuilder()
stream = builder.stream("t", key=String("k"), value=Json("a array<int>, b array<string>, x int, t string"))
stream.select("k", *[column.alias(f"c{n}") for n, column in enumerate(columns)]).to("out", value=Json())
stream.groupBy(F.upper("t").alias("u"), F.col("x") % 3).agg(F.max_by("t", "x"), F.count_if(F.col("x") > 1)).to("max")
topology = builder.build()
"""


@pytest.mark.long
def test_a_topology_is_the_same_in_every_process(spark):
    names = {"F": F, "StreamsBuilder": StreamsBuilder, "String": String, "Json": Json}
    exec(COLUMNS, names)
    here = names["topology"]
    program = f"""
from pyspark.sql import SparkSession, functions as F
from sparkrelay import Json, StreamsBuilder, String
zone = {spark.conf.get("spark.sql.session.timeZone")!r}
made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = made.config("spark.sql.session.timeZone", zone).getOrCreate()
F.transform("a", lambda x: F.upper(x)), F.col("so that counters differ")
{COLUMNS}
print("topology:", topology.fingerprint, repr(topology.describe()))
spark.stop()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=200)
    assert f"topology: {here.fingerprint} {here.describe()!r}" in done.stdout.splitlines()
    assert "rand()" in here.describe()
    assert "@" not in here.describe()


def test_arguments_of_udfs_are_shown_by_name(spark):
    @F.pandas_udf("double")
    def half(values: pd.Series) -> pd.Series:
        return values / 2

    builder = StreamsBuilder()
    rows = builder.stream("t", value=Json("delay int"))
    rows.withColumn("half", half("delay")).to("out", value=Json())
    assert "half(delay)" in builder.build().describe()
