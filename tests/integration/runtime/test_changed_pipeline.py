"""Pipelines that are not what they were when the state was made: refused by name, never read as something else."""

import json
import shutil

import pytest
from pyspark.sql import functions as F

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import IncompatibleTopologyException, SerializationException

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def aggregating(topics, *aggregates, **options):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("n int, m int"))
    stream.groupBy("user").agg(*aggregates, **options).to(topics[1], value=Json())
    return builder


@pytest.fixture
def topics(make_topic):
    return make_topic("in", 1), make_topic("out", 1)


@pytest.fixture
def ran_before(instance, topics, produce, wait_for_table):
    """Sums of n and m were kept, and the instance was stopped."""
    produce(topics[0], [("a", {"n": 1, "m": 10}), ("a", {"n": 2, "m": 20})])
    builder = aggregating(topics, F.sum("n").alias("n"), F.sum("m").alias("m"))
    with instance(builder) as streams:
        streams.start()
        wait_for_table(topics[1], {b"a": {"user": "a", "n": 3, "m": 30}}, streams)


OTHERS = {
    "swapped": (F.sum, "m", F.sum, "n"),
    "another function": (F.max, "n", F.sum, "m"),
}


@pytest.mark.parametrize("lost", [False, True], ids=["local state", "from the changelog"])
@pytest.mark.parametrize("other", sorted(OTHERS))
def test_another_aggregate_over_the_same_store_is_refused(
    other, lost, ran_before, topics, instance, produce, wait_until, tmp_path
):
    if lost:
        shutil.rmtree(tmp_path / "state")
    first, one, second, two = OTHERS[other]
    streams = instance(aggregating(topics, first(one).alias("n"), second(two).alias("m")))
    streams.start()
    produce(topics[0], [("a", {"n": 5, "m": 50})])
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    with pytest.raises(
        IncompatibleTopologyException,
        match=r"holds sum\(n\) of int, sum\(m\) of int by user string, spread by the message key, but .* by user",
    ):
        streams.awaitTermination(10)


def by_shop(topics, group):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("n int, shop string, at timestamp"))
    group(stream).count(name="shops").to(topics[1], value=Json())
    return builder


KEYS = {
    "a window": (
        lambda s: s.groupBy("shop", F.window("at", "1 hour")),
        lambda s: s.groupBy("shop", F.window("at", "30 minutes")),
        r"window struct<.*> = window\(at, 0:30:00\)",
    ),
    "in front of the topic": (
        lambda s: s.withColumn("k", F.upper("shop")).groupBy("k"),
        lambda s: s.withColumn("k", F.lower("shop")).groupBy("k"),
        r"by k string = lower\(shop\)",
    ),
    "spread by fewer columns": (
        lambda s: s.repartition("shop", name="r").groupBy("shop", "n"),
        lambda s: s.repartition("shop", "n", name="r").groupBy("shop", "n"),
        "by shop string, n int, spread by shop, n",
    ),
    "spread by the producer": (
        lambda s: s.groupBy("user"),
        lambda s: s.repartition("user", name="r").groupBy("user"),
        "by user string, spread by user",
    ),
}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_another_key_under_the_same_name_is_refused(key, topics, instance, produce, wait_until, consumed, fails_with):
    before, now, words = KEYS[key]
    produce(topics[0], [("a", {"n": 1, "shop": "s", "at": "2013-01-01T00:40:00Z"})])
    with instance(by_shop(topics, before)) as streams:
        streams.start()
        wait_until(lambda: consumed(topics[1]) or streams.exception(), "nothing came")
    streams = instance(by_shop(topics, now))
    streams.start()
    produce(topics[0], [("a", {"n": 1, "shop": "s", "at": "2013-01-01T00:40:00Z"})])
    fails_with(streams, IncompatibleTopologyException, f"but the pipeline now wants .*{words}")


