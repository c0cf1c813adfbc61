import uuid

import pytest
from hypothesis import given, strategies as st
from kafka.protocol.metadata import MetadataResponse

from sparkrelay.client.metadata import Broker, Metadata
from sparkrelay.types import TopicPartition

ID = uuid.UUID(int=7)
Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def topic(name, leaders, *, topic_id=ID, error=0, epoch=0):
    partitions = [
        Partition(
            error_code=0,
            partition_index=p,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
            version=12,
        )
        for p, leader in leaders.items()
    ]
    return Topic(error_code=error, name=name, topic_id=topic_id, is_internal=False, partitions=partitions, version=12)


def response(*topics, brokers=(1, 2)):
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(b, "h", 9000 + b, None, version=12) for b in brokers],
        controller_id=1,
        cluster_id="c",
        topics=list(topics),
        version=12,
    )


@pytest.fixture
def metadata():
    return Metadata()


def test_brokers_topics_and_leaders_are_known(metadata):
    metadata.update(response(topic("a", {1: 2, 0: 1, 2: -1})), requested=["a"])
    assert metadata.brokers == {1: Broker(1, "h", 9001), 2: Broker(2, "h", 9002)}
    assert metadata.controller == 1
    assert metadata.partitions("a") == (0, 1, 2)
    assert [metadata.leader(TopicPartition("a", p)) for p in range(4)] == [1, 2, None, None]
    assert (metadata.topic_id("a"), metadata.topic_name(ID)) == (ID, "a")
    assert metadata.partitions("b") is None


def test_a_partial_answer_leaves_other_topics_alone(metadata):
    metadata.update(response(topic("a", {0: 1})), requested=None)
    metadata.update(response(topic("b", {0: 1})), requested=["b"])
    assert set(metadata.topics()) == {"a", "b"}


def test_an_answer_about_all_topics_forgets_those_that_are_gone(metadata):
    metadata.update(response(topic("a", {0: 1})), requested=None)
    metadata.update(response(topic("b", {0: 1})), requested=None)
    assert set(metadata.topics()) == {"b"}


def test_a_topic_that_was_deleted_is_forgotten_and_its_error_kept(metadata):
    metadata.update(response(topic("a", {0: 1})), requested=["a"])
    metadata.update(response(topic("a", {}, error=3)), requested=["a"])
    assert metadata.partitions("a") is None
    assert metadata.topic_error("a") == 3
    metadata.update(response(topic("a", {0: 1})), requested=["a"])
    assert metadata.topic_error("a") == 0


def test_an_answer_without_brokers_changes_nothing(metadata):
    metadata.update(response(topic("a", {0: 1})), requested=["a"])
    version = metadata.version
    metadata.update(response(brokers=()), requested=None)
    assert metadata.partitions("a") == (0,)
    assert metadata.version == version


def test_a_stale_broker_does_not_undo_a_newer_leader(metadata):
    metadata.update(response(topic("a", {0: 2}, epoch=5)), requested=["a"])
    metadata.update(response(topic("a", {0: 1}, epoch=4)), requested=["a"])
    assert metadata.leader(TopicPartition("a", 0)) == 2
    assert metadata.leader_epoch(TopicPartition("a", 0)) == 5


def test_a_topic_made_again_starts_its_epochs_anew(metadata):
    metadata.update(response(topic("a", {0: 2}, epoch=5)), requested=["a"])
    metadata.update(response(topic("a", {0: 1}, epoch=0, topic_id=uuid.UUID(int=8))), requested=["a"])
    assert metadata.leader(TopicPartition("a", 0)) == 1
    assert metadata.topic_name(ID) is None


@given(st.lists(st.tuples(st.integers(1, 2), st.integers(0, 9)), min_size=1, max_size=20))
def test_the_newest_epoch_wins_in_any_order(hints):
    metadata = Metadata()
    tp = TopicPartition("a", 0)
    metadata.update(response(topic("a", {0: 1}, epoch=0)), requested=["a"])
    best = (1, 0)
    for leader, epoch in hints:
        news = metadata.set_leader(tp, leader, epoch)
        assert news == (epoch > best[1])
        best = (leader, epoch) if news else best
    assert (metadata.leader(tp), metadata.leader_epoch(tp)) == best


def test_a_hint_about_an_unknown_partition_is_ignored(metadata):
    assert not metadata.set_leader(TopicPartition("a", 0), 1, 1)
