"""Session windows, on the test driver and beside Spark batch."""

import datetime as dt
import random

import pytest
from pyspark.sql import functions as F
from tests.marks import first_of

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

CLICK = Json("page string, n long, time timestamp")
START = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


def at(seconds):
    return START + dt.timedelta(seconds=seconds)


def seconds(text):
    return (dt.datetime.fromisoformat(text) - START).total_seconds()


def clicks(builder, delay="10 seconds"):
    return builder.stream("clicks", key=String("user"), value=CLICK).withWatermark("time", delay)


def span(row):
    return seconds(row["session_window"]["start"]), seconds(row["session_window"]["end"])


def test_sessions_grow_and_merge_and_what_they_were_is_deleted(spark):
    builder = StreamsBuilder()
    counts = (
        clicks(builder)
        .groupBy("user", F.session_window("time", "5 seconds"))
        .agg(F.count("*").alias("n"), F.sum("n").alias("sum"), F.max("page").alias("page"))
    )
    counts.to("sessions", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("sessions")
        names = {}

        def click(user, second, page="p"):
            topic.pipe_input(user, {"page": page, "n": second, "time": at(second)})
            found = []
            for record in out.read_records():
                if record.value is None:
                    found.append(("-", names.pop(record.key)))
                else:
                    names[record.key] = span(record.value)
                    found.append((*span(record.value), record.value["n"], record.value["sum"], record.value["page"]))
            return found

        assert click("ada", 10) == [(10, 15, 1, 10, "p")]
        assert click("ada", 12, "q") == [("-", (10, 15)), (10, 17, 2, 22, "q")]
        assert click("ada", 11, "a") == [(10, 17, 3, 33, "q")]
        assert click("bob", 11) == [(11, 16, 1, 11, "p")]
        assert click("ada", 23) == [(23, 28, 1, 23, "p")]
        driver.restart(from_changelog=True)
        assert click("ada", 17, "z") == [("-", (10, 17)), (10, 22, 4, 50, "z")], "one begins as the other ends"
        assert click("ada", 20) == [("-", (10, 22)), ("-", (23, 28)), (10, 28, 6, 93, "z")]
        assert click("ada", 7, "late") == [], "its own session was over at 12"
        assert click("ada", 9) == [("-", (10, 28)), (9, 28, 7, 102, "z")]
        held = [(row["user"], row["n"]) for row in driver.store("clicks-by-user-session_window")]
        assert held == [("bob", 1), ("ada", 7)]


def test_final_results_come_once_when_a_session_is_over(spark):
    builder = StreamsBuilder()
    grouped = clicks(builder, "0 seconds").groupBy("user", F.session_window("time", "5 seconds").alias("s"))
    grouped.count(name="sessions").outputMode("append").select("user", "s.end", "count").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for user, second in (("ada", 1), ("bob", 2), ("ada", 5)):
            topic.pipe_input(user, {"time": at(second)})
        assert out.is_empty
        driver.restart(from_changelog=True)
        topic.pipe_input("cid", {"time": at(7)})
        assert [(row["user"], seconds(row["end"]), row["count"]) for row in out.read_rows()] == [("bob", 7, 1)]
        # What is over takes no further row: one that would touch it makes another.
        topic.pipe_input("bob", {"time": at(7)})
        topic.pipe_input("cid", {"time": at(100)})
        found = sorted((row["user"], seconds(row["end"]), row["count"]) for row in out.read_rows())
        assert found == [("ada", 10, 2), ("bob", 12, 1), ("cid", 12, 1)]
        assert [(row["user"], row["count"]) for row in driver.store("sessions")] == [("cid", 1)]


@pytest.mark.parametrize("seed", first_of(range(3)))
def test_spark_batch_makes_the_same_sessions(spark, seed):
    draw = random.Random(seed)
    rows, now = [], 0.0
    for number in range(400):
        now += draw.choice([0, 0.5, 1, 3])
        rows.append(
            {
                "user": draw.choice([None, "a", "b", "c"]),
                "page": draw.choice(["x", "y", None]),
                "n": number,
                "time": draw.choice([None, *[at(now - draw.choice([0, 0, 2, 8]))] * 9]),
            }
        )
    aggregates = [F.count("*").alias("rows"), F.sum("n").alias("sum"), F.min("n").alias("first"), F.max("page")]
    # The gap of a row may be its own.
    gap = F.when(F.col("page") == "x", "2 seconds").otherwise("6 seconds")
    builder = StreamsBuilder()
    source = builder.stream("clicks", key=String("user"), value=CLICK).withWatermark("time", "8 seconds")
    by_user = source.groupBy("user", F.session_window("time", "4 seconds")).agg(*aggregates)
    by_user.select("*").to("by-user", value=Json())
    source.where("user is not null").groupBy(F.session_window("time", gap), "page").agg(*aggregates).outputMode(
        "append"
    ).to("by-page", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, batch="all") as driver:
        topic = driver.create_input_topic("clicks")
        outs = [driver.create_output_topic(name) for name in ("by-user", "by-page")]
        cuts = sorted(draw.sample(range(400), 8))
        for first, end in zip([0, *cuts], [*cuts, 400], strict=True):
            for row in rows[first:end]:
                topic.pipe_input(row["user"], {name: item for name, item in row.items() if name != "user"}, 0)
            driver.process()
            if draw.random() < 0.4:
                driver.restart(from_changelog=draw.random() < 0.5)
        for page in ("x", "y", None):
            topic.pipe_input("end", {"page": page, "n": -1, "time": at(now + 1000)})
        driver.process()
        newest = {record.key: record.value for record in outs[0].read_records()}
        final = list(outs[1].read_rows())
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in rows], "user string, page string, n long, time timestamp"
    ).where("user is not null")

    def ours(rows, column):
        return sorted(
            (str(row.get(column)), *span(row), row["rows"], row["sum"], row["first"], str(row.get("max(page)")))
            for row in rows
            if row is not None and row["first"] >= 0
        )

    def wanted(column, grouped):
        return sorted(
            (
                str(row[column]),
                *((row.session_window[end].astimezone(dt.UTC) - START).total_seconds() for end in ("start", "end")),
                *(row.rows, row["sum"], row["first"], str(row["max(page)"])),
            )
            for row in grouped.agg(*aggregates).collect()
        )

    by_user = frame.groupBy("user", F.session_window("time", "4 seconds"))
    by_page = frame.where("page is not null").groupBy(F.session_window("time", gap), "page")
    assert ours(newest.values(), "user") == wanted("user", by_user)
    assert ours(final, "page") == wanted("page", by_page)


