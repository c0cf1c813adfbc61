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
def test_what_is_read_from_a_text_in_another_way_is_another_column(source, first, second):
    rows = source()
    assert computed_from(first(rows), rows, ["k"], {}) != computed_from(second(rows), rows, ["k"], {})


@pytest.mark.parametrize("column", ["j.a", NUMBER, "upper(j.a)"])
def test_more_fields_of_json_make_no_difference_to_the_others(source, column):
    rows = source()
    few, more = of_json(column=column), of_json("x int, n int, a string, y array<string>", column=column)
    assert computed_from(few(rows), rows, ["k"], {}) == computed_from(more(rows), rows, ["k"], {})
