"""Joins of tables, as they are written down."""

import pytest

from sparkrelay.errors import TopologyException
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder


def table(builder, topic, key="k", **more):
    return builder.table(topic, key=String(key), value=Json(f"{topic} string"), **more)


def test_a_join_keeps_nothing_and_reads_both_stores(builder):
    table(builder, "a").join(table(builder, "b"), "k", "leftOuter").to("out")
    (part,) = builder.build().subtopologies
    assert [(leg.id, leg.store) for leg in part.legs] == [
        *(("store:a-table", "a-table"), ("store:b-table", "b-table"), ("sink:a-table-join-b-table-to-out", None)),
    ]
    leg = part.legs[-1]
    join = leg.table_join
    assert (join.how, join.columns.names, join.width) == ("left", ["k", "a", "b", "right_found"], 1)
    assert join.stores == ("a-table", "b-table")
    assert leg.reads_stores == {"a-table", "b-table"}
    assert [source.topics for source in leg.sources] == [("a",), ("b",)]
    assert part.source_topics == {"a", "b"}


@pytest.mark.parametrize(
    ("how", "way"),
    [("inner", "inner"), ("left", "left"), ("right_outer", "right"), ("outer", "full"), ("FULL", "full")],
)
def test_the_way_is_said_in_pysparks_words(builder, how, way):
    table(builder, "a").join(table(builder, "b"), ["k"], how).to("out")
    assert [leg.table_join.how for leg in builder.build().legs if leg.table_join] == [way]


def test_joins_of_joins_read_each_store_once(builder):
    a, b, c = (table(builder, name) for name in "abc")
    both = a.join(b, "k")
    both.join(c, "k", "outer").where("c is null").to("out")
    both.groupBy("b").count().to("counts")
    topology = builder.build()
    (out,) = (leg for leg in topology.legs if leg.sink is not None and leg.sink.topic == "out")
    assert out.table_join.stores == ("a-table", "b-table", "c-table")
    assert out.table_join.left.text == "join(k, inner)"
    assert out.filters_table
    assert [part.steps[-1] for part in out.of_table] == ["where c IS NULL"]
    (group,) = (leg for leg in topology.legs if leg.sends_changes)
    assert group.table_join is out.table_join.left, "of one join there is one"
    assert [part.source_topics for part in topology.subtopologies] == [{"a", "b", "c"}, set()]


def test_tables_come_before_what_is_joined_of_them(builder):
    b = table(builder, "b")
    a = table(builder, "a")
    a.join(b, "k").to("out")
    b.to("copy")
    legs = [leg.id for leg in builder.build().upstream_first]
    assert legs.index("sink:a-table-join-b-table-to-out") == len(legs) - 1


def test_a_table_behind_steps_is_kept_as_it_is_there(builder):
    users = table(builder, "users", "user")
    some = users.where("users <> 'x'").withColumnRenamed("user", "k").drop("kafka")
    table(builder, "a").join(some, "k").to("out")
    builder.stream("s", key=String("k"), value=Json("n int")).join(some, "k").to("enriched")
    topology = builder.build()
    assert {leg.store for leg in topology.legs if leg.store} == {"a-table", "users-table-where-withColumnRenamed-drop"}
    (kept,) = (leg for leg in topology.legs if leg.store and leg.store.startswith("users"))
    first, behind = kept.before
    assert (first.steps, first.deletes) == (("where user IS NOT NULL",), ())
    assert behind.steps == ("where NOT (users = 'x')", "rename user to k", "where k IS NOT NULL")
    assert behind.deletes == (0,), "what passes the filter no more is deleted by its key"
    assert kept.aggregation.keys == ("k",)


def test_a_named_table_behind_steps_is_called_after_it(builder):
    users = table(builder, "users", name="people")
    table(builder, "a").join(users.where("users <> 'x'"), "k").to("out")
    assert [leg.store for leg in builder.build().legs if leg.store] == ["a-table", "people-where"]


def test_the_table_itself_is_kept_where_somebody_needs_it(builder):
    users = table(builder, "users")
    table(builder, "a").join(users.where("users <> 'x'"), "k").to("out")
    builder.stream("s", key=String("k"), value=Json("n int")).join(users, "k").to("enriched")
    stores = {leg.store for leg in builder.build().legs if leg.store}
    assert stores == {"a-table", "users-table", "users-table-where"}


def test_tables_of_groups_are_keyed_by_what_spreads_them(builder):
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string, n int"))
    table(builder, "users", "user").join(clicks.groupBy("user").count(), "user").to("one")
    table(builder, "pages", "page").join(clicks.groupBy("page").count(), "page").to("two")
    parts = builder.build().subtopologies
    assert [sorted(topic for leg in part.legs for topic in leg.source.topics) for part in parts] == [
        ["clicks", "clicks", "users", "users"],
        ["clicks-by-page-repartition", "pages", "pages"],
    ]


