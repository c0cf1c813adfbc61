"""A stream joined with a DataFrame that is collected now and then, beside Spark's own join of the same rows."""

import datetime as dt
import math
import random
import threading
import time

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import SparkRelayError, TopologyException
from sparkrelay.runtime.spark import collected_frames
from sparkrelay.runtime.spark.executor_target import ExecutorTarget
from sparkrelay.runtime.spark.jobs import JobCancelled, Jobs
from sparkrelay.runtime.worker.restore import RestoreSpec
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

MINUTES = "10 minutes"


def clicks_of(builder):
    return builder.stream("clicks", key=String("user"), value=Json("page string, country string, n long"))


@pytest.fixture
def rates(spark, tmp_path):
    """A DataFrame of files, and a function that replaces what they hold."""
    folder = tmp_path / "rates"
    folder.mkdir()
    written = 0

    def write(**found):
        nonlocal written
        for file in folder.iterdir():
            file.unlink()
        written += 1
        (folder / f"{written}.csv").write_text("".join(f"{country},{rate}\n" for country, rate in found.items()))

    write(NO=1)
    return spark.read.schema("country string, rate long").csv(str(folder)), write


KEYS = {
    "string": ["a", "b", "ab", "", "\0", None],
    "int": [0, 1, -1, None],
    "double": [0.0, -0.0, math.nan, 1.5, None],
    "decimal(20,3)": ["1.5", "-0.001", "99999999999999999.999", None],
    "date": ["2026-01-01", "1969-12-31", None],
    "timestamp": ["2026-01-01T00:00:00.000001Z", "1969-12-31T23:59:59Z", None],
    "boolean": [True, False, None],
    "binary": ["YQ==", "", "AAE=", None],
}


@pytest.mark.parametrize(
    "kinds", [(kind,) for kind in KEYS] + [("string", "int"), ("double", "date")], ids=" and ".join
)
def test_it_finds_what_sparks_join_finds(spark, kinds):
    """Nulls, duplicate keys, both zeros and NaN; inner and left in one pipeline, beside Catalyst's steps."""
    draw = random.Random(str(kinds))
    text = "base64(k{0})" if "binary" in kinds else "cast(k{0} as string)"
    cast = "unbase64(k{0}) as k{0}" if "binary" in kinds else "cast(k{0} as {1}) as k{0}"
    names = [f"k{index}" for index in range(len(kinds))]
    casts = [cast.format(index, kind) for index, kind in enumerate(kinds)]

    def drawn(count):
        return [(*(draw.choice(KEYS[kind]) for kind in kinds), n) for n in range(count)]

    def as_text(rows):
        return [(*(None if v is None else str(v) for v in row[:-1]), row[-1]) for row in rows]

    left, right = as_text(drawn(60)), as_text(drawn(12))
    schema = ", ".join(f"{name} string" for name in names)
    frame = spark.createDataFrame(right, f"{schema}, m long").selectExpr(*casts, "m", "struct(m, m + 1) as both")
    builder = StreamsBuilder()
    rows = builder.stream("in", value=Json(f"{schema}, n long")).selectExpr(*casts, "n")
    shown = [text.format(index) + f" as t{index}" for index in range(len(kinds))]
    for how in ("inner", "left"):
        rows.where("n >= 0").join(frame, names, how, refresh=MINUTES).selectExpr(*shown, "n", "m", "both.col2 as o").to(
            how, value=Json()
        )
    columns = [*(f"t{index}" for index in range(len(kinds))), "n", "m", "o"]
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("in")
        for row in left:
            topic.pipe_input(
                None, {name: value for name, value in zip([*names, "n"], row, strict=True) if value is not None}
            )
        batch = spark.createDataFrame(left, f"{schema}, n long").selectExpr(*casts, "n")
        for how in ("inner", "left"):
            rows = driver.create_output_topic(how).read_rows()
            found = [tuple(map(row.get, columns)) for row in rows]
            wanted = batch.join(frame, names, how).selectExpr(*shown, "n", "m", "both.col2 as o").collect()
            order = [row[len(kinds)] for row in found]
            assert order == sorted(order), "rows stay in their order"
            assert sorted(found, key=str) == sorted(map(tuple, wanted), key=str)
            assert found == sorted(found, key=lambda row: (row[-3], -1 if row[-2] is None else row[-2])), (
                "of one key too"
            )


