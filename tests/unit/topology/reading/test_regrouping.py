"""How the rows of a group come into one task."""

# ruff: noqa: N803 - everybody writes F

import pytest

from sparkrelay import Json, String
from sparkrelay.topology.reading.regrouping import path

VALUE = Json("origin string, delay double, time timestamp, who struct<name:string,of:struct<house:string>>")


@pytest.fixture
def rows(builder):
    return builder.stream("flights", key=String("carrier"), value=VALUE)


def topics(builder):
    """Return the key and partition count of each repartition topic, and what is done in front of it."""
    legs = [leg for leg in builder.build().legs if leg.sink is not None and leg.sink.internal]
    return [(leg.sink.key, leg.sink.partitions, [text for part in leg.before for text in part.steps]) for leg in legs]


def keys(builder):
    (found,) = (leg.aggregation.keys for leg in builder.build().legs if leg.aggregation is not None)
    return found


@pytest.mark.parametrize(
    "columns",
    [
        lambda F: ["carrier"],
        lambda F: ["origin", "carrier"],
        lambda F: ["carrier", F.upper("origin")],
        lambda F: ["carrier", F.window("time", "1 hour")],
        lambda F: ["kafka.key"],
        lambda F: ["kafka.partition", "origin"],
    ],
)
def test_rows_that_lie_by_a_column_of_the_group_stay_where_they_are(builder, rows, F, columns):
    rows.groupBy(*columns(F)).count().to("out")
    assert topics(builder) == []


def test_a_message_without_a_key_is_left_out_there(builder, rows):
    rows.groupBy("carrier", "origin").count().to("out")
    (leg,) = builder.build().legs
    assert [text for part in leg.before for text in part.steps] == ["where carrier IS NOT NULL"]


def test_by_the_partition_none_is_left_out(builder, rows):
    rows.groupBy("kafka.partition").count().to("out")
    (leg,) = builder.build().legs
    assert [text for part in leg.before for text in part.steps] == []


def test_plain_columns_make_the_key_of_the_topic(builder, rows, F):
    rows.groupBy("origin", "delay", F.upper("origin"), F.window("time", "1 hour")).count().to("out")
    ((key, partitions, _),) = topics(builder)
    assert (key, partitions) == (("origin", "delay"), None)
    assert keys(builder) == ("origin", "delay", "upper(origin)", "window")


def test_a_column_that_is_named_twice_is_a_part_of_it_once(builder, rows):
    rows.groupBy("origin", "ORIGIN").count().to("out")
    ((key, _, before),) = topics(builder)
    assert key == ("origin",)
    assert before == ["where origin IS NOT NULL"]


@pytest.mark.parametrize(
    ("columns", "key", "steps"),
    [
        (
            lambda F: [F.upper("origin")],
            ("upper(origin)",),
            ["with `upper(origin)` = upper(origin)", "where `upper(origin)` IS NOT NULL"],
        ),
        (
            lambda F: [F.upper("origin").alias("up"), F.lower("origin").alias("low")],
            ("up", "low"),
            ["with up = upper(origin), low = lower(origin)"],
        ),
        (lambda F: ["who.name"], ("name",), ["with name = who.name", "where name IS NOT NULL"]),
        (lambda F: ["who.of.house"], ("house",), ["with house = who.of.house", "where house IS NOT NULL"]),
    ],
)
def test_expressions_are_computed_in_front_of_it_if_there_is_nothing_else(builder, rows, F, columns, key, steps):
    rows.groupBy(*columns(F)).count().to("out")
    assert topics(builder) == [(key, None, steps)]
    assert keys(builder) == key


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        (lambda F: [F.upper("origin").alias("up"), F.window("time", "1 hour")], "up"),
        (lambda F: [F.window("time", "1 hour"), F.upper("origin").alias("up")], "up"),
        (lambda F: [F.window("time", "1 hour"), F.col("who.name").alias("up")], "up"),
    ],
)
def test_beside_an_expression_a_window_is_made_behind_the_topic(builder, rows, F, columns, key):
    """As a part of its key it would only spread the rows of one group over the tasks."""
    rows.groupBy(*columns(F)).count().to("out")
    ((found, _, _),) = topics(builder)
    assert found == (key,)
    assert {*keys(builder)} == {"up", "window"}


