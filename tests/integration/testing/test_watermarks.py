"""Windows that end, in whole pipelines: whatever feeds a task, whatever the column, and what is refused."""

import datetime as dt

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import TopologyException
from sparkrelay.testing import TopologyTestDriver

pytestmark = pytest.mark.integration

VALUE = "time timestamp, day date, ntz timestamp_ntz, ms long, other timestamp, v long, s string"
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(minutes, **more):
    time = START + dt.timedelta(minutes=minutes)
    return {"time": time.isoformat(), "day": time.date().isoformat(), "ms": int(time.timestamp() * 1000), **more}


def clicks(builder, *topics):
    return builder.stream([*(topics or ("clicks",))], key=String("page"), value=Json(VALUE))


def counted(spark, grouped, rows, **driver):
    """Return the final rows of a grouping, as (minutes from the start, count), in order."""
    builder = StreamsBuilder()
    grouped(builder).to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, **driver) as running:
        for topic, key, value in rows:
            running.create_input_topic(topic).pipe_input(key, value)
        times = [
            (dt.datetime.fromisoformat(row["window"]["start"]) - START, row["n"])
            for row in running.create_output_topic("out").read_rows()
        ]
    return sorted((round(time.total_seconds() / 60), n) for time, n in times)


def per_minute(stream, *others, column="time"):
    return stream.groupBy(F.window(column, "1 minute"), *others).agg(F.count("*").alias("n")).outputMode("append")


@pytest.mark.parametrize("batch", ["record", "all"])
def test_nothing_is_lost_of_what_comes_through_a_repartition_topic_from_several_tasks(spark, batch):
    rows = [("clicks", key, at(minute, s="x")) for minute in range(8) for key in "abcdefgh"]
    found = counted(
        spark,
        lambda builder: per_minute(clicks(builder).withWatermark("time", "2 minutes"), "s"),
        rows,
        partitions=3,
        batch=batch,
    )
    assert found == [(minute, 8) for minute in range(5)]


@pytest.mark.parametrize("batch", ["record", "all"])
def test_nothing_is_lost_of_two_topics_that_one_task_reads(spark, batch):
    rows = [(topic, "a", at(minute)) for minute in range(8) for topic in ("web", "app")]
    found = counted(
        spark,
        lambda builder: per_minute(clicks(builder, "web", "app").withWatermark("time", "2 minutes"), "page"),
        rows,
        batch=batch,
    )
    assert found == [(minute, 2) for minute in range(5)]


def test_a_topic_that_is_far_behind_loses_nothing_to_one_that_is_not(spark):
    rows = [("web", "a", at(minute)) for minute in range(8)]
    rows += [("app", "a", at(minute)) for minute in range(8) for _ in range(20)]
    found = counted(
        spark,
        lambda builder: per_minute(clicks(builder, "web", "app").withWatermark("time", "0 seconds"), "page"),
        rows,
        batch="all",
        config={"max.batch.records": 20},
    )
    assert found == [(minute, 21) for minute in range(7)]


