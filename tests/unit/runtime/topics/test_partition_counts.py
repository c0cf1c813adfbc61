import re

import pytest

from sparkrelay.errors import StreamsException
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.topics.layout import lay_out
from sparkrelay.runtime.topics.partition_counts import count_partitions
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.topology import StreamsBuilder
from sparkrelay.types import TaskId, TopicPartition

pytestmark = pytest.mark.usefixtures("spark")

NAMES = TopicNames("app")


def looking_up(*, repartitioned=(), partitions=None):
    builder = StreamsBuilder()
    users = builder.table("users", key=String("user"), value=Json("name string"))
    clicks = builder.stream("clicks", key=String("user"), value=Json("page string"))
    if repartitioned:
        clicks = clicks.repartition(*repartitioned, partitions=partitions)
    clicks.join(users, "user").to("out", value=Json())
    return builder.build()


def test_a_stream_and_the_table_it_looks_into_share_their_tasks():
    layout = lay_out(looking_up(), NAMES, {"users": 2, "clicks": 2, "out": 1})
    assert set(layout.tasks) == {TaskId(0, 0), TaskId(0, 1)}
    shape = layout.tasks[TaskId(0, 1)]
    assert shape.inputs == (TopicPartition("clicks", 1), TopicPartition("users", 1))
    assert shape.changelogs == {"users-table": TopicPartition("app-users-table-changelog", 1)}
    assert shape.state_topics == {"users"}, "the stream goes on where the group's offsets are"


def test_topics_that_are_cut_differently_are_refused():
    with pytest.raises(StreamsException, match="'clicks' has 3, 'users' has 2") as raised:
        lay_out(looking_up(), NAMES, {"users": 2, "clicks": 3, "out": 1})
    assert re.search(r"test_partition_counts.py:\d+: join\(user, inner\)", str(raised.value))
    assert 'repartition("user")' in str(raised.value)


def joined(**sides):
    builder = StreamsBuilder()
    left = builder.table("left", key=String("k"), value=Json("l string"))
    right = builder.stream("right", key=String("id"), value=Json("k string, r string"))
    left.join(right.select("k", "r").repartition("k", **sides).to_table(name="right"), "k").to("out", value=Json())
    return builder.build()


def test_joined_tables_share_their_tasks():
    shape = lay_out(joined(), NAMES, {"left": 3, "right": 2, "out": 1}).tasks[TaskId(0, 2)]
    assert shape.inputs == (TopicPartition("app-right-by-k-repartition", 2), TopicPartition("left", 2))
    assert shape.changelogs.keys() == {"left-table", "right"}


def test_joined_tables_of_topics_that_are_cut_differently_are_refused():
    with pytest.raises(StreamsException, match="tables that are joined must have the same number") as raised:
        lay_out(joined(partitions=2), NAMES, {"left": 3, "right": 2, "out": 1})
    assert re.search(r"test_partition_counts.py:\d+: join\(k, inner\)", str(raised.value))


@pytest.mark.parametrize("clicks", [2, 5, 7])
def test_a_repartition_topic_is_as_wide_as_the_table(clicks):
    counts = count_partitions(looking_up(repartitioned=["user"]), NAMES, {"users": 5, "clicks": clicks, "out": 1})
    assert counts == {"users": 5, "clicks": clicks, "app-clicks-by-user-repartition": 5}


def test_what_the_user_has_said_of_a_repartition_topic_stays():
    topology = looking_up(repartitioned=["user"], partitions=3)
    with pytest.raises(StreamsException, match="-repartition' has 3, 'users' has 5.*without partitions="):
        count_partitions(topology, NAMES, {"users": 5, "clicks": 1, "out": 1})


def test_both_sides_behind_repartition_topics_are_as_wide_as_the_wider_one():
    builder = StreamsBuilder()
    table = builder.stream("a", value=Json("user string")).repartition("user").to_table(name="t")
    builder.stream("b", value=Json("user string, n int")).join(table, "user").to("out")
    counts = count_partitions(builder.build(), NAMES, {"a": 2, "b": 6, "out": 1})
    assert counts == {"a": 2, "b": 6, "app-a-by-user-repartition": 6, "app-b-by-user-repartition": 6}


def tables(builder):
    users = builder.table("users", key=String("user"), value=Json("name string"))
    made = builder.stream("a", value=Json("user string, x int")).repartition("user").to_table(name="t1")
    other = builder.stream("b", value=Json("user string, y int")).repartition("user").to_table(name="t2")
    return {"users": users, "t1": made, "t2": other}


@pytest.mark.parametrize(
    ("joins", "wide"),
    [
        ({"c": ["t1", "t2"]}, 7),
        ({"c": ["t1", "users"]}, 4),
        ({"c": ["users", "t1"]}, 4),
        ({"c": ["t1"], "d": ["t1"]}, 7),
        ({"c": ["t1"], "d": ["t1", "t2"], "e": ["t2", "users"]}, 4),
    ],
)
def test_whatever_lookups_tie_together_is_of_one_width(joins, wide):
    builder = StreamsBuilder()
    made = tables(builder)
    for name, wanted in joins.items():
        stream = builder.stream(name, value=Json(f"user string, {name} int"))
        for table in wanted:
            stream = stream.join(made[table], "user")
        stream.to(f"out-{name}")
    for name in made:
        made[name].to(f"copy-{name}")
    topics = {"users": 4, "a": 2, "b": 7 if "t2" in joins["c"] or "e" in joins else 1, "c": 3, "d": 7, "e": 5}
    counts = count_partitions(builder.build(), NAMES, topics)
    tied = {name for wanted in joins.values() for name in wanted}
    found = {counts["app-a-by-user-repartition"]} if "t1" in tied else set()
    found |= {counts["app-b-by-user-repartition"]} if "t2" in tied else set()
    found |= {counts[f"app-{name}-by-user-repartition"] for name in joins}
    assert found == {wide}


@pytest.mark.parametrize(("orders", "customers"), [(4, 2), (2, 5), (3, 3)])
def test_a_foreign_key_goes_to_as_many_tasks_as_the_right_table_has(orders, customers):
    builder = StreamsBuilder()
    left = builder.table("orders", key=String("id"), value=Json("user string"))
    left.join(builder.table("users", key=String("user"), value=Json("name string")), "user").to("out")
    counts = count_partitions(builder.build(), NAMES, {"orders": orders, "users": customers, "out": 1})
    assert counts == {
        "orders": orders,
        "users": customers,
        "app-orders-table-by-user-repartition": customers,
        "app-orders-table-join-users-table-by-id-repartition": orders,
    }
