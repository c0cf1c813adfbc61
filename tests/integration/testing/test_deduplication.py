"""Streams without duplicates on the test driver: what Spark's suites say, and beside Spark batch over the same rows."""

import datetime as dt
import random

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

CLICK = Json("page string, n long, at timestamp")
ZERO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def clicks_of(builder, delay=None):
    clicks = builder.stream("clicks", key=String("user"), value=CLICK)
    return clicks if delay is None else clicks.withWatermark("at", delay)


def click(driver, user, seconds, n=0, page="p"):
    value = {"page": page, "n": n, "at": (ZERO + dt.timedelta(seconds=seconds)).isoformat()}
    driver.create_input_topic("clicks").pipe_input(user, value, int(seconds * 1000))


def driven(spark, build, delay=None, **options):
    builder = StreamsBuilder()
    build(clicks_of(builder, delay)).to("out", value=Json())
    return TopologyTestDriver(builder.build(), spark=spark, **options)


def numbers(driver):
    return [row["n"] for row in driver.create_output_topic("out").read_rows()]


def test_the_first_row_of_each_key_goes_on_as_it_is(spark):
    with driven(spark, lambda clicks: clicks.dropDuplicates(["user"], name="users")) as driver:
        out = driver.create_output_topic("out", key=String())
        for n, user in enumerate(["ada", "bob", "ada", None, "cid", "bob"]):
            click(driver, user, n, n)
        assert [(record.key, record.value["n"], record.timestamp) for record in out.read_records()] == [
            ("ada", 0, 0),
            ("bob", 1, 1000),
            ("cid", 4, 4000),
        ]
        driver.restart(from_changelog=True)
        driver.batch = "all"
        for n, user in enumerate(["dan", "ada", "dan", "eve"], 6):
            click(driver, user, 0, n)
        assert numbers(driver)[3:] == [6, 9]
        holds = r"store 'users' holds the keys that a stream has had; look at what comes out of dropDuplicates\(user\)"
        with pytest.raises(ValueError, match=holds):
            driver.store("users")


