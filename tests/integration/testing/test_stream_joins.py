"""Joins of two streams on the test driver: what Kafka Streams' tests say, and beside Spark batch over the same rows."""

import datetime as dt
import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, Long, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

CLICK = Json("page string, n long, at timestamp")
VIEW = Json("ad string, seen timestamp")
WAYS = ["inner", "left", "right", "full", "left_semi", "left_anti"]
ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds):
    return (ZERO + dt.timedelta(seconds=seconds)).isoformat()


def two(builder, delay="0 seconds", views_key=None):
    clicks = builder.stream("clicks", key=String("user"), value=CLICK).withWatermark("at", delay)
    views = builder.stream("views", key=views_key or String("user"), value=VIEW).withWatermark("seen", delay)
    return clicks, views


def pipeline(*how, within):
    """Join clicks with views by the user, and write what comes out."""
    builder = StreamsBuilder()
    clicks, views = two(builder)
    clicks.join(views, "user", *how, within=within).to("out", value=Json())
    return builder.build()


def click(driver, user, seconds, n=0, page="p"):
    driver.create_input_topic("clicks").pipe_input(user, {"page": page, "n": n, "at": at(seconds)}, int(seconds * 1000))


def view(driver, user, seconds, ad="a"):
    driver.create_input_topic("views").pipe_input(user, {"ad": ad, "seen": at(seconds)}, int(seconds * 1000))