def test_a_window_alone_makes_the_key_where_no_clock_is_needed(builder, rows, F):
    rows.groupBy(F.window("time", "1 hour")).count().to("out")
    ((key, partitions, _),) = topics(builder)
    assert (key, partitions) == (("window",), None)


def test_a_window_alone_with_a_watermark_is_in_one_task(builder, rows, F):
    """A task whose clock sees only windows of its own would never know that they are over."""
    rows.withWatermark("time", "1 minute").groupBy(F.window("time", "1 hour")).count().to("out")
    ((key, partitions, _),) = topics(builder)
    assert (key, partitions) == (("window",), 1)


def test_sessions_are_made_behind_the_topic(builder, rows, F):
    timed = rows.withWatermark("time", "1 minute")
    timed.groupBy("origin", F.session_window("time", "1 hour")).count().to("out")
    ((key, partitions, before),) = topics(builder)
    assert (key, partitions) == (("origin",), None)
    assert not any("session" in text for text in before)


def test_a_table_s_rows_always_go_through_a_topic(builder):
    table = builder.table("people", key=String("person"), value=Json("town string"))
    table.groupBy("person").count().to("out")
    (writer,) = (leg for leg in builder.build().legs if leg.sink is not None and leg.sink.internal)
    assert (writer.sink.key, writer.sends_changes) == (("person",), True)


def test_rows_behind_a_stateful_step_go_through_one(builder, rows):
    rows.dropDuplicates(["carrier"]).groupBy("carrier").count().to("out")
    assert [key for key, _, _ in topics(builder)] == [("carrier",)]


def test_columns_of_one_name_are_told_apart_in_the_topic(builder, rows, F):
    made = rows.select("*", F.upper("origin").alias("made"))
    made.select(made.made.alias("origin"), made.origin, made.delay).groupBy(made.origin).count().to("out")
    ((key, _, _),) = topics(builder)
    assert key == ("origin_2",)


def test_a_path_leads_to_a_field(rows, F):
    grouped = rows.select("who.of.house", "origin", F.upper("origin"))
    made = [one.children[0] if one.kind == "Alias" else one for one in grouped._rows.plan.expressions]
    place = rows.columns.index
    assert [path(rows._rows, one) for one in made] == [(place("who"), 1, 0), (place("origin"),), None]


def written(builder):
    """Return which step's rows each repartition topic takes, with its last condition."""
    legs = [leg for leg in builder.build().legs if leg.sink is not None and leg.sink.internal]
    return {
        leg.sink.topic: [text for part in (*leg.before, *leg.of_table, *leg.after) for text in part.steps]
        for leg in legs
    }


def test_a_grouping_of_a_grouping_by_the_same_columns_takes_its_rows(builder):
    builder.table("people", key=String("person"), value=Json("town string, age int"))
    inner = "SELECT town, age, count(*) AS n FROM people GROUP BY town, age HAVING count(*) > 1"
    builder.sql(f"SELECT town, age, count(*) AS n FROM ({inner}) GROUP BY town, age").to("out")
    last = [steps[-1] for steps in written(builder).values()]
    assert last == ["where person IS NOT NULL", "where n > CAST(1 AS bigint)"]


def test_groupings_of_other_rows_by_the_same_columns_have_topics_of_their_own(builder):
    builder.table("people", key=String("person"), value=Json("town string, age int"))
    halves = (f"SELECT town, count(*) AS n FROM people WHERE age {than} 9 GROUP BY town" for than in "<>")
    builder.sql("SELECT a.town, a.n, b.n AS m FROM ({}) AS a JOIN ({}) AS b ON a.town = b.town".format(*halves)).to(
        "out"
    )
    assert [steps[-2] for steps in written(builder).values()] == ["where age < 9", "where age > 9"]


def test_a_grouping_that_is_aggregated_twice_has_one_topic(builder, rows, F):
    for by in (["origin"], ["origin", F.window("time", "1 hour")]):
        groups = rows.where("delay > 0").groupBy(*by)
        groups.count().to(f"counts-{len(by)}")
        groups.agg(F.max("delay")).to(f"delays-{len(by)}")
    assert len(written(builder)) == 2