@pytest.mark.parametrize("from_changelog", [None, False, True])
def test_the_last_window_ends_once_nothing_has_come_for_a_while(spark, from_changelog):
    builder = StreamsBuilder()
    per_minute(clicks(builder).withWatermark("time", "1 minute"), "page").to("out", value=Json())
    with TopologyTestDriver(builder.build(), {"watermark.idle.ms": 30_000}, spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        topic.pipe_input("a", at(0))
        topic.pipe_input("a", at(0.5))
        driver.advance_wall_clock_time(dt.timedelta(seconds=29))
        topic.pipe_input("a", at(0.6))
        driver.advance_wall_clock_time(dt.timedelta(seconds=29))
        assert out.read_rows() == []
        if from_changelog is not None:
            driver.restart(from_changelog=from_changelog)
        driver.advance_wall_clock_time(dt.timedelta(seconds=1))
        driver.advance_wall_clock_time(dt.timedelta(seconds=33))
        assert out.read_rows() == []
        driver.advance_wall_clock_time(dt.timedelta(seconds=60))
        assert [row["n"] for row in out.read_rows()] == [3]
        topic.pipe_input("a", at(0.9))
        topic.pipe_input("a", at(4))
        assert out.read_rows() == []
        driver.advance_wall_clock_time(dt.timedelta(minutes=3))
        assert [row["n"] for row in out.read_rows()] == [1]


def merged(builder):
    per_minute(clicks(builder, "web", "app").withWatermark("time", "0 seconds").where("v is null"), "page").to(
        "out", value=Json()
    )
    return builder.build()


@pytest.mark.parametrize("from_changelog", [None, False, True])
def test_a_topic_that_is_read_to_its_end_is_waited_for(spark, from_changelog):
    with TopologyTestDriver(merged(StreamsBuilder()), {"max.task.idle.ms": 30_000}, spark=spark) as driver:
        web, app, out = *map(driver.create_input_topic, ("web", "app")), driver.create_output_topic("out")

        def minutes():
            starts = [dt.datetime.fromisoformat(row["window"]["start"]) for row in out.read_rows()]
            return [(start - START).total_seconds() / 60 for start in starts]

        def restart():
            if from_changelog is not None:
                driver.restart(from_changelog=from_changelog)

        web.pipe_input("a", at(0))
        web.pipe_input("a", at(5))
        assert minutes() == [], "there may be some in app"
        restart()
        app.pipe_input("a", at(2.5))
        assert minutes() == [0]
        app.pipe_input("a", at(1))
        app.pipe_input("a", at(3.5))
        restart()
        web.pipe_input("a", at(7))
        assert minutes() == [2], "that of minute 1 was late"
        driver.advance_wall_clock_time(dt.timedelta(seconds=29))
        # Rows that reach no grouping are none.
        app.pipe_input("a", at(4, v=1))
        web.pipe_input("a", at(8))
        assert minutes() == []
        driver.advance_wall_clock_time(dt.timedelta(seconds=1))
        assert minutes() == [3, 5, 7], "app is silent"
        app.pipe_input("a", at(8.5))
        web.pipe_input("a", at(9.5))
        assert minutes() == [], "and comes again"
        app.pipe_input("a", at(9))
        assert minutes() == [8]


def test_both_topics_may_be_silent_and_then_the_clock_goes_on(spark):
    settings = {"max.task.idle.ms": 60_000, "watermark.idle.ms": 20_000}
    with TopologyTestDriver(merged(StreamsBuilder()), settings, spark=spark) as driver:
        out = driver.create_output_topic("out")
        for topic, minute in (("app", 0), ("web", 2.9)):
            driver.create_input_topic(topic).pipe_input("a", at(minute))
        driver.advance_wall_clock_time(dt.timedelta(seconds=59))
        assert out.read_rows() == [], "app is waited for longer than the clock"
        driver.advance_wall_clock_time(dt.timedelta(seconds=1))
        assert [row["n"] for row in out.read_rows()] == [1, 1]


def test_more_topics_than_a_store_can_wait_for_are_refused(spark):
    builder = StreamsBuilder()
    rows = clicks(builder, *(f"t{number}" for number in range(1001))).withWatermark("time", "1 minute")
    per_minute(rows, "page").to("out", value=Json())
    timed = builder.build()
    with pytest.raises(TopologyException, match="is for groupings of 1000 topics at most, and this one reads 1001"):
        TopologyTestDriver(timed, {"max.task.idle.ms": 1}, spark=spark)


@pytest.mark.long
@pytest.mark.parametrize("idle_ms", [0, 30_000])
def test_with_a_wait_for_topics_nothing_is_lost_however_micro_batches_are_cut(spark, idle_ms):
    found = {}
    for batch in ("record", "all"):
        with TopologyTestDriver(
            merged(StreamsBuilder()),
            {"max.task.idle.ms": idle_ms, "max.batch.records": 3},
            spark=spark,
            batch=batch,
            partitions=2,
        ) as driver:
            for minute in range(6):
                for key in "abc":
                    driver.create_input_topic("web").pipe_input(key, at(minute))
            for minute in range(6):
                for key in "abc":
                    driver.create_input_topic("app").pipe_input(key, at(minute))
            driver.advance_wall_clock_time(dt.timedelta(minutes=1))
            found[batch] = sorted(
                (row["page"], row["window"]["start"], row["n"]) for row in driver.create_output_topic("out").read_rows()
            )
    assert len(found["all"]) == 15
    assert {n for *_, n in found["all"]} == {2}
    assert (found["record"] == found["all"]) == (idle_ms > 0), "the rows of app come late where nobody waits for them"


def test_windows_over_final_rows_are_not_ended_by_the_clock(spark):
    builder = StreamsBuilder()
    timed = clicks(builder).withWatermark("time", "10 seconds").groupBy(F.window("time", "5 minutes"), "page")
    fives = timed.agg(F.count("*").alias("n")).outputMode("append").withWatermark("window", "0 seconds")
    tens = fives.groupBy(F.window("window", "10 minutes"), "page").agg(F.sum("n").alias("n"))
    tens.outputMode("append").to("out", value=Json())
    with TopologyTestDriver(builder.build(), {"watermark.idle.ms": 30_000}, spark=spark) as driver:
        topic = driver.create_input_topic("clicks")
        for second in range(0, 1300, 26):
            topic.pipe_input("a", at(second / 60))
            driver.advance_wall_clock_time(dt.timedelta(seconds=26))
        assert [row["n"] for row in driver.create_output_topic("out").read_rows()] == [24]


def test_what_other_topics_of_the_task_get_keeps_no_window_open(spark):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("page"), value=Json("name string"))
    timed = clicks(builder).join(users, "page", "left").withWatermark("time", "0 seconds")
    per_minute(timed, "page").to("out", value=Json())
    with TopologyTestDriver(builder.build(), {"watermark.idle.ms": 30_000}, spark=spark) as driver:
        driver.create_input_topic("clicks").pipe_input("a", at(0))
        for number in range(5):
            driver.advance_wall_clock_time(dt.timedelta(seconds=20))
            driver.create_input_topic("users").pipe_input("a", {"name": str(number)})
        assert [row["n"] for row in driver.create_output_topic("out").read_rows()] == [1]