def joined(topic):
    return [
        (record.key, record.value.get("n"), record.value.get("ad"), record.timestamp // 1000)
        for record in topic.read_records()
    ]


def out_of(driver):
    return driver.create_output_topic("out", key=String())


def test_rows_go_together_whose_times_are_near(spark):
    with TopologyTestDriver(pipeline(within="10 seconds"), spark=spark) as driver:
        out = out_of(driver)
        click(driver, "ada", 0, 1)
        view(driver, "ada", 5, "x")
        view(driver, "bob", 6, "y")
        view(driver, "ada", 11, "z")
        click(driver, "ada", 12, 2)
        assert joined(out) == [("ada", 1, "x", 5), ("ada", 2, "x", 12), ("ada", 2, "z", 12)]
        driver.restart(from_changelog=True)
        click(driver, "bob", 16, 3)
        assert joined(out) == [("bob", 3, "y", 16)]
        with pytest.raises(ValueError, match="rows of a join"):
            driver.store("clicks-join-views")


def test_a_time_range_may_be_shorter_than_a_millisecond(spark):
    builder = StreamsBuilder()
    clicks, views = two(builder, delay="1 hour")
    clicks.join(views, "user", within="500 microseconds").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        out = out_of(driver)
        click(driver, "ada", 0.0015, 1)
        view(driver, "ada", 0.002, "near")
        view(driver, "ada", 0.002001, "far")
        view(driver, "ada", 0.001, "near too")
        assert [row[2] for row in joined(out)] == ["near", "near too"]


def test_a_join_of_more_topics_than_a_store_can_have_is_refused(spark):
    builder = StreamsBuilder()
    many = builder.stream([f"clicks-{number}" for number in range(1000)], key=String("user"), value=CLICK)
    views = builder.stream("views", key=String("user"), value=VIEW).withWatermark("seen", "1 hour")
    many.withWatermark("at", "1 hour").join(views, "user", within="1 second").to("out", value=Json())
    with (
        pytest.raises(TopologyException, match="its streams read 1001 topics; 1000 are the most"),
        TopologyTestDriver(builder.build(), spark=spark),
    ):
        pass


def test_rows_that_find_nothing_go_out_alone_when_their_time_is_over(spark):
    with TopologyTestDriver(pipeline("full", within="10 seconds"), spark=spark) as driver:
        out = out_of(driver)
        click(driver, "ada", 0, 1)
        view(driver, "bob", 1, "y")
        click(driver, None, 2, 7)
        assert joined(out) == [(None, 7, None, 2)]
        driver.restart(from_changelog=True)
        click(driver, "cid", 20, 2)
        view(driver, "cid", 20, "x")
        assert sorted(joined(out)) == [("ada", 1, None, 0), ("bob", None, "y", 1), ("cid", 2, "x", 20)]


@pytest.mark.parametrize("how", WAYS)
def test_as_spark_batch_joins_them(spark, how):
    builder = StreamsBuilder()
    clicks, views = two(builder, delay="1 hour", views_key=Long("number"))
    right = views.select(F.element_at(F.split("ad", "-"), 1).alias("user"), "ad", "seen")
    clicks.where("n >= 0").join(right, "user", how, within="7 seconds").to("out", value=Json())
    rng = random.Random(how)
    left = [(rng.choice("abc"), rng.randint(-1, 50), rng.randint(0, 60)) for _ in range(60)]
    seen = [(f"{rng.choice('abcd')}-{number}", rng.randint(0, 60)) for number in range(60)]
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        out = out_of(driver)
        driver.batch = "all"
        for number in range(60):
            click(driver, left[number][0], left[number][2], left[number][1])
            view(driver, number, seen[number][1], seen[number][0])
            if number in {20, 41}:
                driver.restart(from_changelog=number == 41)
        click(driver, "z", 100_000)
        view(driver, 0, 100_000, "y-0")
        click(driver, "z", 200_000)
        view(driver, 0, 200_000, "y-0")
        ours = [row for row in joined(out) if row[0] not in {"y", "z"}]
    frames = (
        spark.createDataFrame([row for row in left if row[1] >= 0], "user string, n long, at long"),
        spark.createDataFrame([(ad[0], ad, time) for ad, time in seen], "user string, ad string, seen long"),
    )
    condition = [frames[0].user == frames[1].user, F.abs(F.col("at") - F.col("seen")) <= 7]
    rows = frames[0].join(frames[1], condition, how)
    user = frames[0].user if how in {"left_semi", "left_anti"} else F.coalesce(frames[0].user, frames[1].user)
    wanted = rows.select(user, "n", "ad" if "ad" in rows.columns else F.lit(None)).collect()
    assert sorted((row[:3] for row in ours), key=repr) == sorted(map(tuple, wanted), key=repr)


@pytest.mark.parametrize("how", WAYS)
def test_a_condition_as_spark_batch_has_it(spark, how):
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", key=String("user"), value=CLICK).withWatermark("at", "1 hour")
    views = builder.stream("views", key=String("viewer"), value=VIEW).withWatermark("seen", "1 hour")
    if how == "left":
        on = (F.col("viewer") == F.col("user")) & F.col("seen").between(
            F.col("at") - F.expr("interval 3 seconds"), F.col("at") + dt.timedelta(seconds=7)
        )
    elif how == "right":
        on = [
            F.col("user") == F.col("viewer"),
            F.expr("seen >= at - interval 3 seconds and seen <= at + interval 7 seconds"),
        ]
    else:
        text = "viewer = user and seen between at - interval 3 seconds and at + interval 7 seconds"
        on = F.expr(text if how != "inner" else f"{text} and n % 2 = length(ad) % 2")
    clicks.join(views, on, how).to("out", value=Json())
    rng = random.Random(how)
    left = [(rng.choice(["a", "b", "c", None]), n, rng.randint(0, 60)) for n in range(60)]
    right = [(rng.choice(["a", "b", "d", None]), f"{number}", rng.randint(0, 60)) for number in range(60)]
    batch = spark.createDataFrame(
        [(u, "p", n, ZERO + dt.timedelta(seconds=t)) for u, n, t in left],
        "user string, page string, n long, at timestamp",
    ).join(
        spark.createDataFrame(
            [(u, ad, ZERO + dt.timedelta(seconds=t)) for u, ad, t in right], "viewer string, ad string, seen timestamp"
        ),
        on,
        how,
    )
    columns = [name for name in ("user", "n", "viewer", "ad") if name in batch.columns]
    wanted = [tuple(row) for row in batch.select(*columns).collect()]
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        out = out_of(driver)
        driver.batch = "all"
        clicked, seen = driver.create_input_topic("clicks"), driver.create_input_topic("views")
        clicked.pipe_rows([(user, {"page": "p", "n": n, "at": at(time)}, time * 1000) for user, n, time in left[:30]])
        seen.pipe_rows([(user, {"ad": ad, "seen": at(time)}, time * 1000) for user, ad, time in right])
        driver.restart(from_changelog=True)
        clicked.pipe_rows([(user, {"page": "p", "n": n, "at": at(time)}, time * 1000) for user, n, time in left[30:]])
        for time in (3600 * 5, 3600 * 9):
            click(driver, "end", time, -1)
            view(driver, "end", time, "end")
        rows = [tuple(record.value.get(name) for name in columns) for record in out.read_records()]
        assert sorted((row for row in rows if "end" not in row), key=str) == sorted(wanted, key=str)


def test_one_stream_may_have_to_come_first(spark):
    with TopologyTestDriver(pipeline("left", within=("0 seconds", "10 seconds")), spark=spark) as driver:
        out = out_of(driver)
        view(driver, "ada", 0, "x")
        click(driver, "ada", 1, 1)
        view(driver, "ada", 11, "y")
        assert joined(out) == [("ada", 1, "y", 11)]
        click(driver, "ada", 20, 2)
        click(driver, "bob", 31, 3)
        view(driver, "bob", 31, "z")
        assert sorted(joined(out)) == [("ada", 2, None, 20), ("bob", 3, "z", 31)]


@pytest.mark.long
def test_several_ways_out_of_a_join_have_the_same_rows(spark):
    builder = StreamsBuilder()
    clicks, views = two(builder, delay="1 hour")
    both = clicks.join(views, "user", "left", within="7 seconds").withColumn("m", F.col("n") * 2)
    both.where("ad is not null").to("out", value=Json())
    both.select("user", "n", "m").to("all", value=Json())
    (
        both.where("ad is not null")
        .withWatermark("at", "1 hour")
        .groupBy("user", F.window("at", "10 seconds"))
        .agg(F.sum("m").alias("m"))
        .outputMode("append")
        .to("windows", key=String("user"), value=Json())
    )
    rng = random.Random(5)
    left = [(rng.choice("abc"), number, rng.randint(0, 60)) for number in range(40)]
    right = [(rng.choice("abcd"), f"ad-{number}", rng.randint(0, 60)) for number in range(40)]
    pairs = [
        (user, n, ad, time)
        for user, n, time in left
        for other, ad, seen in right
        if other == user and abs(time - seen) <= 7
    ]
    sums = {}
    for user, n, _, time in pairs:
        sums[user, time // 10] = sums.get((user, time // 10), 0) + 2 * n
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        out, every, windows = (driver.create_output_topic(name, key=String()) for name in ("out", "all", "windows"))
        for number, ((user, n, time), (other, ad, seen)) in enumerate(zip(left, right, strict=True)):
            click(driver, user, time, n)
            view(driver, other, seen, ad)
            if number == 20:
                driver.restart(from_changelog=True)
        click(driver, "end", 3600 * 10, 1000)
        view(driver, "end", 3600 * 10, "end")
        click(driver, "end", 3600 * 20, 1001)
        view(driver, "end", 3600 * 20, "end")
        rows = [(record.key, record.value["n"], record.value["ad"]) for record in out.read_records()]
        assert sorted(row for row in rows if row[0] != "end") == sorted(pair[:3] for pair in pairs)
        alone = [(user, n) for user, n, _ in left if n not in {pair[1] for pair in pairs}]
        found = [(record.key, record.value["n"], record.value["m"]) for record in every.read_records()]
        wanted = [(user, n, 2 * n) for user, n in [*((pair[0], pair[1]) for pair in pairs), *alone]]
        assert sorted(row for row in found if row[0] != "end") == sorted(wanted)
        final = [(record.key, record.value["m"]) for record in windows.read_records()]
        assert sorted(row for row in final if row[0] != "end") == sorted((user, m) for (user, _), m in sums.items())


@pytest.mark.long
def test_a_stream_may_be_joined_with_itself_and_with_a_third(spark):
    builder = StreamsBuilder()
    clicks, views = two(builder)
    pages = clicks.select("user", F.col("page").alias("other"), F.col("at").alias("later")).withWatermark(
        "later", "0 seconds"
    )
    both = clicks.select("user", "n", "page", "at").join(pages, "user", within="1 second")
    third = both.where("page < other").withWatermark("at", "0 seconds").join(views, "user", within="5 seconds")
    third.groupBy("user").agg(F.count("*").alias("n"), F.max("ad").alias("ad")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        out = out_of(driver)
        click(driver, "ada", 0, page="a")
        click(driver, "ada", 1, page="b")
        click(driver, "ada", 1, page="c")
        view(driver, "ada", 3, "x")
        view(driver, "ada", 7, "y")
        assert joined(out)[-1][:3] == ("ada", 3, "x")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda c, v: c.join(v, "page", within="1 second"), "column `page` cannot be resolved on the right side"),
        (
            lambda c, v: c.join(v.withColumn("n", F.lit(1)), "user", within="1 second").to("out"),
            r"to\('out'\) writes two columns 'n'; give one of them another name",
        ),
        (lambda c, v: c.join(v, "user", within="soon"), "within=.*'soon'.* of join.*Unable to parse 'soon'"),
        (lambda c, v: c.withWatermark("n", "1 hour"), '`n` has the invalid type "BIGINT", but expected "TIMESTAMP"'),
        (
            lambda c, v: c.drop("at").join(v, "user", within="1 second"),
            r'put withWatermark\("time", "10 minutes"\) before it, on the left stream too',
        ),
    ],
)
def test_what_cannot_be_joined_is_refused(spark, build, message):
    builder = StreamsBuilder()
    clicks, views = two(builder)

    def topology():
        build(clicks, views)
        return builder.build()

    with pytest.raises(TopologyException, match=rf"(?s)test_stream_joins.py:\d+: .*{message}"):
        TopologyTestDriver(topology(), spark=spark)


