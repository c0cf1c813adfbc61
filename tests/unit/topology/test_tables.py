"""Tables of newest rows and lookups, as they are written down."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import Lookup, StreamsBuilder
from sparkrelay.topology.event_time import EventTime

CLICK = "page string, n int, at timestamp"


@pytest.fixture
def users(builder):
    return builder.table("users", key=String("user"), value=Json("name string"))


@pytest.fixture
def clicks(builder):
    return builder.stream("clicks", key=String("user"), value=Json(CLICK))


def test_a_stream_where_the_table_is_needs_no_topic(builder, users, clicks):
    clicks.where("n > 1").join(users, "user", "left").groupBy("user").count().to("out")
    (part,) = builder.build().subtopologies
    table, leg = part.legs
    assert (table.id, table.aggregation.newest, table.sink) == ("store:users-table", True, None)
    assert [type(step).__name__ for step in leg.before] == ["Segment", "Lookup", "Segment"]
    (lookup,) = leg.lookups
    assert (lookup.store, lookup.columns, lookup.how) == ("users-table", ("user",), "left")
    assert lookup.given.names == ["name"]
    assert part.source_topics == {"users", "clicks"}


def test_a_stream_with_another_key_is_repartitioned_and_the_table_is_not(builder, users):
    orders = builder.stream("orders", key=String("id"), value=Json("user string"))
    orders.join(users, ["user"], name="by-user").to("out")
    first, second = builder.build().subtopologies
    assert first.source_topics == {"users"}
    assert second.repartition_sinks == {"by-user-repartition"}
    assert [leg.id for leg in builder.build().upstream_first] == [
        *("store:users-table", "topic:by-user-repartition", "sink:orders-to-out"),
    ]


def test_a_table_may_be_looked_into_before_it_is_written(builder, users, clicks):
    clicks.join(users, "user").to("out")
    users.to("copy")
    assert [leg.id for leg in builder.build().legs] == ["store:users-table", "sink:clicks-to-out"]


def test_streams_that_look_into_each_others_tables_are_in_one_order(builder):
    """Each subtopology writes what the other one reads."""
    one = builder.table("one", key=String("a"), value=Json("b string"))
    other = builder.table("other", key=String("b"), value=Json("c string"))
    stream = builder.stream("in", key=String("a"), value=Json("n int"))
    stream.join(one, "a").join(other, "b").to("out")
    legs = builder.build().upstream_first
    assert [leg.id for leg in legs].index("store:one-table") < [leg.id for leg in legs].index("sink:in-to-out")
    assert sum(isinstance(step, Lookup) for leg in legs for step in leg.before) == 2


def test_the_description_shows_what_is_looked_into(builder, users, clicks):
    clicks.join(users, "user").to("out")
    assert "    Processor: clicks-join-1 (stores: [users-table])\n      join(user, inner)" in builder.build().describe()


def test_two_pipelines_that_look_into_other_tables_are_not_the_same(builder, users, clicks):
    clicks.join(users, "user").to("out")
    other = StreamsBuilder()
    table = other.table("users", key=String("user"), value=Json("name string"), name="people")
    other.stream("clicks", key=String("user"), value=Json(CLICK)).join(table, "user").to("out")
    assert builder.build().fingerprint != other.build().fingerprint


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (
            lambda b, u, c: c.join(u),
            "goes by its key, 'user', not by no column; give the stream's column the same name",
        ),
        (lambda b, u, c: c.join(u, "page"), "USING column `page` cannot be resolved on the right side"),
        (
            lambda b, u, c: c.withColumnRenamed("page", "name").join(u, "name"),
            "goes by its key, 'user', not by 'name'; give the stream's column",
        ),
        (lambda b, u, c: c.join(u, "user", "outer"), 'takes how="inner" or how="left", not FullOuter'),
        (lambda b, u, c: c.join(u, "user", "right"), 'takes how="inner" or how="left", not RightOuter'),
        (lambda b, u, c: c.join(u, "user", 3), "how should be a string"),
        (lambda b, u, c: c.join(u.drop("user"), "user"), "USING column `user` cannot be resolved on the right side"),
        (
            lambda b, u, c: c.withColumnRenamed("page", "name").join(u.drop("user"), "name"),
            "goes by its key, 'user', and a column of it is no longer there: keep it",
        ),
        (
            lambda b, u, c: c.join(c.groupBy("user").count().drop("count"), "user"),
            r"is made of 'clicks', as the stream is, .* For what came before each row use a window",
        ),
        (
            lambda b, u, c: c.join(c.groupBy("user").count().where("count > 1"), "user"),
            "is made of 'clicks', as the stream is",
        ),
        (lambda b, u, c: c.join(u.to_stream(), "user"), "join\\(\\) of two streams takes within="),
        (
            lambda b, u, c: c.join("users", "user"),
            "takes a stream or a table of the same builder, or a DataFrame, not 'users'",
        ),
        (lambda b, u, c: c.join(c.groupBy("user").count(), "user"), "is made of 'clicks', as the stream is"),
        (lambda b, u, c: c.join(u.groupBy("name").count(), "user"), "USING column `user` cannot be resolved on the r"),
        (
            lambda b, u, c: c.withColumnRenamed("page", "count").join(u.groupBy("name").count(), "count"),
            "its key 'name' is bigint, and the stream's column string",
        ),
        (lambda b, u, c: c.join(u.groupBy("name").count().drop("name"), "user"), "USING column `user` cannot be"),
        (lambda b, u, c: c.select("page").to_table(), "no column here holds it unchanged"),
        (lambda b, u, c: c.to_table(logged=1), "to_table\\(\\) takes logged=True or logged=False, not 1"),
        (lambda b, u, c: b.table(["a", "b"], key=String(), value=String("v")), "table\\(\\) takes one topic"),
        (lambda b, u, c: b.table("a", key=None, value=String("v")), "table\\(\\) takes both formats"),
        (lambda b, u, c: b.table("a", key="k", value=String("v")), "takes a format such as String"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(builder, users, clicks, write, message):
    with pytest.raises(TopologyException, match=f"test_tables.py:{write.__code__.co_firstlineno}: .*{message}"):
        write(builder, users, clicks)


def test_a_table_of_the_very_rows_that_look_into_it_is_refused(builder, clicks):
    clicks.join(clicks.select("user", "n").to_table(), "user").to("out")
    with pytest.raises(
        TopologyException, match="are read from the same topic, and rows with equal timestamps have no defined order"
    ):
        builder.build()


def test_a_lookup_that_leads_nowhere_is_refused(builder, users, clicks):
    clicks.join(users, "user")
    with pytest.raises(TopologyException, match=r"nothing uses the result of join\(\.\.\.\)"):
        builder.build()


def test_of_several_copies_of_the_key_the_one_that_was_read_is_meant(builder, users, clicks):
    made = clicks.selectExpr("*", "user AS zed", "user AS ada").to_table(name="last")
    builder.stream("in", key=String("user"), value=Json("x int")).join(made, "user").to("out")
    assert [lookup.columns for leg in builder.build().legs for lookup in leg.lookups] == [("user",)]
    renamed = clicks.withColumnRenamed("user", "who").to_table(name="other")
    builder.stream("in2", key=String("who"), value=Json("x int")).join(renamed, "who").to("out2")


@pytest.mark.parametrize(("how", "way"), [("left_semi", "inner"), ("left_anti", "left")])
def test_rows_may_stay_or_go_by_what_a_table_has(builder, users, clicks, how, way):
    clicks.join(users, "user", how).to("out")
    (leg,) = (leg for leg in builder.build().legs if leg.sink is not None)
    (lookup,) = leg.lookups
    assert lookup.how == way
    assert leg.before[-1].names == ("user", "page", "n", "at", "kafka")


def test_other_terms_than_the_key_decide_what_is_found(builder, users, clicks, F):
    condition = (clicks.user == users.user) & (clicks.page != users.name)
    clicks.join(users, condition).select("page").to("out")
    (leg,) = (leg for leg in builder.build().legs if leg.sink is not None)
    (lookup,) = leg.lookups
    assert (lookup.columns, lookup.how) == (("user",), "inner")
    assert "where NOT (page = name)" in leg.before[-1].steps


@pytest.fixture
def countries(spark):
    return spark.sql("SELECT 'x' AS page, 1L AS count, 'y' AS country")


def test_a_dataframe_is_collected_where_the_join_says_so(builder, clicks, countries):
    every_time = clicks.join(countries.select("page"), "page")
    every_time.join(countries, "page", "leftouter", refresh="10 minutes").to("out")
    topology = builder.build()
    (leg,) = topology.legs
    joined, now_and_then = leg.before[:2]
    assert any(step.startswith("Inner join with a DataFrame on page = page") for step in joined.steps)
    assert (now_and_then.refresh, now_and_then.keys, now_and_then.how) == ("10 minutes", ("page",), "left")
    assert now_and_then.frame.columns[0] == "page"
    assert leg.collected == (now_and_then,)
    assert "join(DataFrame, page, left, refresh='10 minutes')" in topology.describe()


def test_it_may_stand_behind_a_table_too(builder, clicks, countries):
    clicks.groupBy("user").count().to_stream().join(countries, "count", refresh="1 day").to("out")
    (leg,) = builder.build().legs
    assert [part.refresh for part in leg.collected] == ["1 day"]


@pytest.mark.parametrize("refresh", ["", " ", 10, 0, True, ["10 minutes"]])
def test_how_old_a_dataframe_may_get_is_an_interval(clicks, countries, refresh):
    with pytest.raises(
        TopologyException, match=r'test_tables.py:\d+: refresh= of join\(\) takes an interval such as "10 m'
    ):
        clicks.join(countries, "page", refresh=refresh)


def test_a_table_is_not_refreshed(clicks, users):
    with pytest.raises(TopologyException, match=r"test_tables.py:\d+: refresh='1 day' of join\(\) is for a DataFrame"):
        clicks.join(users, "user", refresh="1 day")


def test_a_table_behind_a_lookup_is_warned_of(builder, users, clicks, caplog):
    """A lookup takes no record without a value, so there is none that would delete."""
    clicks.join(users, "user", "left").to_table(name="kept").to("out")
    builder.build()
    assert [record.getMessage().partition(": ")[2] for record in caplog.records if "end at the join" in record.message]
    caplog.clear()
    StreamsBuilder().stream("in", key=String("k"), value=Json("n int")).to_table()
    assert not caplog.records


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (
            lambda clicks, users: clicks.join(users, clicks.page == users.name),
            r"withColumnRenamed\(.page., .user.\), or make a table .* repartition\(.page.\).to_table\(\)",
        ),
        (lambda clicks, users: clicks.withColumnRenamed("page", "name").join(users, ["name", "n"]), "`n` cannot be"),
        (
            lambda clicks, users: clicks.join(users, (clicks.page == users.name) & (clicks.user == users.name)),
            "goes by its key, 'user', not by 'name', 'name'; say on='user', and give the stream's columns these names",
        ),
    ],
)
def test_a_join_by_other_columns_than_the_key_is_refused_with_what_to_do(users, clicks, join, words):
    with pytest.raises(TopologyException, match=words):
        join(clicks, users)


@pytest.fixture
def rates(builder):
    return builder.table("rates", key=String("user"), value=Json("rate int"), history="1 hour")


def test_a_table_with_a_history_is_looked_into_as_of_a_time(builder, rates, clicks):
    clicks.join(rates, "user").to("newest")
    timed = builder.stream("views", key=String("user"), value=Json("at timestamp"))
    timed.withWatermark("at", "1 minute").join(rates.where("rate > 0"), "user").to("timed")
    topology = builder.build()
    tables = {leg.store: leg.aggregation for leg in topology.legs if leg.aggregation is not None}
    assert {name: table.history for name, table in tables.items()} == dict.fromkeys(tables, "1 hour")
    assert len(tables) == 2, "the one behind where() has a history, too"
    (plain,), (by_time,) = (leg.lookups for leg in topology.legs if leg.lookups)
    assert (plain.as_of, plain.watermark) == (True, None)
    assert (by_time.as_of, by_time.watermark) == (True, EventTime("at", 60_000))
    assert 'table("rates", history="1 hour")' in topology.describe()


def test_a_table_of_a_stream_may_have_a_history(builder, clicks):
    clicks.to_table(history="2 days").to("out")
    (leg,) = builder.build().legs
    assert (leg.aggregation.history, leg.aggregation.text) == ("2 days", 'to_table(history="2 days")')


def test_another_history_is_another_pipeline():
    prints = set()
    for history in (None, "1 hour", "2 hours"):
        builder = StreamsBuilder()
        builder.table("rates", key=String("user"), value=Json("rate int"), history=history).to("out")
        prints.add(builder.build().fingerprint)
    assert len(prints) == 3


@pytest.mark.parametrize("history", ["", " ", 10, 0, True, ["1 hour"]])
def test_a_history_is_an_interval(builder, history):
    with pytest.raises(TopologyException, match=r'history= of table\("t"\) takes an interval such as "1 hour", not'):
        builder.table("t", key=String("k"), value=Json("v int"), history=history)


def test_rows_wait_in_front_of_a_table(builder, rates, clicks):
    clicks.where("n > 1").join(rates, "user", grace="5 minutes", name="slow").groupBy("user").count().to("out")
    topology = builder.build()
    delayed = next(leg for leg in topology.legs if leg.store == "slow")
    (taken,) = delayed.before
    assert taken.steps == ("where n > 1", "where user IS NOT NULL"), "rows without a key find nothing"
    assert (delayed.emitting.grace, delayed.emitting.watermark) == ("5 minutes", EventTime("", 0))
    assert delayed.sink.topic == "slow-repartition"
    (looking,) = (leg for leg in topology.legs if leg.lookups)
    assert looking.source.topics == ("slow-repartition",)
    assert looking.lookups[0].grace == "5 minutes"
    assert len(topology.subtopologies) == 2
    assert "Processor: slow (stores: [slow])" in topology.describe()


@pytest.mark.parametrize("stream", ["of one topic", "of a union", "without duplicates"])
def test_a_store_of_rows_that_wait_has_one_leg(builder, rates, clicks, stream):
    clicks = clicks.withWatermark("at", "1 minute")
    if stream == "of a union":
        clicks = clicks.unionByName(
            builder.stream("more", key=String("user"), value=Json(CLICK)).withWatermark("at", "1 minute")
        )
    elif stream == "without duplicates":
        clicks = clicks.dropDuplicates(["user"])
    clicks.join(rates, "user", grace="5 minutes").to("out")
    topology = builder.build()
    (delayed,) = (leg for leg in topology.legs if leg.store and "delayed" in leg.store)
    assert delayed.emitting.watermark == EventTime("at", 60_000)
    assert delayed.source.internal == (stream != "of one topic")


@pytest.mark.parametrize(
    ("join", "words"),
    [
        (
            lambda b, s: s.join(b.table("t", key=String("user"), value=Json("v int")), "user", grace="1 h"),
            "give it one",
        ),
        (
            lambda b, s: s.join(b.global_table("t", key=String("user"), value=Json("v int")), "user", grace="1 h"),
            "none",
        ),
        (lambda b, s: s.join(s, "user", within="1 hour", grace="1 h"), "is for a table with a history; leave it out"),
        (lambda b, s: s.join(b.table("t", key=String("user"), value=Json("v int")), "user", grace=5), "an interval"),
    ],
)
def test_only_in_front_of_a_history_rows_wait(builder, clicks, join, words):
    with pytest.raises(TopologyException, match=words):
        join(builder, clicks)


def test_a_column_is_said_that_a_condition_between_two_columns_finds(builder):
    """The arguments of BETWEEN stand beside what it comes to, and name the columns before the join."""
    builder.table("rates", key=String("kind"), value=Json("least int, most int"))
    builder.stream("parcels", key=String("id"), value=Json("kind string, grams int"))
    joined = "parcels p LEFT JOIN rates r ON p.kind = r.kind AND grams BETWEEN least AND most"
    builder.sql(f"SELECT least, count(*) AS n FROM {joined} GROUP BY least").to("out")
    (counted,) = [
        leg for leg in builder.build().legs if leg.aggregation is not None and "least" in leg.aggregation.keys
    ]
    assert counted.taken.words(counted.taken.columns[0].number)