def late_ones(builder, *grouped, **more):
    rows = clicks(builder).where("v is null or v >= 0").withWatermark("time", "1 minute")
    counts = rows.groupBy(*grouped).agg(F.count("*").alias("n"), late_to="late", **more)
    counts.outputMode("append").to("out", value=Json())


@pytest.mark.parametrize("by", [None, "s"])
@pytest.mark.parametrize("from_changelog", [None, True])
def test_late_rows_go_to_a_topic_of_their_own(spark, from_changelog, by):
    builder = StreamsBuilder()
    late_ones(builder, F.window("time", "1 minute"), by or "page", name="counts")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out, late = driver.create_input_topic("clicks"), driver.create_output_topic("out"), []
        for minute, v in ((0, 1), (3, 2), (0.1, 3), (0.2, -1), (1, 4), (0.3, 5), (2, 6)):
            if from_changelog and v == 4:
                driver.restart(from_changelog=True)
            topic.pipe_input("a", at(minute, v=v, s="x"))
        late = driver.create_output_topic("late", key=String())
        found = [(record.key, record.value["v"], record.value["s"]) for record in late.read_records()]
        key = "a" if by is None else "x"
        assert found == [(key, 3, "x"), (key, 4, "x"), (key, 5, "x")]
        assert [row["n"] for row in out.read_rows()] == [1]


def test_late_rows_of_one_micro_batch_are_those_that_are_left_out(spark):
    builder = StreamsBuilder()
    late_ones(builder, F.window("time", "1 minute"), "page")
    with TopologyTestDriver(builder.build(), spark=spark, batch="all", partitions=2) as driver:
        topic, late = driver.create_input_topic("clicks"), driver.create_output_topic("late")
        for minutes in ((0, 3, 0.1), (0.2, 5, 2), (None, 9)):
            for minute in minutes:
                for key in "abc":
                    topic.pipe_input(key, {"v": 0} if minute is None else at(minute, v=round(minute * 10)))
            driver.process()
        assert sorted(row["v"] for row in late.read_rows()) == [2, 2, 2]


def kept(spark, retention, *, restart=None, **driver):
    """Return (minute, count) of the windows that are stored and of the final rows, where minute 9 is the newest."""
    builder = StreamsBuilder()
    grouped = clicks(builder).withWatermark("time", "2 minutes").groupBy(F.window("time", "1 minute"), "page")
    table = grouped.agg(F.count("*").alias("n"), name="counts", retention=retention)
    table.outputMode("append").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark, **driver) as running:
        topic = running.create_input_topic("clicks")
        for number, minute in enumerate((0, 1, 0.5, 2, 4, 3, 5, 6, 6.5, 9)):
            topic.pipe_input("a", at(minute))
            if restart is not None and number % 3 == 2:
                running.restart(from_changelog=restart)
        if restart is not None:
            running.process()
            running.restart(from_changelog=restart)
        stored = [(row["window"]["start"].replace(tzinfo=dt.UTC), row["n"]) for row in running.store("counts")]
        final = [
            (dt.datetime.fromisoformat(row["window"]["start"]), row["n"])
            for row in running.create_output_topic("out").read_rows()
        ]
    return [[(round((time - START).total_seconds() / 60), n) for time, n in sorted(some)] for some in (stored, final)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("retention", "first"), [(None, 7), ("0 seconds", 7), ("90 seconds", 5), ("3 minutes", 4), ("100 days", 0)]
)
def test_windows_that_are_over_stay_in_the_store_for_as_long_as_they_should(spark, retention, first):
    windows = [(0, 2), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2), (9, 1)]
    found = kept(spark, retention)
    assert found == [[window for window in windows if window[0] >= first], windows[:-1]]
    assert kept(spark, retention, restart=False) == found
    assert kept(spark, retention, restart=True) == found
    # All of a micro-batch are on time; there are none that come late here.
    assert kept(spark, retention, batch="all") == found
    assert kept(spark, retention, batch="all", config={"max.batch.records": 2}, restart=True) == found