@pytest.mark.parametrize(
    "select",
    [
        lambda c, v, both: both.select("user", c["n"], v["n"].alias("m")),
        lambda c, v, both: (
            both.withColumnRenamed("user", "USER").selectExpr("user", "C.n", "V.N as M").toDF("user", "n", "m")
        ),
    ],
    ids=["of the sides", "of their names"],
)
def test_both_streams_may_have_a_column_of_one_name(spark, select):
    builder = StreamsBuilder()
    clicks, views = two(builder)
    clicks, views = clicks.alias("c"), views.withColumn("n", F.length("ad")).alias("v")
    select(clicks, views, clicks.join(views, "USER", within="1 second")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        click(driver, "ada", 0, 7)
        view(driver, "ada", 1, "ad-1")
        view(driver, "ada", 2, "ad-10")
        assert driver.create_output_topic("out").read_rows() == [{"user": "ada", "n": 7, "m": 4}]


def test_columns_of_other_types_are_compared_as_spark_compares_them(spark):
    builder = StreamsBuilder()
    clicks, views = two(builder)
    numbers = views.select(F.length("ad").alias("user"), "ad", "seen")
    clicks.join(numbers, "user", within="1 second").select("user", "n", "ad").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        click(driver, "2", 0, 7)
        click(driver, "3", 0, 8)
        view(driver, "ada", 0, "ad")
        frame = spark.createDataFrame([("2", 7), ("3", 8)], "user string, n long")
        other = spark.createDataFrame([(2, "ad")], "user int, ad string")
        wanted = [row.asDict() for row in frame.join(other, "user").collect()]
        assert driver.create_output_topic("out").read_rows() == wanted


@pytest.mark.parametrize("read", ["alone", "grouped"])
def test_what_marks_the_rows_of_one_stream_is_null_where_the_other_ones_go_out_alone(spark, read):
    builder = StreamsBuilder()
    clicks, views = two(builder)
    rows = clicks.join(views.withColumn("seen_it", F.lit(True)), "user", "left", within="10 seconds")
    if read == "alone":
        rows.select("n", F.col("seen_it").isNotNull().alias("hit")).to("out", value=Json())
    else:
        rows.groupBy("n").agg(F.count("seen_it").alias("hits")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        click(driver, "ada", 0, 1)
        view(driver, "ada", 1)
        click(driver, "bob", 2, 2)
        click(driver, "cid", 100, 3)
        view(driver, "cid", 100)
        found = {
            row["n"]: int(row.get("hit", row.get("hits"))) for row in driver.create_output_topic("out").read_rows()
        }
        assert found == {1: 1, 2: 0, 3: 1}


@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_a_stream_joined_with_itself_by_times_of_one_name_has_a_watermark_of_each(spark, how):
    builder = StreamsBuilder()
    trips = builder.stream("trips", key=String("user"), value=Json("n int, begins timestamp, ends timestamp"))
    begun = trips.select("user", "n", F.col("begins").alias("at")).withWatermark("at", "0 seconds")
    over = trips.select("user", F.col("ends").alias("at")).withWatermark("at", "0 seconds")
    begun.join(over, "user", how, within="10 seconds").select("n").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("trips")
        for n, (begins, ends) in enumerate(((0, 5000), (100, 105), (200, 5200), (9000, 9001))):
            topic.pipe_input(f"u{n}", {"n": n, "begins": at(begins), "ends": at(ends)})
        topic.pipe_input("z", {"n": 9, "begins": at(99_000), "ends": at(99_001)})
        found = [row["n"] for row in driver.create_output_topic("out").read_rows()]
        assert sorted(found) == ([1, 3, 9] if how == "left_semi" else [0, 2])


def test_days_of_a_condition_need_a_zone_where_each_has_24_hours(spark):
    """Spark adds days of the calendar, of which one has 23 hours in New York, and one 25."""

    def joined_by(most, **more):
        builder = StreamsBuilder()
        clicks = builder.stream("clicks", key=String("user"), value=CLICK).withWatermark("at", "1 hour")
        views = builder.stream("views", key=String("viewer"), value=VIEW).withWatermark("seen", "1 hour")
        on = F.expr("viewer = user" + (f" and seen between at and at + interval {most}" if most else ""))
        clicks.join(views, on, **more).to("out", value=Json())
        with TopologyTestDriver(builder.build(), spark=spark):
            pass

    name = "spark.sql.session.timeZone"
    before = spark.conf.get(name)
    try:
        spark.conf.set(name, "America/New_York")
        for most in ("1 day", "24 hours", "1 week"):
            with pytest.raises(TopologyException, match=r"America/New_York, a day may have 23 or 25 hours"):
                joined_by(most)
        joined_by("23 hours")
        joined_by("", within=("0 seconds", "1 day"))
        spark.conf.set(name, "+02:00")
        joined_by("1 day")
    finally:
        spark.conf.set(name, before)


def test_a_group_behind_it_knows_what_its_key_was_computed_from_in_front(spark):
    def contents(left, right):
        builder = StreamsBuilder()
        clicks, views = two(builder)
        both = clicks.withColumn("p", left("page")).join(
            views.withColumn("a", right("ad")), "user", within="10 seconds"
        )
        both.groupBy("p", "a").agg(F.count("*").alias("n"), name="counts").to("out", value=Json())
        with TopologyTestDriver(builder.build(), spark=spark) as driver:
            return driver._plans.state("counts").contents

    assert len({contents(F.upper, F.upper), contents(F.lower, F.upper), contents(F.upper, F.lower)}) == 3