def test_another_time_zone_makes_another_key(topics, instance, produce, wait_until, consumed, fails_with, spark):
    """The date of a time is another one elsewhere: half a group's rows would be in the wrong one."""
    record = ("a", {"n": 1, "shop": "s", "at": "2013-01-01T02:00:00Z"})
    pipeline = by_shop(topics, lambda s: s.groupBy("shop", F.to_date("at").alias("day")))
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        produce(topics[0], [record])
        with instance(pipeline) as streams:
            streams.start()
            wait_until(lambda: consumed(topics[1]) or streams.exception(), "nothing came")
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        streams = instance(pipeline)
        streams.start()
        produce(topics[0], [record])
        fails_with(streams, IncompatibleTopologyException, "holds .* in UTC.* wants .* in America/New_York")
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("columns", ["the same", "another one"])
def test_rows_that_a_former_pipeline_left_between_two_of_its_parts(
    columns, topics, make_topic, instance, produce, fails_with, wait_until, consumed
):
    """It died behind a repartition topic. What is in there has the columns that it read."""

    def pipeline(*selected, behind):
        builder = StreamsBuilder()
        stream = builder.stream(topics[0], value=Json("shop string, a string, b string"))
        rows = stream.select("shop", *selected).repartition("shop", name="r")
        behind(rows).to(topics[1], key=String("shop"), value=Json())
        return builder

    produce(topics[0], [("k", {"shop": "s", "a": "A", "b": "B"})])
    failing = pipeline("a", "b", behind=lambda rows: rows.selectExpr("shop", "raise_error(a || b) as who"))
    streams = instance(failing, {"max.batch.retries": 0})
    streams.start()
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    if columns == "another one":
        streams = instance(pipeline("a", "b", behind=lambda rows: rows.selectExpr("shop", "b as who")))
        streams.start()
        words = r"-r-repartition-0 at offset 0 was written by an earlier pipeline.*\(b string, shop string\).* reset"
        fails_with(streams, SerializationException, words)
    else:
        with instance(pipeline("b", "a", behind=lambda rows: rows.selectExpr("shop", "b || a as who"))) as streams:
            streams.start()
            wait_until(lambda: consumed(topics[1]) or streams.exception(), "nothing came")
            assert json.loads(consumed(topics[1])[0][3]) == {"shop": "s", "who": "BA"}


def test_a_pipeline_that_is_mended_gets_past_text_that_is_not_utf_8(
    topics, instance, produce, fails_with, table, wait_for_table
):
    def pipeline(*, mended):
        builder = StreamsBuilder()
        stream = builder.stream(topics[0]).select(F.col("value").cast("string").alias("v"))
        rows = stream.where("is_valid_utf8(v)") if mended else stream
        rows.groupBy("v").count(name="texts").to(topics[1], key=String("v"), value=Json())
        return builder

    produce(topics[0], [("a", b"fine"), ("a", b"\xff\xfe"), ("a", b"good")])
    streams = instance(pipeline(mended=False), {"max.batch.retries": 0})
    streams.start()
    fails_with(streams, SerializationException, "column 'v' holds text that is not UTF-8")
    with instance(pipeline(mended=True)) as streams:
        streams.start()
        wait_for_table(topics[1], {b"fine": {"v": "fine", "count": 1}, b"good": {"v": "good", "count": 1}}, streams)


def test_another_alias_and_another_filter_are_no_other_aggregate(ran_before, topics, instance, produce, wait_for_table):
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], key=String("user"), value=Json("n int, m int"))
    sums = stream.where("n > 1").groupBy("user").agg(F.sum("n").alias("all_n"), F.sum("m").alias("all_m"))
    sums.to(topics[1], value=Json())
    streams = instance(builder)
    streams.start()
    produce(topics[0], [("a", {"n": 1, "m": 1000}), ("a", {"n": 5, "m": 50})])
    wait_for_table(topics[1], {b"a": {"user": "a", "all_n": 8, "all_m": 80}}, streams)


def test_the_same_pipeline_is_the_same_after_a_restart(topics, instance, produce, wait_for_table):
    """Python functions and lambdas look different in every run; what the store holds does not."""

    def pipeline():
        @F.udf("int")
        def doubled(n):
            return 2 * n

        squares = F.aggregate(F.transform(F.array("n", "m"), lambda x: x * x), F.lit(0), lambda a, b: a + b)
        aggregates = (
            F.sum(doubled("n")).alias("doubled"),
            F.sum(squares).alias("squares"),
            F.max("m").alias("most"),
        )
        builder = StreamsBuilder()
        stream = builder.stream(topics[0], value=Json("n int, m int"))
        stream.groupBy(F.upper(F.lit("all")).alias("k")).agg(*aggregates).to(topics[1], value=Json(), key=String("k"))
        return builder

    totals = {"doubled": 0, "squares": 0, "most": 0}
    for n in (1, 2):
        produce(topics[0], [("a", {"n": n, "m": 10 * n})])
        totals = {"doubled": totals["doubled"] + 2 * n, "squares": totals["squares"] + 101 * n * n, "most": 10 * n}
        with instance(pipeline()) as streams:
            streams.start()
            wait_for_table(topics[1], {b"ALL": {"k": "ALL", **totals}}, streams)


