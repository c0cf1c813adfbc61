"""PlaintextConsumerAssignorsTest: who gets what, by assignors of the members (classic) or of the broker (KIP-848)."""

from __future__ import annotations

import pytest
from tests.integration.consumer.conformance.protocols import only_classic, only_consumer
from tests.waiting import LONG

from sparkrelay.errors import KafkaException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def _shared(partitions, members):
    shares = [set(member.held) for member in members]
    return all(shares) and sum(map(len, shares)) == len(partitions) and set().union(*shares) == set(partitions)


def _subscribe_more_and_less(consumer, make_topic, await_assignment):
    topics = [make_topic("conform", partitions=2) for _ in range(3)]
    partitions = [TopicPartition(topic, p) for topic in topics for p in range(2)]
    assert consumer.assignment() == frozenset()
    for count in (2, 3, 2):
        consumer.subscribe(topics[:count])
        await_assignment(consumer, partitions[: 2 * count])
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()


@only_classic
def test_round_robin_assignment(make_consumer, make_topic, await_assignment):
    consumer = make_consumer(partition_assignment_strategy="roundrobin")
    _subscribe_more_and_less(consumer, make_topic, await_assignment)


@only_classic
def test_multi_consumer_round_robin_assignor(make_topic, members, wait_until):
    topics = {make_topic("conform", partitions=5): 5, make_topic("conform", partitions=8): 8}
    partitions = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
    group = [members(topics, partition_assignment_strategy="roundrobin") for _ in range(5)]
    wait_until(lambda: _shared(partitions, group), "not shared among five")
    assert sorted(len(member.held) for member in group) == [2, 2, 3, 3, 3]
    group.append(members(topics, partition_assignment_strategy="roundrobin"))
    wait_until(lambda: _shared(partitions, group), "not shared among six")
    assert sorted(len(member.held) for member in group) == [2, 2, 2, 2, 2, 3]
    assert members.owners.clashes == []


@only_classic
@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_multi_consumer_sticky_assignor(make_topic, members, wait_until, strategy):
    """A newcomer takes one partition of each member that has more than its share; nothing else moves."""
    topic = make_topic("conform", partitions=20)
    partitions = [TopicPartition(topic, p) for p in range(20)]
    group = [members([topic], partition_assignment_strategy=strategy) for _ in range(4)]
    wait_until(lambda: _shared(partitions, group) and {len(m.held) for m in group} == {5}, "not five each")
    before = {p: member for member in group for p in member.held}
    group.append(members([topic], partition_assignment_strategy=strategy))
    wait_until(lambda: _shared(partitions, group) and {len(m.held) for m in group} == {4}, "not four each")
    after = {p: member for member in group for p in member.held}
    assert {p for p in partitions if before[p] is not after[p]} == group[-1].held
    assert members.owners.clashes == []


@only_classic
def test_multi_consumer_default_assignor_and_verify_assignment(make_topic, members, wait_until):
    """`range` is the first of the defaults: the first member has the first two of three partitions of each topic."""
    topics = [make_topic("conform", partitions=3) for _ in range(2)]
    partitions = {TopicPartition(topic, p) for topic in topics for p in range(3)}
    group = [members(topics, partition_assignment_strategy="range,cooperative-sticky") for _ in range(2)]
    wait_until(lambda: _shared(partitions, group), "not shared")
    expected = [{p for p in partitions if p.partition < 2}, {p for p in partitions if p.partition == 2}]
    assert sorted((member.held for member in group), key=len, reverse=True) == expected


def test_multi_consumer_default_assignor(make_topic, members, wait_until):
    """Both protocols: members come, and everything is shared out without ever being owned twice."""
    topics = {make_topic("conform", partitions=2): 2, make_topic("conform", partitions=5): 5}
    partitions = [TopicPartition(topic, p) for topic, count in topics.items() for p in range(count)]
    group = [members(topics) for _ in range(2)]
    wait_until(lambda: _shared(partitions, group), "not shared among two")
    group += [members(topics) for _ in range(2)]
    wait_until(lambda: _shared(partitions, group), "not shared among four")
    assert members.owners.clashes == []


@only_consumer
def test_remote_assignor_invalid(make_consumer, topic):
    consumer = make_consumer(group_remote_assignor="invalid")
    consumer.subscribe([topic])
    with pytest.raises(KafkaException, match="UNSUPPORTED_ASSIGNOR"):
        consumer.poll(LONG)


@only_consumer
@pytest.mark.parametrize("assignor", ["range", "uniform"])
def test_remote_assignor(make_consumer, make_topic, await_assignment, assignor):
    consumer = make_consumer(group_remote_assignor=assignor)
    _subscribe_more_and_less(consumer, make_topic, await_assignment)


@only_classic
@pytest.mark.parametrize(("strategy", "rebalances"), [("cooperative-sticky", 2), ("range", 1)])
def test_rebalance_and_rejoin(make_topic, members, wait_until, strategy, rebalances):
    """A second member costs an eager group one generation and a cooperative one two; nobody gets a new member id."""
    topic = make_topic("conform", partitions=2)
    places = []

    def note(member, _):
        metadata = member.consumer.group_metadata()
        places.append((metadata.generation, metadata.member_id))

    first = members([topic], partition_assignment_strategy=strategy, hooks={"assigned": note}, enable_auto_commit=True)
    wait_until(lambda: len(first.held) == 2, "not assigned")
    stable = places[-1]
    second = members([topic], partition_assignment_strategy=strategy, enable_auto_commit=True)
    wait_until(lambda: len(first.held) == len(second.held) == 1, "not shared")
    place = first.consumer._network.core.group_metadata
    assert (place.generation, place.member_id) == (stable[0] + rebalances, stable[1])
