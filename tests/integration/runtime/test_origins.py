"""What columns are computed from, back to the topics: in words that are the same in every run."""

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def by_udf(rows):
    @F.udf("string")
    def cleaned(text):
        return text

    return rows.withColumn("k", cleaned(F.upper("shop")))


def salted(rows):
    return rows.withColumn("k", F.expr("cast(rand() * 10 as int)"))


LARGE = "(CAST(n AS bigint) > bigint '1234567890123456789')"
HOUR = "window(at, 1:00:00)"
CONVERTED = "fromType=timestamp, toType=bigint) - bigint '1', fromType=bigint, toType=timestamp)"


def words(frame, name):
    """Return what a column is computed from."""
    rows = frame._rows
    return rows.words(next(column.number for column in rows.columns if column.name == name))


CASES = {
    "as it is": (lambda s: s.where("n > 1").select("shop", F.col("n").alias("m")), "shop", "shop"),
    "beside computed ones": (lambda s: s.withColumn("n", F.col("n") + 1).select("*", "n"), "shop", "shop"),
    "renamed": (lambda s: s.withColumnRenamed("shop", "k"), "k", "shop"),
    "renamed there and back": (
        lambda s: s.withColumnRenamed("shop", "k").withColumnRenamed("k", "shop"),
        "shop",
        "shop",
    ),
    "under the name of another": (lambda s: s.withColumn("shop", F.col("user")), "shop", "user"),
    "a field": (lambda s: s.select("place.city"), "city", "place.city"),
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
        "((n + 1) * 2)",
    ),
    "by a UDF": (by_udf, "k", "cleaned(upper(shop))"),
    "from an array": (lambda s: s.select(F.explode("tags").alias("tag")), "tag", "explode(tags)"),
    "at random": (salted, "k", "CAST(rand() * CAST(10 AS double) AS int)"),
    "a window": (lambda s: s.withColumn("w", F.window("at", "60 minutes")), "w", HOUR),
    "a hopping window": (
        lambda s: s.select(F.window("at", "60 minutes", "30 minutes", "5 minutes")),
        "window",
        "window(at, 1:00:00 every 0:30:00 from 0:05:00)",
    ),
    "a part of a window": (
        lambda s: s.withColumn("at", F.to_timestamp("shop")).selectExpr("window(at, '1 hour') w").select("w.start"),
        "start",
        "window(to_timestamp(shop, dataType=timestamp) in ZONE, 1:00:00).start",
    ),
    "a window's time": (
        lambda s: s.select(F.window_time(F.window("at", "1 hour")).alias("t")),
        "t",
        f"precise_timestamp_conversion(precise_timestamp_conversion({HOUR}.end, {CONVERTED}",
    ),
}


SCHEMA = "shop string, n int, at timestamp, tags array<string>, place struct<city: string>"


def source():
    return StreamsBuilder().stream("orders", key=String("user"), value=Json(SCHEMA))


@pytest.mark.parametrize("case", CASES)
def test_a_column_is_computed_from(case, spark):
    step, name, text = CASES[case]
    text = text.replace("ZONE", spark.conf.get("spark.sql.session.timeZone"))
    for _ in range(2):  # the numbers of attributes and seeds are others
        assert words(step(source()), name) == text


@pytest.mark.parametrize(
    ("step", "name", "text"),
    [
        (lambda s: s, "name", "upper(shop)"),
        (lambda s: s.withColumnRenamed("name", "k"), "k", "upper(shop)"),
        (lambda s: s.withColumn("k", F.col("n") * 2), "k", "((n + 1) * 2)"),
    ],
)
def test_what_is_computed_in_front_of_a_topic_goes_on_behind_it(step, name, text, spark):
    rows = source().withColumn("name", F.upper("shop")).withColumn("n", F.col("n") + 1).repartition("name")
    assert words(step(rows), name) == text
    table = step(rows).groupBy(name).count()
    assert words(table.withColumn("again", F.lower(F.col(name).cast("string"))), name) == text


def of_json(schema="a string, n int", of="shop", column=None, **options):
    def read(rows):
        return rows.withColumn("j", F.from_json(of, schema, options)).withColumn("k", F.expr(column or "j.a"))

    return read


def of_csv(schema):
    return lambda rows: rows.select(F.from_csv("shop", schema).alias("j")).withColumn("k", F.expr("j.a"))


NUMBER = "cast(j.n as string)"
MAP = {"schema": "map<string, int>", "column": "element_at(j, 'a')"}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (of_json(), of_json(of="user")),
        (of_json(), of_json(mode="FAILFAST")),
        (of_json(column=NUMBER), of_json("a string, n string", column=NUMBER)),
        (of_json(column="j is null"), of_json("a string, n long", column="j is null")),
        (of_json(**MAP), of_json(**MAP, of="user")),
        (of_json(**MAP), of_json(**{**MAP, "schema": "map<string, bigint>"})),
        (of_csv("a string, b string"), of_csv("b string, a string")),
    ],
)
def test_what_is_read_from_a_text_in_another_way_is_another_column(spark, first, second):
    assert words(first(source()), "k") != words(second(source()), "k")


@pytest.mark.parametrize("column", ["j.a", NUMBER, "upper(j.a)"])
def test_more_fields_of_json_make_no_difference_to_the_others(spark, column):
    few, more = of_json(column=column), of_json("x int, n int, a string, y array<string>", column=column)
    assert words(few(source()), "k") == words(more(source()), "k")