def test_with_several_ways_out_rows_have_the_keys_that_they_have_with_one(spark):
    builder = StreamsBuilder()
    first = clicks_of(builder).withColumnRenamed("user", "who").dropDuplicates(["page", "who"])
    first.to("out", value=Json())
    first.where("n > 1").to("more", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for n, user in enumerate(["ada", "bob", "ada", "cid"]):
            click(driver, user, n, n)
        found = {
            name: [(record.key, record.value["n"]) for record in driver.create_output_topic(name).read_records()]
            for name in ("out", "more")
        }
    assert {name: sorted(rows) for name, rows in found.items()} == {
        "out": [(b"ada", 0), (b"bob", 1), (b"cid", 3)],
        "more": [(b"cid", 3)],
    }


@pytest.mark.parametrize("ways", [1, 2])
def test_rows_without_formats_stay_what_they_are_whatever_ways_there_are(spark, ways):
    builder = StreamsBuilder()
    once = builder.stream("clicks").dropDuplicates(["key", "value"])
    for way in range(ways):
        once.to(f"out-{way}")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        clicks = driver.create_input_topic("clicks")
        for value in (b"1", b"1", b"2"):
            clicks.pipe_input(b"ada", value, headers=[("from", b"web")])
        for way in range(ways):
            rows = driver.create_output_topic(f"out-{way}").read_records()
            found = [(row.key, row.value, list(row.headers)) for row in rows]
            assert found == [(b"ada", value, [("from", b"web")]) for value in (b"1", b"2")]


def test_as_spark_batch_drops_them(spark):
    rng = random.Random(7)
    rows = [(rng.choice("abcdefg"), rng.choice("pqr"), n, rng.randint(0, 40)) for n in range(120)]
    rows = [(user, None if rng.random() < 0.2 else page, n, time) for user, page, n, time in rows]

    def build(clicks):
        return clicks.where("n % 5 > 0").withColumn("page", F.upper("page")).dropDuplicates(["page", "user"])

    with driven(spark, build, partitions=2) as driver:
        driver.batch = "all"
        for user, page, n, time in rows:
            click(driver, user, time, n, page)
            if n in {40, 77}:
                driver.restart(from_changelog=n == 77)
        ours = numbers(driver)
    # Which row survives a batch Spark does not say; here it is the first.
    frame = spark.createDataFrame([row[:3] for row in rows], "user string, page string, n long").where("n % 5 > 0")
    kept = frame.dropDuplicates(["page", "user"]).select("user", "page").collect()
    first = frame.groupBy("user", "page").agg(F.min("n").alias("n")).collect()
    assert len(ours) == len(kept)
    assert sorted(ours) == sorted(row.n for row in first)


def test_rows_of_one_key_meet_through_a_topic_and_keep_its_key(spark):
    builder = StreamsBuilder()
    first = clicks_of(builder).dropDuplicates(["page"], logged=False)
    first.groupBy("user").count().to("out", value=Json())
    first_of_page = clicks_of(builder).select("page", F.col("n").alias("other")).drop_duplicates(["page"])
    first_of_page.to("pages", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, partitions=2) as driver:
        for n, (user, page) in enumerate([("ada", "p"), ("bob", "p"), ("ada", "q"), ("bob", "q"), ("ada", None)]):
            click(driver, user, n, n, page)
        assert {(row["user"], row["count"]) for row in driver.create_output_topic("out").read_rows()} == {
            ("ada", 1),
            ("ada", 2),
        }
        pages = driver.create_output_topic("pages", key=String()).read_records()
        assert sorted((record.key, record.value["other"]) for record in pages) == [("p", 0), ("q", 2)]


def test_a_stream_without_formats_is_written_as_it_was(spark):
    builder = StreamsBuilder()
    builder.stream("clicks").dropDuplicates(["key", "value"]).to("out")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        clicks = driver.create_input_topic("clicks")
        for user, value in ((b"ada", b"1"), (b"bob", b"1"), (b"ada", b"1"), (b"ada", None)):
            clicks.pipe_input(user, value)
        out = driver.create_output_topic("out").read_records()
        assert [(record.key, record.value) for record in out] == [(b"ada", b"1"), (b"bob", b"1")]


def test_rows_of_several_topics_and_streams_are_one_stream(spark):
    builder = StreamsBuilder()
    both = builder.stream(["clicks", "more"], key=String("user"), value=CLICK)
    third = builder.stream("third", key=String("user"), value=CLICK)
    once = both.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["user"])
    once.unionByName(third.where("n < 90")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        rows = [("clicks", 0), ("more", 60), ("third", 0), ("more", 8000), ("clicks", 9), ("more", 8001)]
        for n, (topic, seconds) in enumerate(rows):
            value = {"page": "p", "n": n, "at": (ZERO + dt.timedelta(seconds=seconds)).isoformat()}
            driver.create_input_topic(topic).pipe_input("ada", value)
            found = numbers(driver)
        assert found == [0, 2, 5]


@pytest.mark.long
def test_what_follows_a_stream_may_follow_it_without_its_duplicates(spark, capsys):
    builder = StreamsBuilder()
    clicks = clicks_of(builder, "10 seconds")
    users = builder.table("users", key=String("user"), value=Json("country string"))
    once = clicks.dropDuplicates(["user", "page", "at"], name="once").repartition("user")
    once.join(users, "user", "left").select("at", "country").groupBy("country").count().to("counts", value=Json())
    views = builder.stream("views", key=String("user"), value=Json("ad string, seen timestamp"))
    once.join(views.withWatermark("seen", "10 seconds"), "user", within="5 seconds").to("both", value=Json())
    windows = once.groupBy(F.window("at", "5 seconds"), "user").agg(F.count("*").alias("count"))
    windows.outputMode("append").select("user", "count").to("windows", value=Json())
    once.dropDuplicatesWithinWatermark(["page"], name="pages").select("user", "n").show()
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("users").pipe_input("ada", {"country": "NO"})
        for n, seconds in enumerate((0, 0, 1, 100)):
            click(driver, "ada", seconds, n)
        driver.create_input_topic("views").pipe_input("ada", {"ad": "x", "seen": ZERO.isoformat()})
        rows = driver.create_output_topic("both").read_rows()
        assert sorted((row["n"], row["ad"]) for row in rows) == [(0, "x"), (2, "x")]
        assert driver.create_output_topic("windows").read_rows() == [{"user": "ada", "count": 2}]
        assert [row["count"] for row in driver.create_output_topic("counts").read_rows()] == [1, 2, 3]
    shown = capsys.readouterr().out
    assert "|user|  n|" in shown
    assert "| ada|  0|" in shown
    assert "| ada|  2|" not in shown


def test_spark_within_watermark_of_all_columns(spark):
    """StreamingDeduplicationWithinWatermarkSuite, "all columns with event time column in DataFrame"."""
    build = lambda clicks: clicks.dropDuplicatesWithinWatermark(["user", "at"])  # noqa: E731
    with driven(spark, build, "10 seconds") as driver:
        driver.batch = "all"
        new = iter([[*range(10, 16)], [16, 17], [], [35], [55]])
        for seconds in ([*range(10, 16)] * 5, range(13, 18), [5], [35], [55]):
            before = len(numbers(driver))
            for second in seconds:
                click(driver, "a", second, second)
            assert numbers(driver)[before:] == next(new)
            driver.restart(from_changelog=True)


@pytest.mark.long
def test_spark_within_watermark_of_other_columns(spark):
    """The same, "subset of columns which event time column is not in subset"; and SPARK-50492, the time dropped."""
    build = lambda clicks: clicks.dropDuplicatesWithinWatermark(["user"]).drop("at")  # noqa: E731
    with driven(spark, build, "2 seconds") as driver:
        driver.batch = "all"
        steps = [("a17", "a17"), ("a16", ""), ("a13", ""), ("b22 c21", "b22 c21"), ("a21", "a21"), ("d25", "d25")]
        out = driver.create_output_topic("out", key=String())
        for given, new in steps:
            for word in given.split():
                click(driver, word[0], int(word[1:]), int(word[1:]))
            assert [f"{record.key}{record.value['n']}" for record in out.read_records()] == new.split()
            if given == "a16":
                driver.restart(from_changelog=True)


def test_spark_with_a_watermark(spark):
    """StreamingDeduplicationSuite, "deduplicate with watermark"; but a row at the watermark itself is not late here."""
    build = lambda clicks: clicks.dropDuplicates(["user", "at"])  # noqa: E731
    with driven(spark, build, "10 seconds") as driver:
        driver.batch = "all"
        new = iter([[*range(10, 16)], [25], [], [45]])
        for seconds in ([*range(10, 16)] * 5, [25], [10, 15, 14.999], [45]):
            before = len(numbers(driver))
            for second in seconds:
                click(driver, "a", second, int(second))
            assert numbers(driver)[before:] == next(new)


def test_spark_with_keys_in_another_order_and_without_the_time(spark):
    """The same, SPARK-19841 and SPARK-21546, each less the millisecond by which rows are late a bit later here."""
    builder = StreamsBuilder()
    clicks = clicks_of(builder, "1 second")
    clicks.dropDuplicates(["user", "at"]).to("out", value=Json())
    clicks.dropDuplicates(["user"]).to("users", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.batch = "all"
        out = driver.create_output_topic("out", key=String())
        steps = [("1a 1a 1b", "1a 1b"), ("1a 2c 2d", "2c 2d"), ("0e 1a 3f", "3f"), ("0e 4h", "4h")]
        for given, new in steps:
            for word in given.split():
                click(driver, word[1], int(word[0]), int(word[0]))
            assert [f"{record.value['n']}{record.key}" for record in out.read_records()] == new.split()
        users = driver.create_output_topic("users", key=String()).read_records()
        assert [record.key for record in users] == ["a", "b", "c", "d", "e", "f", "h"]


@pytest.mark.long
def test_spark_with_an_aggregate(spark):
    """The same, "deduplicate with aggregate - append mode" and "- update mode"."""
    builder = StreamsBuilder()
    once = clicks_of(builder, "10 seconds").dropDuplicates(["user", "at"])
    windows = once.groupBy(F.window("at", "5 seconds")).agg(F.count("*").alias("count"))
    windows.outputMode("append").select(F.unix_seconds("window.start").alias("start"), "count").to("w", value=Json())
    other = builder.stream("numbers", key=String("str"), value=Json("num long"))
    other.dropDuplicates(["str", "num"]).groupBy("str").agg(F.sum("num").alias("sum")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.batch = "all"
        out = driver.create_output_topic("w")
        for seconds in ([*range(10, 16)] * 5, [25], [10], [40]):
            for second in seconds:
                click(driver, "a", second)
        start = int(ZERO.timestamp())
        assert [(row["start"] - start, row["count"]) for row in out.read_rows()] == [(10, 5), (15, 1), (25, 1)]
        driver.batch = "record"
        for key, number in (("a", 1), ("a", 1), ("a", 2), ("b", 1)):
            driver.create_input_topic("numbers").pipe_input(key, {"num": number})
        sums = driver.create_output_topic("out").read_rows()
        assert [(row["str"], row["sum"]) for row in sums] == [("a", 1), ("a", 3), ("b", 1)]


def test_spark_multiple(spark):
    """The same, "multiple deduplicates"."""
    build = lambda clicks: clicks.dropDuplicates(["user", "n"]).dropDuplicates(["user"])  # noqa: E731
    with driven(spark, build) as driver:
        for user, n in (("a", 1), ("a", 1), ("a", 2), ("b", 1)):
            click(driver, user, 0, n)
        assert [(row["user"], row["n"]) for row in driver.create_output_topic("out").read_rows()] == [
            ("a", 1),
            ("b", 1),
        ]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.dropDuplicates(["user", "ad"]), 'column name "ad" among .*page'),
        (
            lambda s: s.withColumn("all", F.array("page")).dropDuplicates(["user", "all"]),
            r"column 'all' \(array<string>\) cannot be the key",
        ),
        (
            lambda s: s.withColumn("page", F.lower("page")).select("*", "page").dropDuplicates(["user"]),
            r"to\('out'\) writes two columns 'page'",
        ),
        (
            lambda s: s.withWatermark("n", "1 hour").dropDuplicates(["user", "n"]),
            'invalid type "BIGINT", but expected "TIMESTAMP"',
        ),
        (lambda s: s.withWatermark("at", "soon").dropDuplicatesWithinWatermark(["user"]), "soon"),
        (
            lambda s: s.withWatermark("at", "1 hour").drop("at").dropDuplicatesWithinWatermark(["user"]),
            r'put withWatermark\("time", "10 minutes"\) before it, with the column of event times',
        ),
    ],
)
def test_what_cannot_be_is_refused(spark, build, message):
    builder = StreamsBuilder()
    stream = clicks_of(builder)

    def written():
        build(stream).to("out", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match=rf"(?s)test_deduplication.py:\d+: .*{message}"):
        TopologyTestDriver(written(), spark=spark)
