"""The topics of a group as its leader sees and watches them."""

from __future__ import annotations

from tests.unit.consumer.surroundings import Topics

from sparkrelay.consumer.group.leading import TopicWatch
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_leader_asks_for_a_rebalance_when_topics_change_but_not_for_those_it_made(cluster, metadata_message):
    metadata, topics = cluster({"t": 1}), Topics()
    watch = TopicWatch(metadata, topics)
    views = []
    watch.view(frozenset({"t", "made", "absent"}), views.append)
    topics.answer()
    assert dict(views[0].partitions) == {"t": (0,)}
    metadata.update(metadata_message({"made": 4}), requested={"made"})
    assert watch.changed() == []
    watch.assigned({"t", "made"})
    topics.answer()
    assert watch.changed() == []
    metadata.update(metadata_message({"t": 2}), requested={"t"})
    assert watch.changed() == ["t"]
    assert watch.changed() == []
    metadata.update(metadata_message({"absent": 1}), requested={"absent"})
    assert watch.changed() == ["absent"]
    watch.stop()
    metadata.update(metadata_message({"t": 3}), requested={"t"})
    assert watch.changed() == []


def test_racks_are_shown_to_assignors_and_watched_by_leaders_that_have_one(cluster, metadata_message):
    def response(racks):
        message = metadata_message({"t": 2}, brokers=(1, 2))
        for broker, rack in zip(message.brokers, racks, strict=True):
            broker.rack = rack
        for partition, node in zip(message.topics[0].partitions, (1, 2), strict=True):
            partition.replica_nodes = [node]
        return message

    metadata, topics = cluster({}), Topics()
    metadata.update(response(["a", None]), requested=None)
    watches = [TopicWatch(metadata, topics, by_rack=by_rack) for by_rack in (False, True)]
    views = []
    for watch in watches:
        watch.view(frozenset({"t"}), views.append)
        topics.answer()
        watch.assigned({"t"})
        topics.answer()
    assert dict(views[0].racks) == {T0: frozenset({"a"}), T1: frozenset()}
    metadata.update(response(["a", "b"]), requested={"t"})
    assert [watch.changed() for watch in watches] == [[], ["t"]]