def test_a_late_row_changes_no_window_that_is_kept(spark):
    builder = StreamsBuilder()
    late_ones(builder, F.window("time", "1 minute"), "page", name="counts", retention="1 hour")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic, out = driver.create_input_topic("clicks"), driver.create_output_topic("out")
        for minute, v in ((0, 1), (3, 2), (0.1, 3), (62, 4), (0.2, 5)):
            if v == 3:
                driver.restart(from_changelog=True)
            topic.pipe_input("a", at(minute, v=v))
        assert [row["n"] for row in out.read_rows()] == [1, 1]
        assert [row["n"] for row in driver.store("counts")] == [1, 1], "the first has expired"
        assert [row["v"] for row in driver.create_output_topic("late").read_rows()] == [3, 5]


def test_a_state_fits_a_pipeline_with_another_retention(spark):
    def contents(**more):
        builder = StreamsBuilder()
        late_ones(builder, F.window("time", "1 minute"), "page", name="counts", **more)
        with TopologyTestDriver(builder.build(), spark=spark) as driver:
            return driver._plans.state("counts").contents

    assert contents() == contents(retention="1 hour") == contents(retention="7 days")


@pytest.mark.parametrize(
    ("retention", "message"),
    [
        ("soon", r"agg\(..., retention='soon'\), read as a delay: .*soon"),
        ("-1 minute", r"retention='-1 minute'\), read as a delay: .* less than no time"),
        ("5", "retention='5'"),
    ],
)
def test_a_retention_that_is_no_time_is_refused(spark, retention, message):
    builder = StreamsBuilder()
    timed = clicks(builder).withWatermark("time", "1 minute").groupBy(F.window("time", "1 minute"), "page")
    timed.agg(F.count("*").alias("n"), retention=retention)
    with pytest.raises(TopologyException, match=message):
        TopologyTestDriver(builder.build(), spark=spark)


def test_a_retention_without_windows_is_refused(spark):
    grouped = clicks(StreamsBuilder()).withWatermark("time", "1 minute").groupBy("page")
    with pytest.raises(
        TopologyException, match=r"retention='1 day' keeps windows that are over, and this grouping has"
    ):
        grouped.agg(F.count("*"), retention="1 day")


def test_late_rows_without_windows_are_refused(spark):
    grouped = clicks(StreamsBuilder()).withWatermark("time", "1 minute").groupBy("page")
    with pytest.raises(TopologyException, match=r"late_to= is for the rows whose window is over.*F.window\(\"time\""):
        grouped.agg(F.count("*").alias("n"), late_to="late")


def test_a_row_is_written_once_for_each_sliding_window_that_it_is_late_for(spark):
    builder = StreamsBuilder()
    late_ones(builder, F.window("time", "2 minutes", "1 minute"), "page")
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        topic = driver.create_input_topic("clicks")
        for minute, v in ((0.5, 1), (4, 2), (1.5, 3), (2.5, 4)):
            topic.pipe_input("a", at(minute, v=v))
        assert [row["v"] for row in driver.create_output_topic("late").read_rows()] == [3, 3, 4]


def test_a_grouping_by_windows_alone_has_one_clock(spark):
    rows = [("clicks", key, at(minute)) for minute in range(8) for key in "abc"]
    found = counted(
        spark, lambda builder: per_minute(clicks(builder).withWatermark("time", "0 seconds")), rows, partitions=3
    )
    assert found == [(minute, 3) for minute in range(7)]


def test_final_rows_are_grouped_by_windows_again(spark):
    def hours(builder):
        minutes = per_minute(clicks(builder).withWatermark("time", "0 seconds"), "page")
        again = minutes.withWatermark("window", "0 seconds").groupBy(F.window("window", "5 minutes"), "page")
        return again.agg(F.sum("n").alias("n")).outputMode("append")

    rows = [("clicks", "a", at(minute)) for minute in range(13) for _ in range(2)]
    assert counted(spark, hours, rows) == [(0, 10), (5, 10)]


