"""Pipelines that differ from the one that made the state: refused by name, or going on with the rows that fit."""

import pytest
from pyspark.sql import Row, functions as F
from pyspark.sql.streaming import StatefulProcessor

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import IncompatibleTopologyException, SerializationException, SparkRelayError

pytestmark = pytest.mark.integration


def aggregating(*aggregates):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("n int, m int"))
    stream.groupBy("user").agg(*aggregates).to("out", value=Json())
    return builder


def piped(application, builder, *rows, **options):
    """Have an instance take rows of one user, and return the last row of each topic that it writes."""
    with application.running(builder, **options) as driver:
        for row in rows:
            driver.create_input_topic("in").pipe_input("a", row)
        read = driver.create_output_topic("out").read_rows()
        return read[-1]


@pytest.fixture
def ran_before(application):
    """Sums of n and m are kept, and the instance has ended."""
    sums = aggregating(F.sum("n").alias("n"), F.sum("m").alias("m"))
    found = piped(application, sums, {"n": 1, "m": 10}, {"n": 2, "m": 20})
    assert found == {"user": "a", "n": 3, "m": 30}


OTHERS = {
    "swapped": (F.sum, "m", F.sum, "n"),
    "another function": (F.max, "n", F.sum, "m"),
}


@pytest.mark.parametrize("lost", [False, True], ids=["local state", "from the changelog"])
@pytest.mark.parametrize("other", sorted(OTHERS))
def test_another_aggregate_over_the_same_store_is_refused(other, lost, ran_before, application):
    if lost:
        application.lose_state()
    first, one, second, two = OTHERS[other]
    words = r"holds sum\(n\) of int, sum\(m\) of int by user string, spread by the message key, but .* by user"
    with pytest.raises(IncompatibleTopologyException, match=words):
        piped(application, aggregating(first(one).alias("n"), second(two).alias("m")), {"n": 5, "m": 50})


def by_shop(group):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("n int, shop string, at timestamp"))
    group(stream).count(name="shops").to("out", value=Json())
    return builder