def test_state_of_another_application_is_set_aside(
    ran_before, topics, instance, wait_for_table, make_topic, tmp_path, application_id
):
    """A directory that was copied from another application: the input counts from its beginning."""
    shutil.copytree(tmp_path / "state" / application_id, tmp_path / "state" / f"{application_id}-other")
    sink = make_topic("out", 1)
    builder = aggregating((topics[0], sink), F.sum("n").alias("n"), F.sum("m").alias("m"))
    streams = instance(builder, {"application.id": f"{application_id}-other"})
    streams.start()
    wait_for_table(sink, {b"a": {"user": "a", "n": 3, "m": 30}}, streams)


def warnings(caplog, words):
    return [r.getMessage() for r in caplog.records if r.levelname == "WARNING" and words in r.getMessage()]


def test_a_renamed_store_is_a_new_one_and_that_is_said(
    ran_before, topics, instance, produce, wait_for_table, caplog, application_id, kafka_admin
):
    (before,) = (name for name in kafka_admin.list_topics(timeout=10).topics if name.startswith(application_id))
    builder = aggregating(topics, F.sum("n").alias("n"), F.sum("m").alias("m"), name="renamed")
    streams = instance(builder)
    streams.start()
    produce(topics[0], [("a", {"n": 5, "m": 50})])
    wait_for_table(topics[1], {b"a": {"user": "a", "n": 5, "m": 50}}, streams)
    (renamed,) = warnings(caplog, "which this pipeline does not have")
    assert renamed.startswith(f"topic {before!r} is the changelog of store ")
    (new,) = warnings(caplog, "it starts empty")
    assert new.startswith("store 'renamed' is new, or its changelog")


def test_nothing_is_said_where_nothing_changed(ran_before, topics, instance, produce, wait_for_table, caplog):
    streams = instance(aggregating(topics, F.sum("n").alias("n"), F.sum("m").alias("m")))
    streams.start()
    produce(topics[0], [("a", {"n": 5, "m": 50})])
    wait_for_table(topics[1], {b"a": {"user": "a", "n": 8, "m": 80}}, streams)
    assert not warnings(caplog, "pipeline")


@pytest.fixture
def two(make_topic):
    """`two(names)` gives a pipeline with the sources that are named, in that order."""
    inputs = {name: make_topic(name, 1) for name in ("orders", "clicks")}
    sink = make_topic("out", 1)

    def build(*names):
        builder = StreamsBuilder()
        for name in names:
            stream = builder.stream(inputs[name], key=String("user"), value=Json("n int"))
            stream.groupBy("user").agg(F.sum("n").alias(name), name=name).to(sink)
        return builder

    build.inputs, build.sink = inputs, sink
    return build


def sums(orders, clicks):
    return {b"o": {"user": "o", "orders": orders}, b"c": {"user": "c", "clicks": clicks}}


def test_sub_topologies_that_change_their_numbers(two, instance, produce, wait_for_table, tmp_path, application_id):
    """Task 0_0 becomes another one: the state that stands in its directory is not taken for its own."""
    expected = [0, 0]
    for names in (("orders", "clicks"), ("clicks", "orders"), ("orders", "clicks")):
        expected = [expected[0] + 1, expected[1] + 10]
        produce(two.inputs["orders"], [("o", {"n": 1})])
        produce(two.inputs["clicks"], [("c", {"n": 10})])
        with instance(two(*names)) as streams:
            streams.start()
            wait_for_table(two.sink, sums(*expected), streams)
    home = tmp_path / "state" / application_id / "0"
    aside = sorted(path.name for path in home.glob("*.corrupt-*"))
    assert aside == [f"{task}.corrupt-{n}" for task in ("0_0", "1_0") for n in (1, 2)]


