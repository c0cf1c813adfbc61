"""Steps in words: the same for DataFrames and SQL, and others wherever rows come out otherwise."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder
from sparkrelay.topology.step_words import step_words


@pytest.fixture
def rows(builder):
    value = Json("a int, b string, time timestamp, items array<int>")
    return builder.stream("in", key=String("k"), value=value).select("k", "a", "b", "time", "items")


def said(frame):
    before = 1
    return step_words(frame._rows)[before:]


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda r, F: r.where("a > 1"), ("where a > 1",)),
        (lambda r, F: r.filter(F.col("A") > 1), ("where a > 1",)),
        (lambda r, F: r.withColumn("c", F.col("a") + 1), ("with c = a + 1",)),
        (lambda r, F: r.withColumn("a", F.col("a") + 1), ("with a = a + 1",)),
        (lambda r, F: r.withColumns({"c": F.lit(1), "d": F.upper("b")}), ("with c = 1, d = upper(b)",)),
        (lambda r, F: r.drop("time", "items"), ("drop time, items",)),
        (lambda r, F: r.withColumnRenamed("a", "odd name"), ("rename a to `odd name`",)),
        (lambda r, F: r.select("b", "a"), ("select b, a",)),
        (lambda r, F: r.select("b", F.upper("b").alias("u")), ("select b, upper(b) AS u",)),
        (lambda r, F: r.select("b", F.col("a").alias("c")), ("select b, a AS c",)),
        (lambda r, F: r.select("k", F.explode("items").alias("i")), ("explode(items) AS i", "select k, i")),
        (
            lambda r, F: r.select("*", F.explode_outer("items").alias("i")),
            ("explode(items) outer AS i",),
        ),
        (lambda r, F: r.withWatermark("time", "10 minutes"), ("withWatermark time, 10 minutes",)),
        (
            lambda r, F: r.select("k", F.window("time", "1 hour", "30 minutes")),
            ("with window = window(time, 1:00:00 every 0:30:00)", "select k, window"),
        ),
        (lambda r, F: r.alias("x"), ()),
        (lambda r, F: r.select("*"), ()),
        (lambda r, F: r.hint("broadcast"), ()),
    ],
)
def test_steps_read_like_a_program(rows, F, write, words):
    found = said(write(rows, F))
    assert [one for one in found if one != "where time IS NOT NULL"] == [*words]


def test_a_join_with_a_dataframe_says_by_what(rows, spark):
    joined = rows.join(spark.sql("SELECT 1 AS a, 'x' AS name"), "a", "left")
    assert said(joined)[0] == "LeftOuter join with a DataFrame on a = a"


def test_sql_and_dataframes_are_said_alike(builder, rows):
    by_hand = rows.where("a > 1").selectExpr("k", "upper(b) AS u")
    by_text = builder.sql("SELECT k, upper(b) AS u FROM {rows} WHERE a > 1", rows=rows)
    piped = builder.sql("FROM {rows} |> WHERE a > 1 |> SELECT k, upper(b) AS u", rows=rows)
    assert said(by_hand) == said(by_text) == said(piped) == ("where a > 1", "select k, upper(b) AS u")


def test_a_builder_that_does_the_same_says_the_same(F):
    def built():
        rows = StreamsBuilder().stream("in", key=String("k"), value=Json("a int, b string"))
        made = rows.where(F.col("a").isin({3, 1, 2})).withColumn("u", F.transform(F.split("b", ","), F.upper))
        return step_words(made._rows)

    assert built() == built()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda r, F: r.withColumnRenamed("a", "c"), lambda r, F: r.withColumn("c", F.col("a"))),
        (lambda r, F: r.drop("time", "items"), lambda r, F: r.select("b", "a", "k")),
        (lambda r, F: r.drop("time"), lambda r, F: r.select("items", "b", "a", "k")),
        (
            lambda r, F: r.withColumnRenamed("a", "c"),
            lambda r, F: r.select(F.col("a").alias("c"), "k", "b", "time", "items"),
        ),
        (
            lambda r, F: r.withColumn("c", F.col("a") + 1),
            lambda r, F: r.select((F.col("a") + 1).alias("c"), "*"),
        ),
        (lambda r, F: r.withColumn("a", F.col("a") + 1), lambda r, F: r.withColumn("c", F.col("a") + 1).drop("a")),
        (
            lambda r, F: r.select("k", F.explode("items").alias("i")),
            lambda r, F: r.select("k", F.explode_outer("items").alias("i")),
        ),
        (
            lambda r, F: r.select("k", F.explode("items").alias("i")),
            lambda r, F: r.select("k", F.explode(F.reverse("items")).alias("i")),
        ),
        (lambda r, F: r.withWatermark("time", "1 minute"), lambda r, F: r.withWatermark("time", "2 minutes")),
        (
            lambda r, F: r.withColumn("w", F.window("time", "1 hour")),
            lambda r, F: r.withColumn("w", F.window("time", "1 hour", "1 hour", "1 minute")),
        ),
        (lambda r, F: r.dropna(subset=["a"]), lambda r, F: r.dropna(subset=["b"])),
        (lambda r, F: r.dropna("any", subset=["a", "b"]), lambda r, F: r.dropna("all", subset=["a", "b"])),
        (lambda r, F: r.fillna(0), lambda r, F: r.fillna(1)),
        (lambda r, F: r.unpivot("k", ["a"], "n", "v"), lambda r, F: r.unpivot("k", ["a"], "m", "v")),
        (lambda r, F: r.replace(1, 2, "a"), lambda r, F: r.replace(1, 3, "a")),
    ],
)
def test_steps_that_do_something_else_are_said_otherwise(rows, F, one, other):
    assert said(one(rows, F)) != said(other(rows, F))