KEYS = {
    "a window": (
        lambda s: s.groupBy("shop", F.window("at", "1 hour")),
        lambda s: s.groupBy("shop", F.window("at", "30 minutes")),
        "was made with 1-hour windows; the pipeline now has 30-minute windows: one cannot be read as the other. Give",
    ),
    "before the topic": (
        lambda s: s.withColumn("k", F.upper("shop")).groupBy("k"),
        lambda s: s.withColumn("k", F.lower("shop")).groupBy("k"),
        r"but the pipeline now wants .*by k string = lower\(shop\)",
    ),
    "spread by fewer columns": (
        lambda s: s.repartition("shop", name="r").groupBy("shop", "n"),
        lambda s: s.repartition("shop", "n", name="r").groupBy("shop", "n"),
        "has its rows partitioned by shop; the pipeline now partitions them by shop, n",
    ),
    "spread by the producer": (
        lambda s: s.groupBy("user"),
        lambda s: s.repartition("user", name="r").groupBy("user"),
        "has its rows partitioned by the message key; the pipeline now partitions them by user",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("key", sorted(KEYS))
def test_another_key_under_the_same_name_is_refused(key, application):
    before, now, words = KEYS[key]
    row = {"n": 1, "shop": "s", "at": "2013-01-01T00:40:00Z"}
    piped(application, by_shop(before), row)
    with pytest.raises(IncompatibleTopologyException, match=words):
        piped(application, by_shop(now), row)


@pytest.mark.long
def test_another_time_zone_makes_another_key(application, spark):
    """The date of a time is another one elsewhere: half a group's rows would be in the wrong one."""
    row = {"n": 1, "shop": "s", "at": "2013-01-01T02:00:00Z"}

    def pipeline():
        return by_shop(lambda s: s.groupBy("shop", F.to_date("at").alias("day")))

    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        piped(application, pipeline(), row)
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        words = "holds .* in UTC.* wants .* in America/New_York"
        with pytest.raises(IncompatibleTopologyException, match=words):
            piped(application, pipeline(), row)
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.parametrize("columns", ["the same", "another one"])
def test_rows_that_a_former_pipeline_left_between_two_of_its_parts(columns, application):
    """It ended after it had filled a repartition topic, whose rows have the columns that it read."""

    def pipeline(*selected, after):
        builder = StreamsBuilder()
        stream = builder.stream("in", value=Json("shop string, a string, b string"))
        rows = stream.select("shop", *selected).repartition("shop", name="r")
        after(rows).to("out", key=String("shop"), value=Json())
        return builder

    failing = pipeline("a", "b", after=lambda rows: rows.selectExpr("shop", "raise_error(a || b) as who"))
    with pytest.raises(SparkRelayError, match="USER_RAISED_EXCEPTION"):
        piped(application, failing, {"shop": "s", "a": "A", "b": "B"}, config={"max.batch.retries": 0})
    if columns == "another one":
        words = r"-r-repartition-0 at offset 0 .*\(b string, shop string\): an earlier pipeline or release.* reset"
        with pytest.raises(SerializationException, match=words):
            piped(application, pipeline("a", "b", after=lambda rows: rows.selectExpr("shop", "b as who")))
    else:
        now = pipeline("b", "a", after=lambda rows: rows.selectExpr("shop", "b || a as who"))
        assert piped(application, now) == {"shop": "s", "who": "BA"}


def test_a_pipeline_that_is_mended_gets_past_text_that_is_not_utf_8(application):
    def pipeline(*, mended):
        builder = StreamsBuilder()
        stream = builder.stream("in").select(F.col("value").cast("string").alias("v"))
        rows = stream.where("is_valid_utf8(v)") if mended else stream
        rows.groupBy("v").count(name="texts").to("out", key=String("v"), value=Json())
        return builder

    with application.running(pipeline(mended=False), {"max.batch.retries": 0}, batch="all") as driver:
        driver.create_input_topic("in").pipe_rows([(b"a", b"fine"), (b"a", b"\xff\xfe"), (b"a", b"good")])
        with pytest.raises(SerializationException, match="column 'v' holds text that is not UTF-8"):
            driver.process()
    with application.running(pipeline(mended=True)) as driver:
        found = sorted(driver.create_output_topic("out").read_rows(), key=lambda row: row["v"])
        assert found == [{"v": "fine", "count": 1}, {"v": "good", "count": 1}]


@pytest.mark.long
def test_another_alias_and_another_filter_are_no_other_aggregate(ran_before, application):
    builder = StreamsBuilder()
    stream = builder.stream("in", key=String("user"), value=Json("n int, m int"))
    sums = stream.where("n > 1").groupBy("user").agg(F.sum("n").alias("all_n"), F.sum("m").alias("all_m"))
    sums.to("out", value=Json())
    found = piped(application, builder, {"n": 1, "m": 1000}, {"n": 5, "m": 50})
    assert found == {"user": "a", "all_n": 8, "all_m": 80}


@pytest.mark.long
def test_the_same_pipeline_is_the_same_after_a_restart(application):
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
        stream = builder.stream("in", value=Json("n int, m int"))
        stream.groupBy(F.upper(F.lit("all")).alias("k")).agg(*aggregates).to("out", value=Json(), key=String("k"))
        return builder

    totals = {"doubled": 0, "squares": 0, "most": 0}
    for n in (1, 2):
        totals = {"doubled": totals["doubled"] + 2 * n, "squares": totals["squares"] + 101 * n * n, "most": 10 * n}
        assert piped(application, pipeline(), {"n": n, "m": 10 * n}) == {"k": "ALL", **totals}


@pytest.mark.long
def test_a_store_that_goes_and_comes_back(application):
    """Both stores are of one task: one of them is left out of one run, while the other counts."""

    def both(*names):
        builder = StreamsBuilder()
        stream = builder.stream("in", key=String("user"), value=Json("n int"))
        for name in names:
            stream.groupBy("user").agg(F.sum("n").alias(name), name=name).to(name)
        return builder

    for round_, names in enumerate([("one", "two"), ("one",), ("one", "two")]):
        with application.running(both(*names)) as driver:
            driver.create_input_topic("in").pipe_input("a", {"n": 1})
            # The second one has not seen what was piped in without it.
            expected = {"one": round_ + 1, "two": (1, 1, 2)[round_]}
            for name in names:
                assert driver.create_output_topic(name).read_rows()[-1] == {"user": "a", name: expected[name]}


def looking_up(value):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json(value), name="people")
    clicks = builder.stream("in", key=String("user"), value=Json("page string"))
    clicks.join(users, "user", "left").to("out", value=Json())
    users.where("name <> ''").to("named", value=Json())
    return builder


def test_rows_of_a_table_are_not_read_with_other_columns(application):
    """As many columns of the same types, taken for each other by position; and the table itself gets no new row."""
    with application.running(looking_up("name string, country string")) as driver:
        driver.create_input_topic("users").pipe_input("a", {"name": "Ada", "country": "UK"})
        named = {"user": "a", "name": "Ada", "country": "UK"}
        assert driver.create_output_topic("named").read_rows() == [named]
    words = r"holds newest row of struct<name:string,country:string>"
    with pytest.raises(IncompatibleTopologyException, match=words):
        piped(application, looking_up("country string, name string"), {"page": "x"})
    with application.running(looking_up("name string, country string")) as driver:
        assert driver.create_output_topic("named").read_rows() == [named]
        (row,) = driver.create_output_topic("out").read_rows()
        assert row == {**named, "page": "x"}


HISTORIES = {"another one": ("1 hour", "2 hours"), "switched on": (None, "1 hour"), "switched off": ("1 hour", None)}


@pytest.mark.parametrize("history", sorted(HISTORIES))
def test_another_history_of_a_table_is_refused(history, application):
    def pipeline(kept):
        builder = StreamsBuilder()
        builder.table("in", key=String("user"), value=Json("n int"), history=kept, name="ns").to("out")
        return builder

    before, now = HISTORIES[history]
    piped(application, pipeline(before), {"n": 1})
    words = "store 'ns' was made with (no history|a history.*); the pipeline now has (no history|a history|one of .*):"
    with pytest.raises(IncompatibleTopologyException, match=words):
        piped(application, pipeline(now), {"n": 2})


def located(application, column, *countries):
    """Have an instance take rows of a global table, with that column, and return what one of them gives."""
    builder = StreamsBuilder()
    table = builder.global_table("countries", key=String("country"), value=Json(f"{column} string"), name="geo")
    orders = builder.stream("orders", key=String("id"), value=Json("country string"))
    orders.join(table, "country", "left").select("id", "country", column).to("out", value=Json())
    with application.running(builder, partitions=2) as driver:
        for country, value in countries:
            driver.create_input_topic("countries").pipe_input(country, {column: value})
        before = len(driver.create_output_topic("out").read_rows())
        for country in ("fr", "jp"):
            driver.create_input_topic("orders").pipe_input(f"{country} {before}", {"country": country})
        rows = driver.create_output_topic("out").read_rows()
        return {row["country"]: row.get(column) for row in rows if row["id"].endswith(f" {before}")}


def test_a_global_table_is_read_anew_for_other_columns(application):
    found = located(application, "continent", ("fr", "Europe"), ("jp", "Asia"))
    assert found == {"fr": "Europe", "jp": "Asia"}
    found = located(application, "capital", ("fr", "Paris"))
    assert found == {"fr": "Paris", "jp": None}


class Counting(StatefulProcessor):
    """Counts rows, in a value of that type."""

    def __init__(self, kind):
        self.kind = kind

    def init(self, handle):
        self.count = handle.getValueState("count", f"n {self.kind}")

    def handleInputRows(self, key, rows, times):
        before = self.count.get() or (0,)
        self.count.update((before[0] + len(list(rows)),))
        yield Row(user=key[0], n=self.count.get()[0])

    def close(self):
        pass


def test_another_type_of_a_processors_value_is_refused(application):
    def pipeline(kind):
        builder = StreamsBuilder()
        rows = builder.stream("in", key=String("user"), value=Json("n int")).groupBy("user")
        counts = rows.transformWithState(Counting(kind), "user string, n long", "Append", "None", name="counts")
        counts.to("out", key=String("user"), value=Json())
        return builder

    assert piped(application, pipeline("long"), {"n": 5}, {"n": 5}) == {"user": "a", "n": 2}
    words = "value count struct<n:bigint>.*value count struct<n:string>"
    with pytest.raises(IncompatibleTopologyException, match=words):
        piped(application, pipeline("string"), {"n": 5})
