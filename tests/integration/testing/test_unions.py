"""Streams that are put together: each row comes once, and groups are of both."""

import random
from collections import Counter

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration


def pipeline():
    """Web clicks and app clicks, whose columns come in another order and under another name."""
    builder = StreamsBuilder()
    web = builder.stream("web", key=String("user"), value=Json("page string, ms long"))
    app = builder.stream("app", key=String("user"), value=Json("millis int, screen string"))
    renamed = app.select("user", F.col("millis").cast("long").alias("ms"), F.col("screen").alias("page"))
    clicks = web.where("page is not null").select("user", "page", "ms").unionByName(renamed).where("ms >= 0")
    clicks.to("clicks", value=Json())
    clicks.groupBy("page").agg(F.count("*").alias("n"), F.sum("ms").alias("total"), name="pages").to("pages")
    return builder.build()


@pytest.mark.parametrize("batch", ["record", "all"])
def test_rows_of_both_streams_are_counted_once(spark, batch):
    chosen, expected, totals = random.Random(3), [], Counter()
    with TopologyTestDriver(pipeline(), spark=spark, batch=batch, partitions=2) as driver:
        web, app = driver.create_input_topic("web"), driver.create_input_topic("app")
        clicks = driver.create_output_topic("clicks", key=String())
        for number in range(20):
            user, page, ms = f"u{chosen.randrange(4)}", chosen.choice("xyz"), chosen.randrange(-5, 50)
            if chosen.random() < 0.5:
                web.pipe_input(user, {"page": page, "ms": ms}, number)
            else:
                app.pipe_input(user, {"millis": ms, "screen": page}, number)
            if ms >= 0:
                expected.append((user, page, ms, number))
                totals[page] += ms
            if number in {7, 13}:
                driver.restart(from_changelog=number == 13)
        found = [(r.key, r.value["page"], r.value["ms"], r.timestamp) for r in clicks.read_records()]
        assert sorted(found) == sorted(expected)
        counts = Counter(page for _, page, *_ in expected)
        assert {row["page"]: (row["n"], row["total"]) for row in driver.store("pages")} == {
            page: (n, totals[page]) for page, n in counts.items()
        }