def test_a_source_that_goes_and_comes_back(two, instance, produce, wait_for_table, caplog):
    for round_, names in enumerate([("orders", "clicks"), ("clicks",), ("orders", "clicks")]):
        produce(two.inputs["orders"], [("o", {"n": 1})])
        produce(two.inputs["clicks"], [("c", {"n": 10})])
        with instance(two(*names)) as streams:
            streams.start()
            # What came while nobody read it is read when it is read again.
            wait_for_table(two.sink, sums((1, 1, 3)[round_], 10 * (round_ + 1)), streams)
    (gone,) = warnings(caplog, "which this pipeline does not have")
    assert "is the changelog of store 'orders'" in gone


def test_a_store_that_goes_and_comes_back(topics, instance, produce, wait_for_table, make_topic):
    """Both stores are of one task: one of them is dropped while the other goes on."""
    others = make_topic("others", 1)

    def both(*names):
        builder = StreamsBuilder()
        stream = builder.stream(topics[0], key=String("user"), value=Json("n int"))
        for name in names:
            stream.groupBy("user").agg(F.sum("n").alias(name), name=name).to(topics[1] if name == "one" else others)
        return builder

    for round_, names in enumerate([("one", "two"), ("one",), ("one", "two")]):
        produce(topics[0], [("a", {"n": 1})])
        with instance(both(*names)) as streams:
            streams.start()
            wait_for_table(topics[1], {b"a": {"user": "a", "one": round_ + 1}}, streams)
            # It has not seen what came while it was not there.
            wait_for_table(others, {b"a": {"user": "a", "two": (1, 1, 2)[round_]}}, streams)


def test_a_source_of_another_name_under_the_same_store(instance, topics, produce, wait_for_table, make_topic, caplog):
    other = make_topic("in", 1)
    for source, n in ((topics[0], 1), (other, 2), (other, 3)):
        produce(source, [("a", {"n": 1, "m": 1})])
        with instance(aggregating((source, topics[1]), F.sum("n").alias("n"), name="users")) as streams:
            streams.start()
            wait_for_table(topics[1], {b"a": {"user": "a", "n": n}}, streams)
    (renamed,) = warnings(caplog, "was a source topic renamed?")
    assert f"its state holds what came from {topics[0]}-0" in renamed
    assert f"goes on with {other}-0" in renamed


def looking_up(topics, table, value):
    builder = StreamsBuilder()
    users = builder.table(table, key=String("user"), value=Json(value), name="people")
    clicks = builder.stream(topics[0], key=String("user"), value=Json("page string"))
    clicks.join(users, "user", "left").to(topics[1], value=Json())
    users.where("name <> ''").to(topics[1], value=Json())
    return builder


def test_rows_of_a_table_are_not_read_with_other_columns(
    topics, make_topic, instance, produce, wait_until, wait_for_table, consumed
):
    """As many columns of the same types, taken for each other by position; and the table itself gets no new row."""
    users = make_topic("users", 1)
    produce(users, [("a", {"name": "Ada", "country": "UK"})])
    with instance(looking_up(topics, users, "name string, country string")) as streams:
        streams.start()
        wait_for_table(topics[1], {b"a": {"user": "a", "name": "Ada", "country": "UK"}}, streams)
    before = len(consumed(topics[1]))
    streams = instance(looking_up(topics, users, "country string, name string"))
    streams.start()
    produce(topics[0], [("a", {"page": "x"})])
    wait_until(lambda: streams.state == "ERROR", f"{streams.status}, not ERROR")
    with pytest.raises(IncompatibleTopologyException, match=r"holds newest row of struct<name:string,country:string>"):
        streams.awaitTermination(10)
    assert len(consumed(topics[1])) == before


HISTORIES = {"another one": ("1 hour", "2 hours"), "switched on": (None, "1 hour"), "switched off": ("1 hour", None)}


@pytest.mark.parametrize("history", sorted(HISTORIES))
def test_another_history_of_a_table_is_refused(history, topics, instance, produce, wait_until, consumed, fails_with):
    def pipeline(kept):
        builder = StreamsBuilder()
        builder.table(topics[0], key=String("user"), value=Json("n int"), history=kept, name="ns").to(topics[1])
        return builder

    before, now = HISTORIES[history]
    produce(topics[0], [("a", {"n": 1})])
    with instance(pipeline(before)) as streams:
        streams.start()
        wait_until(lambda: consumed(topics[1]) or streams.exception(), "nothing came")
    streams = instance(pipeline(now))
    streams.start()
    produce(topics[0], [("a", {"n": 2})])
    fails_with(
        streams, IncompatibleTopologyException, "store 'ns' holds newest row .*but the pipeline now wants newest row"
    )
