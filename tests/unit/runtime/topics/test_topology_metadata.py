"""What members show of their topology is enough to find the group's tasks, exactly as the runtime lays them out."""

import pytest

from sparkrelay import Json, StreamsBuilder, String
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.topics.layout import lay_out
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.runtime.topics.topology_metadata import (
    difference,
    metadata_tasks,
    parse_topology_metadata,
    topology_metadata,
)
from sparkrelay.topology.building.optimization import reusing_source_topics

pytestmark = pytest.mark.usefixtures("spark")


def test_the_tasks_of_the_card_are_those_of_the_layout():
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=String("user"), value=Json("shop string"))
    orders.groupBy("user", name="users").count().to("by-user")
    orders.groupBy("shop", name="shops").count().to("by-shop")
    builder.stream("clicks", key=String("user"), value=Json("page string")).where("page is not null").to("pages")
    topology = builder.build()
    counts = {"orders": 3, "clicks": 2, "by-user": 1, "by-shop": 1, "pages": 1}
    layout = lay_out(topology, TopicNames("app"), counts)
    subscribed = {partition.topic for shape in layout.tasks.values() for partition in shape.inputs}
    assert any(topic.startswith("app-") for topic in subscribed), "there is a repartition topic"

    card = parse_topology_metadata(topology_metadata(topology), "app", subscribed)
    known = counts | {topic.name: topic.partitions for topic in layout.internal_topics.values()}
    tasks = {task.id: task for task in metadata_tasks(card, known)}
    assert tasks.keys() == layout.tasks.keys()
    for id_, shape in layout.tasks.items():
        assert tasks[id_].input_topic_partitions == frozenset(shape.inputs)
        assert tasks[id_].changelog_topic_partitions == frozenset(shape.changelogs.values())
        assert tasks[id_].state_store_names == frozenset(shape.changelogs)


def test_a_table_that_reuses_its_topic_is_found_with_it():
    builder = StreamsBuilder()
    people = builder.table("people", key=String("user"), value=Json("name string"), name="people")
    orders = builder.stream("orders", key=String("user"), value=Json("n int"))
    orders.join(people, "user").to("named")
    orders.groupBy("user").count(name="counts")
    topology = reusing_source_topics(builder.build(), from_beginning=True)
    counts = {"orders": 2, "people": 2, "named": 1}
    layout = lay_out(topology, TopicNames("app"), counts)
    card = parse_topology_metadata(topology_metadata(topology), "app", {"orders", "people"})
    assert card[0].reused == {"people"}
    assert card[0].changelogs == {"people": "people", "counts": "app-counts-changelog"}
    tasks = {task.id: task for task in metadata_tasks(card, counts)}
    for id_, shape in layout.tasks.items():
        assert tasks[id_].changelog_topic_partitions == frozenset(shape.changelogs.values())
        assert tasks[id_].input_topic_partitions == frozenset(shape.inputs)
    words = difference(topology_metadata(builder.build()), topology_metadata(topology))
    assert "it adds reused topic people of store people of sub-topology 0" in words


def test_a_store_without_changelog_is_reported_as_such():
    cards = []
    for logged in (True, False):
        builder = StreamsBuilder()
        orders = builder.stream("orders", key=String("user"), value=Json("n int"))
        orders.groupBy("user").count(name="users", logged=logged)
        cards.append(topology_metadata(builder.build()))
    words = difference(*cards)
    assert words == "it lacks store users of sub-topology 0; it adds unlogged store users of sub-topology 0"
    [(_number, part)] = parse_topology_metadata(cards[1], "app", {"orders"}).items()
    assert part.changelogs == {}


@pytest.mark.parametrize(
    "card", ["", "{", "[]", "{}", '{"parts": {"x": []}}', '{"parts": {"0": [1]}}', '{"parts": 3}', "[" * 100_000]
)
def test_what_is_no_card_is_refused(card):
    with pytest.raises(StreamsException, match="the topology metadata of a member of 'app' is unreadable"):
        parse_topology_metadata(card, "app", set())


@pytest.mark.parametrize("card", ["", "[]", "{}", '{"parts": 3}', '{"parts": {"0": 1}}', "[" * 100_000])
def test_what_is_no_card_differs_in_words(card):
    assert difference('{"parts": {"0": []}}', card) == "its description is unreadable"