@pytest.mark.parametrize(
    "group",
    [
        lambda rows, session: rows.groupBy(session),
        lambda rows, session: rows.groupBy(F.upper("page"), session),
        lambda rows, session: rows.groupBy(session, (F.col("n") % 2).alias("odd")),
    ],
    ids=["of everything", "of an expression", "of another expression"],
)
def test_no_session_is_made_before_its_rows_are_in_one_task(spark, group):
    """Groups without a plain column are computed before the repartition topic; their sessions are not."""
    draw = random.Random(7)
    rows = [{"page": draw.choice("xy"), "n": number, "time": at(3 * number)} for number in range(60)]
    rows = [row for row in rows if draw.random() < 0.6]
    chosen, session = draw.sample(rows, len(rows)), F.session_window("time", "4 seconds").alias("session_window")
    builder = StreamsBuilder()
    group(clicks(builder, "1 hour"), session).agg(F.count("*").alias("rows"), F.sum("n").alias("sum")).to("out")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=3) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for number, row in enumerate(chosen):
            topic.pipe_input(f"user {number}", row)
            if number % 10 == 0:
                driver.process()
        driver.process()
        newest = {record.key: record.value for record in out.read_records()}
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], "page string, n long, time timestamp")
    wanted = group(frame, session).agg(F.count("*").alias("rows"), F.sum("n").alias("sum")).collect()
    found = sorted((row["rows"], row["sum"], span(row)[0]) for row in newest.values() if row is not None)
    assert found == sorted(
        (row.rows, row["sum"], (row.session_window.start.astimezone(dt.UTC) - START).total_seconds()) for row in wanted
    )


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda s: s.groupBy("user", F.session_window("time", "5 seconds")).count(),
            "put withWatermark(",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds")
                .groupBy(F.window("time", "1 hour"), F.session_window("time", "5 seconds"))
                .count()
            ),
            "Multiple time/session window expressions",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds")
                .withColumn("hour", F.window("time", "1 hour"))
                .groupBy("hour", F.session_window("time", "5 seconds"))
                .count()
            ),
            "with no other window",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds")
                .groupBy("user", F.session_window("time", "5 seconds"))
                .agg(F.count_distinct("page").alias("pages"))
            ),
            "count(DISTINCT page) is not supported for session windows",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds")
                .groupBy("user", F.session_window("time", "5 seconds"))
                .agg(F.collect_list("page").alias("pages"))
            ),
            "collect_list(page) is not supported for session windows",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds")
                .withColumn("other", F.timestamp_millis(F.lit(0)))
                .groupBy("user", F.session_window("other", "5 seconds"))
                .count()
            ),
            "windows end by their own time",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds").groupBy("user", F.session_window("time", "5 minuts")).count()
            ),
            "gap '5 minuts' of F.session_window()",
        ),
        (
            lambda s: (
                s.withWatermark("time", "0 seconds").groupBy("user", F.session_window("time", "0 seconds")).count()
            ),
            "gap '0 seconds' of F.session_window() is no time at all",
        ),
        (
            lambda s: s.withWatermark("time", "0 seconds").groupBy("user", F.session_window("time", "-5 days")).count(),
            "gap '-5 days' of F.session_window()",
        ),
    ],
)
def test_sessions_that_cannot_be_kept_are_refused(spark, write, message):
    builder = StreamsBuilder()

    def topology():
        write(builder.stream("clicks", key=String("user"), value=CLICK)).to("out", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match="test_sessions.py:") as refused:
        TopologyTestDriver(topology(), spark=spark)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "group",
    [
        lambda s: s.withColumn("visit", F.session_window("time", "5 seconds")).groupBy("user", "visit"),
        lambda s: s.groupBy("user", F.session_window("time", "5 seconds")["end"].alias("end")),
        lambda s: s.withColumn("hour", F.window("time", "1 hour")["start"]).groupBy(
            "hour", F.session_window("time", "5 seconds")
        ),
    ],
    ids=["of a column", "of their ends", "beside a time"],
)
def test_sessions_are_what_spark_batch_takes_them_for(spark, group):
    """A column of sessions merges as the function does; of a field of theirs nothing merges."""
    rows = [(user, "x", n, at(second)) for n, (user, second) in enumerate([("a", 0), ("a", 3), ("b", 4), ("a", 100)])]
    builder = StreamsBuilder()
    grouped = group(clicks(builder, "0 seconds")).agg(F.sum("n").alias("n"))
    grouped.select(F.to_json(F.struct("*")).alias("text")).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for user, page, n, time in rows:
            topic.pipe_input(user, {"page": page, "n": n, "time": time})
        newest = {record.key: record.value for record in out.read_records()}
    frame = spark.createDataFrame(rows, "user string, page string, n long, time timestamp")
    wanted = group(frame).agg(F.sum("n").alias("n")).select(F.to_json(F.struct("*"))).collect()
    assert sorted(row["text"] for row in newest.values() if row is not None) == sorted(row[0] for row in wanted)