@pytest.mark.long
def test_it_is_collected_again_as_the_clock_goes_on(spark, rates):
    frame, write = rates
    builder = StreamsBuilder()
    clicks_of(builder).join(frame, "country", "left", refresh=MINUTES).select("page", "rate").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")

        def found(country="NO"):
            topic.pipe_input("a", {"page": "x", "country": country})
            return [row.get("rate") for row in out.read_rows()]

        assert found() == [1]
        write(NO=7, SE=12345)
        driver.advance_wall_clock_time(dt.timedelta(seconds=599))
        assert (found(), found("SE")) == ([1], [None])
        driver.advance_wall_clock_time(dt.timedelta(seconds=1))
        # By now small micro-batches pass through a resident job, which begins anew with the new rows.
        assert (found(), found("SE")) == ([7], [12345])
        write(NO=8)
        assert found() == [7]
        driver.advance_wall_clock_time(dt.timedelta(hours=1))
        assert (found(), found("SE")) == ([8], [None])


@pytest.mark.long
def test_small_micro_batches_stay_in_one_job(spark, rates, monkeypatch):
    frame, write = rates
    outcomes = []
    from sparkrelay.runtime.batch.batch_runner import BatchRunner

    run = BatchRunner.run

    def noted(*arguments):
        outcomes.append(run(*arguments))
        return outcomes[-1]

    monkeypatch.setattr(BatchRunner, "run", noted)
    builder = StreamsBuilder()
    rich = clicks_of(builder).join(frame, "country", refresh=MINUTES)
    rich.groupBy("user").agg(F.sum("rate").alias("r"), name="sums").to_stream().withColumn("country", F.lit("NO")).join(
        frame.withColumnRenamed("rate", "again"), "country", refresh="5 minutes"
    ).to("out", value=Json())
    topology = builder.build()
    assert "refresh='10 minutes')" in topology.describe()
    assert "refresh='5 minutes')" in topology.describe()
    with TopologyTestDriver(topology, spark=spark) as driver:
        assert "pass through one resident Spark job" in driver._plans.describe()
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for _ in range(5):
            topic.pipe_input("a", {"page": "x", "country": "NO"})
        write(NO=10)
        driver.advance_wall_clock_time(dt.timedelta(minutes=6))
        topic.pipe_input("a", {"page": "x", "country": "NO"})
        driver.advance_wall_clock_time(dt.timedelta(minutes=6))
        topic.pipe_input("a", {"page": "x", "country": "NO"})
        assert [(row["r"], row["again"]) for row in out.read_rows()] == [
            *((n, 1) for n in range(1, 6)),
            (6, 10),
            (16, 10),
        ]
    assert [outcome.resident for outcome in outcomes[-5:]] == [True] * 5


