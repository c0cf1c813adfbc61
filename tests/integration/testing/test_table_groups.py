"""Groups of a table's rows, on the test driver and beside Spark batch over the newest rows."""

import random

import pytest
from pyspark.sql import Window, functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

USER = Json("country string, age long, score double")


def users(builder):
    return builder.table("users", key=String("user"), value=USER)


def newest(topic):
    rows = {record.key: record.value for record in topic.read_records()}
    return [row for row in rows.values() if row is not None]


def test_what_a_row_was_is_taken_out_of_its_group(spark):
    builder = StreamsBuilder()
    users(builder).groupBy("country").agg(
        F.count("*").alias("n"), F.sum("age").alias("sum"), F.avg("score").alias("avg")
    ).to("countries", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("users"), driver.create_output_topic("countries", key=String())

        def put(user, **value):
            topic.pipe_input(user, value or None)
            return [
                (
                    record.key,
                    *(() if record.value is None else (record.value.get(name) for name in ("n", "sum", "avg"))),
                )
                for record in out.read_records()
            ]

        assert put("ada", country="UK", age=30, score=1.0) == [("UK", 1, 30, 1.0)]
        assert put("bob", country="UK", age=None, score=3.0) == [("UK", 2, 30, 2.0)]
        assert put("bob", country="UK", age=None, score=3.0) == [], "nothing has changed"
        assert put("cid", country=None, age=1) == [], "it belongs to no group"
        assert sorted(put("ada", country="NO", age=31, score=None)) == [("NO", 1, 31, None), ("UK", 1, None, 3.0)]
        driver.restart(from_changelog=True)
        assert put("bob") == [("UK",)], "its last row is gone"
        assert put("ada", country="NO", age=7, score=2.0) == [("NO", 1, 7, 2.0)]
        assert put("cid") == []
        held = driver.store("users-table-by-country")
        assert [(row["country"], row["n"], row["sum"], row["avg"]) for row in held] == [("NO", 1, 7, 2.0)]


@pytest.mark.long
@pytest.mark.parametrize("seed", first_of([1, 2]))
def test_spark_batch_groups_the_newest_rows_alike(spark, seed):
    draw = random.Random(seed)
    rows = [
        (
            draw.choice("abcdefgh"),
            draw.choice([None, ("UK", draw.randrange(9), 0.5), ("NO", None, 1.5), (None, 3, 2.0), ("SE", 4, None)]),
        )
        for _ in range(200)
    ]
    aggregates = [
        F.count("*").alias("n"),
        F.count("age").alias("ages"),
        F.sum("age").alias("sum"),
        F.avg("age").alias("avg"),
        F.sum("score").alias("scores"),
        F.stddev_pop("age").alias("spread"),
        F.sort_array(F.collect_set("age")).alias("set"),
        F.mode("age", True).alias("mode"),
        F.median("age").alias("median"),
        F.expr("percentile(score, array(0.1, 0.8))").alias("percentiles"),
        F.approx_percentile("age", 0.5).alias("approx"),
        F.count_distinct("age", "score").alias("pairs"),
        F.sum_distinct("age").alias("distinct_sum"),
    ]
    kind = F.when(F.col("age") > 4, "old").otherwise("young").alias("kind")
    builder = StreamsBuilder()
    table = users(builder)
    table.groupBy("country").agg(*aggregates).to("countries", value=Json())
    by_kind = table.where("score is not null").groupBy(kind, "country").agg(*aggregates)
    by_kind.to("kinds", value=Json())
    # A table of a table of a table.
    by_kind.groupBy("kind").agg(F.count("*").alias("countries"), F.sum("n").alias("n")).to("sizes", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("users")
        outs = [driver.create_output_topic(name) for name in ("countries", "kinds", "sizes")]
        cuts = sorted(draw.sample(range(200), 8))
        for first, end in zip([0, *cuts], [*cuts, 200], strict=True):
            for user, value in rows[first:end]:
                named = None if value is None else dict(zip(("country", "age", "score"), value, strict=True))
                topic.pipe_input(user, named)
            driver.process()
            if draw.random() < 0.4:
                driver.restart(from_changelog=draw.random() < 0.5)
        ours = [newest(out) for out in outs]
    left = [(user, *value) for user, value in dict(rows).items() if value is not None]
    frame = spark.createDataFrame(left, "user string, country string, age long, score double")
    # Of the topic's key there is nothing but the country, and without a key a row belongs to no group.
    kinds = frame.where("score is not null and country is not null").groupBy(kind, "country").agg(*aggregates)
    wanted = [
        frame.where("country is not null").groupBy("country").agg(*aggregates),
        kinds,
        kinds.groupBy("kind").agg(F.count("*").alias("countries"), F.sum("n").alias("n")),
    ]

    def texts(rows, names):
        return sorted(
            str([round(item, 6) if isinstance(item, float) else item for item in map(row.get, names)]) for row in rows
        )

    for own, grouped in zip(ours, wanted, strict=True):
        assert texts(own, grouped.columns) == texts([row.asDict() for row in grouped.collect()], grouped.columns)


def test_a_table_is_grouped_as_it_is(spark):
    builder = StreamsBuilder()
    table = users(builder)
    table.groupBy("country", "age").agg((F.sum("score") / F.count("*")).alias("mean")).to("means", value=Json())
    # The same table again: one way keeps it, the other goes on from its changes.
    table.groupBy("age", "country").count().to("counts", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("users")
        means, counts = (driver.create_output_topic(name) for name in ("means", "counts"))
        for user, age, score in (("ada", 30, 1.0), ("bob", 30, 4.0), ("ada", 31, 2.0)):
            topic.pipe_input(user, {"country": "UK", "age": age, "score": score})
        driver.restart(from_changelog=True)
        topic.pipe_input("bob", None)
        assert [(row["age"], row["mean"]) for row in newest(means)] == [(31, 2.0)]
        assert [(row["age"], row["count"]) for row in newest(counts)] == [(31, 1)]


def test_the_first_rows_of_each_key_are_grouped(spark):
    builder = StreamsBuilder()
    bids = builder.stream("bids", key=String("bidder"), value=Json("auction long, seller string, price long"))
    best = F.row_number().over(Window.partitionBy("auction").orderBy(F.desc("price")))
    winning = bids.withColumn("n", best).where("n = 1")
    winning.groupBy("seller").agg(F.avg("price").alias("avg")).to("sellers", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("bids"), driver.create_output_topic("sellers")
        for auction, seller, price in ((1, "s", 5), (1, "s", 9), (2, "s", 1), (1, "s", 7), (2, "s", 3)):
            topic.pipe_input("x", {"auction": auction, "seller": seller, "price": price})
        assert [row["avg"] for row in out.read_rows()][-1] == 6.0


@pytest.mark.parametrize(
    ("aggregate", "message"),
    [
        (
            F.any_value,
            "any_value(age) is not supported for the rows of a table: when a row changes, its old",
        ),
        (lambda age: F.first(age).alias("m"), "first(age) is not supported for the rows of a table"),
        (lambda age: F.last(age) + 1, "last(age) is not supported for the rows of a table"),
        (F.collect_list, "or put to_stream() before groupBy()"),
        (F.listagg, "DISTINCT values, collect_set, mode, median or percentile"),
        (F.approx_count_distinct, "approx_count_distinct(age) is not supported for the rows of a table"),
        (F.first, "first(age) is not supported for the rows of a table"),
    ],
)
def test_aggregates_that_cannot_take_rows_out_are_refused(spark, aggregate, message):
    builder = StreamsBuilder()
    users(builder).groupBy("country").agg(aggregate("age")).to("out")
    with pytest.raises(TopologyException, match="test_table_groups.py:") as refused:
        TopologyTestDriver(builder.build(), spark=spark)
    assert message in str(refused.value)


def test_sessions_of_a_table_are_refused(spark):
    table = StreamsBuilder().table("users", key=String("user"), value=Json("country string, time timestamp"))
    for more in ((), ("country",)):
        grouped = table.groupBy(*more, F.session_window("time", "5 minutes"))
        with pytest.raises(
            TopologyException, match=r"test_table_groups.py:\d+: groupBy\(\) of a table takes no F.session"
        ):
            grouped.count()
