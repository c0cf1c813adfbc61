"""Aliases that the user gave to both sides name columns after a join, as in PySpark."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, String


@pytest.fixture
def sides(spark, builder):
    def stream(name, columns):
        return builder.stream(name, key=String("k"), value=Json(columns))

    return {
        "stream": stream("s", "a int, at timestamp").withWatermark("at", "1 day"),
        "other": stream("o", "b int, then timestamp").withWatermark("then", "1 day"),
        "table": builder.table("t", key=String("k"), value=Json("b int"), name="t"),
        "second": builder.table("u", key=String("k"), value=Json("a int, t_k string"), name="u"),
        "frame": spark.createDataFrame([("k", 1)], "k string, b int"),
    }


@pytest.mark.parametrize(
    ("left", "right", "on"),
    [
        ("stream", "table", "x.k = y.k"),
        ("stream", "other", "x.k = y.k AND then BETWEEN at AND at + INTERVAL 1 HOUR"),
        ("stream", "frame", "x.k = y.k"),
        ("second", "table", "x.k = y.k"),
        ("second", "table", "x.t_k = y.k"),
        ("second", "table", "x.a = y.b"),
    ],
)
@pytest.mark.parametrize("how", ["inner", "left"])
def test_an_alias_stays_after_a_join(sides, left, right, on, how):
    joined = sides[left].alias("x").join(sides[right].alias("y"), F.expr(on), how)
    assert joined.select("x.k", "x.a", "y.b").columns == ["k", "a", "b"]
    assert joined.where("y.b > 3").select(F.col("y.k").alias("other")).columns == ["other"]
