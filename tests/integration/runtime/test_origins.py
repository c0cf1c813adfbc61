"""What columns are computed from, as Catalyst sees it: in words that are the same in every run."""

import pytest
from pyspark.sql import functions as F

from sparkrelay.runtime.compile.column_origins import computed_from

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def by_udf(rows):
    @F.udf("string")
    def cleaned(text):
        return text

    return rows.withColumn("k", cleaned(F.upper("shop")))


def salted(rows):
    return rows.withColumn("k", F.expr("cast(rand() * 10 as int)"))


LARGE = "(CAST(n AS BIGINT) > 1234567890123456789L)"
HOUR = "window(at, 1:00:00)"
CASES = {
    "as it is": (lambda s: s.where("n > 1").select("shop", F.col("n").alias("m")), "shop", None),
    "beside computed ones": (lambda s: s.withColumn("n", F.col("n") + 1).select("*", "n"), "shop", None),
    "renamed": (lambda s: s.withColumnRenamed("shop", "k"), "k", "shop"),
    "renamed there and back": (lambda s: s.withColumnRenamed("shop", "k").withColumnRenamed("k", "shop"), "shop", None),
    "under the name of another": (lambda s: s.withColumn("shop", F.col("user")), "shop", "user"),
    "a field": (lambda s: s.select("place.city"), "city", "place.`city`"),
    "computed": (lambda s: s.withColumn("k", F.upper("shop")), "k", "upper(shop)"),
    "looked for in a set": (
        lambda s: s.withColumn("k", F.col("shop").isin({"b #1", "a", "c"})),
        "k",
        "(shop IN ('a', 'b #1', 'c'))",
    ),
    "a large number": (lambda s: s.withColumn("k", F.expr("n > 1234567890123456789L")), "k", LARGE),
    "as SQL": (lambda s: s.selectExpr("lower(shop) as k", "n"), "k", "lower(shop)"),
    "in a function": (lambda s: s.transform(lambda rows: rows.withColumn("k", F.upper("shop"))), "k", "upper(shop)"),
    "over itself": (lambda s: s.withColumn("shop", F.upper("shop")), "shop", "upper(shop)"),
    "in steps": (
        lambda s: s.withColumn("n", F.col("n") + 1).withColumnRenamed("n", "m").withColumn("k", F.expr("m * 2")),
        "k",
        "(m * 2) with m = (n + 1)",
    ),
    "by a UDF": (by_udf, "k", "cleaned(upper(shop))"),
    "from an array": (lambda s: s.select(F.explode("tags").alias("tag")), "tag", "explode(tags)"),
    "at random": (salted, "k", "CAST((rand() * CAST(10 AS DOUBLE)) AS INT)"),
    "a window": (lambda s: s.withColumn("w", F.window("at", "60 minutes")), "w", HOUR),
    "a hopping window": (
        lambda s: s.select(F.window("at", "60 minutes", "30 minutes", "5 minutes")),
        "window",
        "window(at, 1:00:00 every 0:30:00 from 0:05:00)",
    ),
    "a part of a window": (
        lambda s: s.withColumn("at", F.to_timestamp("shop")).selectExpr("window(at, '1 hour') w").select("w.start"),
        "start",
        f"w.`start` with w = {HOUR}, at = to_timestamp(shop) in ZONE",
    ),
    "a window's time": (
        lambda s: s.select(F.window_time(F.window("at", "1 hour")).alias("t")),
        "t",
        f"precisetimestampconversion((precisetimestampconversion(window.`end`) - 1L)) with window = {HOUR}",
    ),
}


@pytest.fixture(scope="module")
def source(spark):
    schema = "user string, shop string, n int, at timestamp, tags array<string>, place struct<city: string>"
    return lambda: spark.createDataFrame([], schema).mapInArrow(lambda batches: batches, schema)


@pytest.mark.parametrize("case", CASES)
def test_a_column_is_computed_from(case, source, spark):
    step, name, text = CASES[case]
    text = text and text.replace("ZONE", spark.conf.get("spark.sql.session.timeZone"))
    for _ in range(2):  # the numbers of attributes and seeds are others
        rows = source()
        assert computed_from(step(rows), rows, [name], {}).get(name) == text


def test_what_is_computed_in_front_of_a_topic_goes_on_behind_it(source):
    rows = source()
    behind = {"n": "count(*)", "shop": "upper(name)"}
    for step, name, text in [
        (lambda s: s, "shop", "upper(name)"),
        (lambda s: s.withColumnRenamed("n", "k"), "k", "count(*)"),
        (lambda s: s.withColumn("k", F.col("n") * 2), "k", "(n * 2) with n = count(*)"),
    ]:
        assert computed_from(step(rows), rows, [name, "user"], behind) == {name: text}