def test_the_description_shows_what_is_joined(builder):
    a, b, c = (table(builder, name) for name in "abc")
    a.join(b, "k").join(c, "k", "left").to("out")
    text = builder.build().describe()
    assert "Processor: a-table-join-1 (stores: [a-table, b-table])\n      join(k, inner)" in text
    assert "Processor: a-table-join-1-join-2 (stores: [a-table, b-table, c-table])\n      join(k, left)" in text


def test_pipelines_that_join_otherwise_are_not_the_same():
    def built(how, *names):
        builder = StreamsBuilder()
        tables = {name: table(builder, name) for name in "ab"}
        tables[names[0]].join(tables[names[1]], "k", how).to("out", name="out")
        return builder.build().fingerprint

    ways = [("inner", *"ab"), ("left", *"ab"), ("inner", *"ba"), ("left_semi", *"ab"), ("anti", *"ab")]
    assert len({built(*way) for way in ways}) == 5


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda b, a: a.join(table(b, "b"), "a"), "USING column `a` cannot be resolved on the right side"),
        (lambda b, a: a.join(table(b, "b", "x"), "k"), "The right-side columns: \\[`b`, `x`\\]"),
        (
            lambda b, a: a.join(b.global_table("g", key=String("k"), value=Json("g int")), "k"),
            "streams look into those",
        ),
        (lambda b, a: a.join(b.stream("s"), "k"), "a stream looks into a table"),
        (lambda b, a: a.join(table(StreamsBuilder(), "b"), "k"), "takes a table of the same builder"),
        (lambda b, a: a.join(table(b, "b").drop("k"), "k"), "USING column `k` cannot be resolved on the right side"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(builder, write, message):
    with pytest.raises(TopologyException, match=f"test_table_joins.py:[0-9]+: .*({message})"):
        write(builder, table(builder, "a"))


def test_a_join_that_leads_nowhere_is_refused(builder):
    table(builder, "a").join(table(builder, "b"), "k")
    with pytest.raises(TopologyException, match=r"nothing uses the result of join\(\.\.\.\)"):
        builder.build()


def test_columns_of_a_join_may_be_left_out_before_the_next_one(builder):
    both = table(builder, "a").join(table(builder, "b"), "k").select("k", "b")
    both.join(table(builder, "c"), "k").to("out")
    (leg,) = (leg for leg in builder.build().legs if leg.sink is not None)
    assert leg.table_join.stores == ("a-table", "b-table", "c-table")
    assert leg.of_table[-1].names == ("k", "b", "c")


def test_what_is_computed_of_a_join_is_kept_again_for_the_next_one(builder):
    both = table(builder, "a").join(table(builder, "b"), "k").selectExpr("k", "concat(a, b) AS c")
    both.join(table(builder, "d"), "k").to("out")
    kept = {leg.store for leg in builder.build().legs if leg.store is not None}
    assert kept >= {"a-table-join-b-table-left-by-k", "d-table-right-by-k"}


def test_only_windows_have_final_rows(builder):
    joined = table(builder, "a").join(table(builder, "b"), "k")
    with pytest.raises(TopologyException, match="final row of each window, and a join of tables has none"):
        joined.outputMode("append")


def test_stores_with_and_without_a_changelog_are_not_joined(builder):
    table(builder, "a").join(table(builder, "b", logged=False), "k").to("out")
    with pytest.raises(TopologyException, match="has no changelog"):
        builder.build()


@pytest.mark.parametrize("on", ["l.k = r.k", "l.boss = r.k"])
def test_a_table_is_joined_with_rows_of_itself(builder, on):
    builder.table("people", key=String("k"), value=Json("boss string, age int"))
    older = "SELECT k, age + 1 AS age FROM people WHERE age > 9"
    builder.sql(f"SELECT l.k, r.age FROM people AS l JOIN ({older}) AS r ON {on}").to("out")
    steps = [[text for part in leg.before for text in part.steps] for leg in builder.build().legs]
    assert any({"where age > 9", "select k, age + 1 AS age"} <= {*some} for some in steps)


def test_a_query_repeats_no_rows_of_a_table(builder):
    builder.table("people", key=String("k"), value=Json("pets array<string>"))
    pets = "SELECT k, explode(pets) AS pet FROM people"
    with pytest.raises(TopologyException, match=r"test_table_joins.py:\d+: sql\(\) of a table may drop rows or repeat"):
        builder.sql(pets)
    # What is grouped is taken back together.
    builder.sql(f"SELECT pet, count(*) AS n FROM ({pets}) GROUP BY pet").to("out")
    assert builder.build()