def test_old_rows_do_for_a_while_and_then_the_batch_fails(spark, rates, caplog):
    frame, write = rates
    builder = StreamsBuilder()
    broken = frame.withColumn("rate", F.expr("if(rate > 100, raise_error('no rates today'), rate)"))
    clicks_of(builder).join(broken, "country", refresh=MINUTES).select("page", "rate").to("out", value=Json())
    with TopologyTestDriver(builder.build(), {"max.batch.retries": 1}, spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        write(NO=101)
        driver.advance_wall_clock_time(dt.timedelta(minutes=15))
        topic.pipe_input("a", {"page": "x", "country": "NO"})
        assert [row["rate"] for row in out.read_rows()] == [1]
        (line,) = [record.getMessage() for record in caplog.records if "rows are" in record.getMessage()]
        assert "test_collected_joins.py:" in line
        assert "rows are 900 s old (refresh: 600 s)" in line
        assert "no rates today" in line
        driver.advance_wall_clock_time(dt.timedelta(minutes=10))
        with pytest.raises(SparkRelayError, match=r"test_collected_joins.py:\d+: .*no longer used.*no rates today"):
            topic.pipe_input("a", {"page": "y", "country": "NO"})
        write(NO=3)
        driver.process()
        assert [row["rate"] for row in out.read_rows()] == [3]


def test_files_that_are_gone_are_no_empty_dataframe(spark, rates, tmp_path, caplog):
    frame, write = rates
    builder = StreamsBuilder()
    clicks_of(builder).join(frame, "country", "left", refresh=MINUTES).select("page", "rate").to("out", value=Json())
    topology = builder.build()
    with TopologyTestDriver(topology, spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for file in (tmp_path / "rates").iterdir():
            file.unlink()
        (tmp_path / "rates").rmdir()
        driver.advance_wall_clock_time(dt.timedelta(minutes=11))
        topic.pipe_input("a", {"page": "gone", "country": "NO"})
        assert [row["rate"] for row in out.read_rows()] == [1]
        assert "there are no files in file:" in caplog.text
        with pytest.raises(SparkRelayError, match=r"test_collected_joins.py:\d+.*there are no files in file:.*rates"):
            TopologyTestDriver(topology, spark=spark)
        (tmp_path / "rates").mkdir()
        write(NO=2)
        driver.advance_wall_clock_time(dt.timedelta(minutes=1))
        topic.pipe_input("a", {"page": "there", "country": "NO"})
        assert [row["rate"] for row in out.read_rows()] == [2]


def test_a_deletion_reaches_a_table_whatever_it_finds(spark, rates):
    frame, _ = rates
    builder = StreamsBuilder()
    clicks_of(builder).join(frame, "country", refresh=MINUTES).to_table(name="newest").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out", key=String())
        topic.pipe_input("a", {"page": "x", "country": "NO"})
        topic.pipe_input("b", {"page": "x", "country": "XX"})
        topic.pipe_input("a", None)
        assert [(record.key, record.value is None) for record in out.read_records()] == [("a", False), ("a", True)]
        assert driver.store("newest") == []


def made(spark, join, frame):
    builder = StreamsBuilder()
    join(clicks_of(builder), frame).to("out", value=Json())
    return TopologyTestDriver(builder.build(), spark=spark)


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda s, f: s.join(f, "country", refresh="soon"), "refresh='soon' of join\\(\\) is not an interval"),
        (lambda s, f: s.join(f, "country", refresh="0 seconds"), "must be positive"),
        (lambda s, f: s.join(f, "country", refresh="-3 minutes"), "must be positive"),
        (lambda s, f: s.join(f, "country", refresh="1 month"), "has months, whose length varies"),
        (lambda s, f: s.join(f, "country", refresh="2 years"), "has months"),
        (
            lambda s, f: s.withColumn("Rate", F.lit(1)).join(f, "country", refresh=MINUTES),
            "two columns 'Rate' and 'rate'",
        ),
        (lambda s, f: s.drop("country").join(f, "country", refresh=MINUTES), "country"),
        (lambda s, f: s.join(f.selectExpr("rate as m", "1 as i"), "i", refresh=MINUTES), "`?i`?"),
        (
            lambda s, f: s.withColumn("rate", F.lit(1)).join(f.drop("country"), "rate", refresh=MINUTES),
            "'rate' is int in the stream and bigint in the DataFrame; cast one of them",
        ),
        (
            lambda s, f: s.withColumn("k", F.struct("n")).join(
                f.selectExpr("struct(rate as n) as k"), "k", refresh=MINUTES
            ),
            "compares keys as bytes, and 'k' is struct<n:bigint>",
        ),
        (
            lambda s, f: s.withColumn("k", F.expr("collate(page, 'UTF8_LCASE')")).join(
                f.selectExpr("collate(country, 'UTF8_LCASE') as k"), "k", refresh=MINUTES
            ),
            "compares keys as bytes, and 'k'",
        ),
        (
            lambda s, f: s.join(f.selectExpr("country", "parse_json('1') as v"), "country", refresh=MINUTES).withColumn(
                "v", F.to_json("v")
            ),
            "column 'v' .* cannot go through Arrow",
        ),
        (
            lambda s, f: s.join(
                f.selectExpr("country", "raise_error('no rates today') as r"), "country", refresh=MINUTES
            ),
            "no rates today",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_line(spark, rates, join, message):
    with pytest.raises(SparkRelayError, match=message) as raised:
        made(spark, join, rates[0])
    assert "test_collected_joins.py:" in str(raised.value)


def test_a_cached_dataframe_and_one_that_is_too_large_are_made(spark, rates, monkeypatch):
    frame, _ = rates
    cached = frame.where("rate > 0").cache()
    try:
        with pytest.raises(TopologyException, match="would see the same rows forever"):
            made(spark, lambda s, f: s.join(f.where("country > ''"), "country", refresh=MINUTES), cached)
    finally:
        cached.unpersist()
    monkeypatch.setattr(collected_frames, "MOST_BYTES", 1 << 20)
    large = spark.range(100_000).selectExpr("cast(id as string) as country", "id as rate")
    with pytest.raises(TopologyException, match=r"has 100,000 rows of \d MiB, but .* at most 1 MiB") as raised:
        made(spark, lambda s, f: s.join(f, "country", refresh=MINUTES), large)
    assert "test_collected_joins.py:" in str(raised.value)


@pytest.mark.long
def test_switching_to_it_keeps_a_store(spark, rates):
    """What the store is of is said in the same words."""
    contents = []
    for refresh in (None, MINUTES):
        builder = StreamsBuilder()
        frame = rates[0].selectExpr("country", "rate * 2 as twice")
        clicks_of(builder).join(frame, "country", refresh=refresh).groupBy("user", "twice").count(name="n").to("out")
        with TopologyTestDriver(builder.build(), spark=spark) as driver:
            contents.append(driver._plans.state("n").contents)
    assert contents[0] == contents[1]


@pytest.fixture
def slow(spark):
    """A DataFrame that takes two minutes."""
    return spark.range(1).select(F.udf(lambda n: time.sleep(120) or str(n), "string")("id").alias("country"))


def test_tasks_that_leave_end_a_collection(spark, slow, wait_until):
    """What Spark runs for it is in the group of the micro-batch, which is what leaving tasks have cancelled."""
    target = ExecutorTarget(spark, spark_partitions=1)
    jobs = Jobs(target, restore=RestoreSpec(1, "app", {}, 1 << 20), name="leaving")
    raised = []

    def collect():
        try:
            jobs.collect(slow, "collecting it")
        except SparkRelayError as error:
            raised.append(error)

    thread = threading.Thread(target=collect)
    thread.start()
    tracker = spark.sparkContext.statusTracker()
    wait_until(tracker.getActiveJobsIds, "no job began")
    assert "collecting it" in target.overdue(0)
    jobs.cancel_batch()
    thread.join(100)
    (error,) = raised
    assert isinstance(error, JobCancelled)


def test_a_source_that_does_not_answer_is_not_waited_for_for_ever(spark, slow):
    builder = StreamsBuilder()
    clicks_of(builder).join(slow, "country", refresh=MINUTES).to("out", value=Json())
    with pytest.raises(
        SparkRelayError, match=r"test_collected_joins.py:\d+ took longer than 1 s \(max.poll.interval.ms"
    ):
        TopologyTestDriver(builder.build(), {"max.poll.interval.ms": 1000}, spark=spark)


def test_whoever_makes_an_instance_goes_on_as_before(spark, rates):
    context = spark.sparkContext
    context.setJobGroup("mine", "my own jobs")
    context.setLocalProperty("spark.scheduler.pool", "my-pool")
    names = "spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool", "spark.job.tags"
    before = [context.getLocalProperty(name) for name in names]
    try:
        made(spark, lambda s, f: s.join(f, "country", refresh=MINUTES), rates[0]).close()
        assert [context.getLocalProperty(name) for name in names] == before
    finally:
        for name in names:
            context.setLocalProperty(name, None)


def test_ways_that_part_behind_it_read_columns_of_their_own(spark):
    frame = spark.createDataFrame([("NO", 1, "north")], "country string, rate long, region string")
    builder = StreamsBuilder()
    rows = clicks_of(builder).join(frame, "country", refresh=MINUTES)
    rows.select("user", "rate").to("rates", value=Json())
    rows.select("page", "region").to("regions", value=Json())
    rows.groupBy("user").agg(F.sum("n").alias("n")).to("sums", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        driver.create_input_topic("clicks").pipe_input("ada", {"page": "p", "country": "NO", "n": 7})
        assert driver.create_output_topic("rates").read_rows() == [{"user": "ada", "rate": 1}]
        assert driver.create_output_topic("regions").read_rows() == [{"page": "p", "region": "north"}]
        assert driver.create_output_topic("sums").read_rows() == [{"user": "ada", "n": 7}]