def test_a_date_is_a_time_too(spark):
    def days(builder):
        timed = clicks(builder).withColumn("at", F.col("day").cast("timestamp")).withWatermark("at", "1 day")
        return timed.groupBy(F.window("day", "1 day"), "page").agg(F.count("*").alias("n")).outputMode("append")

    rows = [("clicks", "a", at(60 * 24 * day)) for day in (0, 0, 1, 2)]
    assert counted(spark, days, rows) == [(0, 2)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("ms", r'`ms` has the invalid type "BIGINT", but expected "TIMESTAMP".*F.timestamp_millis\("ms"\)'),
        ("ntz", r'`ntz` has the invalid type "TIMESTAMP_NTZ".*F.col\("ntz"\).cast\("timestamp"\)'),
        ("day", r'`day` has the invalid type "DATE".*F.col\("day"\).cast\("timestamp"\)'),
        ("other", r"'window' is window\(time, 0:01:00\), and the watermark before it is of 'other'"),
        ("gone", "name `gone` cannot be resolved"),
    ],
)
def test_what_is_no_time_of_the_window_is_refused(spark, column, message):
    stream = clicks(StreamsBuilder())
    with pytest.raises(TopologyException, match=rf"test_watermarks.py:\d+: .*{message}"):
        per_minute(stream.withWatermark(column, "1 minute"), "page")


@pytest.mark.parametrize(
    ("delay", "message"),
    [
        ("-1 minute", r"delay threshold \(-1 minute\) should not be negative"),
        ("soon", "soon"),
        ("1 minute", "has none: group by F.window"),
    ],
)
def test_a_delay_that_cannot_be_and_a_grouping_without_windows_are_refused(spark, delay, message):
    builder = StreamsBuilder()
    stream = clicks(builder)

    def build():
        stream.withWatermark("time", delay).groupBy("page").count().outputMode("append").to("out", value=Json())
        return builder.build()

    with pytest.raises(TopologyException, match=rf"test_watermarks.py:\d+: .*{message}"):
        TopologyTestDriver(build(), spark=spark)


def test_what_the_driver_cannot_do_is_refused(spark):
    builder = StreamsBuilder()
    clicks(builder).select("page").to("out", value=Json())
    topology = builder.build()
    with pytest.raises(ValueError, match="batch='some' must be 'record' or 'all'"):
        TopologyTestDriver(topology, spark=spark, batch="some")
    with pytest.raises(ValueError, match="partitions=0 must be 1 or more"):
        TopologyTestDriver(topology, spark=spark, partitions=0)
    with TopologyTestDriver(topology, spark=spark) as driver:
        topic = driver.create_input_topic("clicks")
        with pytest.raises(ValueError, match="partition=1 of 'clicks' must be from 0 to 0"):
            topic.pipe_input("a", {}, partition=1)
        with pytest.raises(TypeError, match=r"timestamp=1.5 must be milliseconds"):
            topic.pipe_input("a", {}, 1.5)
        with pytest.raises(TypeError, match="cannot be written as JSON"):
            topic.pipe_input("a", {"s": {1}})
    with pytest.raises(ValueError, match="the test driver is closed"):
        topic.pipe_input("a", {})


def test_a_window_of_local_times_is_refused(spark):
    rows = StreamsBuilder().stream("in", key=String("k"), value=Json("at timestamp")).withWatermark("at", "0 seconds")
    grouped = rows.groupBy("k", F.window(F.col("at").cast("timestamp_ntz"), "1 hour"))
    with pytest.raises(TopologyException, match=r"test_watermarks.py:\d+: 'window' is a window of timestamp_ntz"):
        grouped.count()


@pytest.mark.parametrize("first", ["watermark", "rename"])
def test_a_watermark_follows_a_renamed_column(spark, first):
    builder = StreamsBuilder()
    rows = builder.stream("in", key=String("k"), value=Json("t timestamp"))
    if first == "watermark":
        rows = rows.withWatermark("t", "1 minute").withColumnRenamed("t", "t2").withColumn("t", F.lit(None))
    else:
        rows = rows.withColumnRenamed("t", "t2").withWatermark("t2", "1 minute")
    final = rows.groupBy("k", F.window("t2", "1 minute")).count().outputMode("append")
    final.select("k", F.minute("window.start").alias("minute"), "count").to("out", value=Json())
    with TopologyTestDriver(builder.build(), spark=spark) as driver:
        for minute in (0, 0, 1, 3, 0, 5):
            driver.create_input_topic("in").pipe_input("a", {"t": f"2026-01-01T00:{minute:02}:00Z"})
        rows = [(row["minute"], row["count"]) for row in driver.create_output_topic("out").read_rows()]
    assert rows == [(0, 2), (1, 1), (3, 1)]