@pytest.mark.parametrize("first", ["web", "app"])
def test_nulls_inside_of_a_column_come_through_though_the_other_stream_has_none(spark, first):
    builder = StreamsBuilder()
    web = builder.stream("web", key=String("k"), value=Json("n int"))
    app = builder.stream("app", key=String("k"), value=Json("n int"))
    streams = [
        web.select("k", F.struct(F.array(F.lit(1)).alias("ns"), F.lit(1).alias("n")).alias("of")),
        app.select("k", F.struct(F.array("n").alias("ns"), F.col("n")).alias("of")),
    ]
    both = streams[0].unionByName(streams[1]) if first == "web" else streams[1].unionByName(streams[0])
    missing = F.exists("of.ns", lambda n: n.isNull()).alias("missing")
    both.repartition("k").select("k", missing, F.col("of.n").isNull().alias("null")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for name, n in (("web", None), ("app", None), ("app", 2)):
            driver.create_input_topic(name).pipe_input(name, {"n": n})
        found = [(row["k"], row["missing"], row["null"]) for row in driver.create_output_topic("out").read_rows()]
        assert found == [("web", False, False), ("app", True, True), ("app", False, False)]


def test_a_stream_can_be_put_together_with_itself_and_nulls_come_through(spark):
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", key=String("k"), value=Json("n int"))
    odd = numbers.where("n % 2 = 1").select("k", F.lit(1).alias("one"))
    rest = numbers.where("n % 2 = 0").select("k", F.lit(None).cast("int").alias("one"))
    odd.union(rest).groupBy("one").agg(F.count("*").alias("n"), F.count("one").alias("ones"), name="ones").to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("numbers")
        for n in range(5):
            topic.pipe_input("k", {"n": n})
        assert driver.store("ones") == [{"one": 1, "n": 2, "ones": 2}], "rows without a key are in no group"


@pytest.mark.parametrize(
    ("columns", "method", "message"),
    [
        (["k"], "unionByName", 'Cannot resolve column name "n" among'),
        (["k"], "union", "the same number of columns"),
        (["k", "array(n) as n"], "union", "compatible column types"),
        (["k", "array(n) as n"], "unionByName", "compatible column types"),
    ],
)
def test_streams_of_other_columns_are_refused(spark, columns, method, message):
    builder = StreamsBuilder()
    one, other = (builder.stream(name, key=String("k"), value=Json("n int")) for name in ("a", "b"))
    one, other = one.select("k", "n"), other.selectExpr(*columns)
    with pytest.raises(TopologyException, match=rf"test_unions.py:\d+: .*{message}"):
        getattr(one, method)(other)


@pytest.mark.parametrize(
    ("columns", "method", "more"),
    [
        (["n", "k"], "unionByName", {}),
        (["cast(n as string) as k", "length(k) as n"], "union", {}),
        (["K", "cast(n as bigint) as N"], "unionByName", {}),
        (["k", "cast(n as double) as other"], "union", {}),
        (["k", "cast(n as string) as n"], "union", {}),
        (["k", "n * 1.5 as n"], "unionByName", {}),
        (["k"], "unionByName", {"allowMissingColumns": True}),
        (["k", "n", "n + 1 as more"], "unionByName", {"allowMissingColumns": True}),
    ],
)
def test_columns_of_other_names_orders_and_types_are_put_together_as_by_spark_batch(spark, columns, method, more):
    builder = StreamsBuilder()
    one, other = (builder.stream(name, key=String("k"), value=Json("n int")) for name in ("a", "b"))
    both = getattr(one.select("k", "n"), method)(other.selectExpr(*columns), **more)
    both.select(F.to_json(F.struct("*")).alias("text")).to("out", value=Json())
    frame = spark.createDataFrame([("x", 1)], "k string, n int")
    wanted = getattr(frame, method)(spark.createDataFrame([("y", 2)], frame.schema).selectExpr(*columns), **more)
    assert both.dtypes == wanted.dtypes
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("a").pipe_input("x", {"n": 1})
        driver.create_input_topic("b").pipe_input("y", {"n": 2})
        rows = [row["text"] for row in driver.create_output_topic("out").read_rows()]
    assert rows == [row[0] for row in wanted.select(F.to_json(F.struct("*"))).collect()]


def test_final_rows_are_put_together_with_a_stream(spark):
    builder = StreamsBuilder()
    clicks = builder.stream("a", key=String("k"), value=Json("n int, time timestamp"))
    timed = clicks.withWatermark("time", "1 minute").groupBy(F.window("time", "1 minute"), "k")
    final = timed.agg(F.count("*").alias("n")).outputMode("append").select("k", "n")
    clicks.select("k", "n").unionByName(final).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for minute, n in ((0, 7), (0, 8), (5, 9)):
            driver.create_input_topic("a").pipe_input("x", {"n": n, "time": f"2026-01-01T00:{minute:02}:00Z"})
        assert [row["n"] for row in driver.create_output_topic("out").read_rows()] == [7, 8, 9, 2]


def test_a_window_made_before_it_is_a_window_behind_it(spark):
    builder = StreamsBuilder()
    web, app = (
        builder.stream(topic, key=String("user"), value=Json("at timestamp"))
        .withWatermark("at", "0 seconds")
        .withColumn("w", F.window("at", "10 seconds"))
        for topic in ("web", "app")
    )
    both = web.unionByName(app).withWatermark("at", "0 seconds").groupBy("user", "w").count()
    both.outputMode("append").select("user", "count").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        for topic in ("web", "app"):
            for second in (1, 30):
                driver.create_input_topic(topic).pipe_input("ada", {"at": f"2026-01-01T00:00:{second:02}Z"})
        assert driver.create_output_topic("out").read_rows() == [{"user": "ada", "count": 2}]


def test_ways_that_part_behind_dropped_duplicates_come_together_with_all_rows(spark):
    builder = StreamsBuilder()
    once = builder.stream("clicks", key=String("user"), value=Json("n int")).dropDuplicates(["user", "n"])
    odd, even = once.where("n % 2 = 1"), once.where("n % 2 = 0")
    odd.union(even).union(once.where("n > 2")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        clicks = driver.create_input_topic("clicks")
        for n in (1, 2, 3, 2, 1):
            clicks.pipe_input("ada", {"n": n})
        assert sorted(row["n"] for row in driver.create_output_topic("out").read_rows()) == [1, 2, 3, 3]


def test_ways_that_part_behind_a_join_come_together_with_each_pair_once(spark):
    builder = StreamsBuilder()
    left, right = (
        builder.stream(topic, key=String("k"), value=Json(f"{topic} int, {topic}_at timestamp")).withWatermark(
            f"{topic}_at", "1 minute"
        )
        for topic in ("a", "b")
    )
    both = left.join(right, "k", within="10 seconds")
    both.where("a > 1").select("a").union(both.where("b > 1").selectExpr("b as a")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for topic, n in (("a", 2), ("b", 3)):
            driver.create_input_topic(topic).pipe_input("k", {topic: n, f"{topic}_at": "2026-01-01T00:00:00Z"})
        assert sorted(row["a"] for row in driver.create_output_topic("out").read_rows()) == [2, 3]
