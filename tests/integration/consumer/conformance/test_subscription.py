"""PlaintextConsumerSubscriptionTest: subscriptions that grow, shrink, match patterns, or are wrong."""

from __future__ import annotations

import re

import pytest
from tests.integration.consumer.conformance.protocols import only_consumer
from tests.waiting import LONG

from sparkrelay.errors import KafkaException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def test_expanding_topic_subscriptions(make_consumer, make_topic, await_assignment, partitions_of, topic):
    consumer = make_consumer()
    consumer.subscribe([topic])
    await_assignment(consumer, partitions_of(topic))
    other = make_topic("conform", partitions=2)
    consumer.subscribe([topic, other])
    await_assignment(consumer, partitions_of(topic) | partitions_of(other))
    assert consumer.subscription() == {topic, other}


def test_shrinking_topic_subscriptions(make_consumer, make_topic, await_assignment, partitions_of, topic):
    other = make_topic("conform", partitions=2)
    consumer = make_consumer()
    consumer.subscribe([topic, other])
    await_assignment(consumer, partitions_of(topic) | partitions_of(other))
    consumer.subscribe([topic])
    await_assignment(consumer, partitions_of(topic))
    assert consumer.subscription() == {topic}


def test_unsubscribe_topic(make_consumer, await_assignment, partitions_of, topic, story):
    """To subscribe to nothing is to unsubscribe."""
    consumer = make_consumer()
    consumer.subscribe([topic], **story.callbacks())
    await_assignment(consumer, partitions_of(topic))
    consumer.subscribe([])
    assert consumer.assignment() == consumer.subscription() == frozenset()
    assert story.kinds() == ["assigned", "revoked"]


@pytest.mark.parametrize("end", ["unsubscribe", "close"])
def test_subscribe_invalid_topic_can(make_consumer, wait_until, end):
    consumer, caught = make_consumer(), []
    consumer.subscribe(["topic abc"])

    def polled():
        try:
            consumer.poll(0.5)
        except KafkaException as error:
            caught.append(error)
        return caught

    wait_until(polled, "no error")
    assert "topic abc" in str(caught[0])
    getattr(consumer, end)()


@pytest.fixture
def named_topic(kafka_admin, wait_until, group):
    """`named_topic("foo")` makes a topic of two partitions with that end to its name, and returns its name."""
    from confluent_kafka.admin import NewTopic

    def make(end):
        name = f"{group}-{end}"
        kafka_admin.create_topics([NewTopic(name, num_partitions=2)])[name].result(LONG)
        wait_until(lambda: name in kafka_admin.list_topics(timeout=LONG).topics, f"no topic {name}")
        return name

    return make


@pytest.mark.long
def test_pattern_subscription(
    make_consumer, named_topic, fill, expect_rows, await_assignment, partitions_of, group, protocol
):
    """A pattern stands for all topics whose whole names match, also for those that come later."""
    matching = [named_topic(end) for end in ("topic", "tblablac")]
    for end in ("tblablak", "tblab1", "xtopicx"):
        named_topic(end)
    consumer = make_consumer()
    consumer.subscribe(re.compile(f"{group}-t.*c"))
    await_assignment(consumer, partitions_of(matching[0]) | partitions_of(matching[1]))
    late = named_topic("tsomec")
    await_assignment(consumer, partitions_of(matching[0]) | partitions_of(matching[1]) | partitions_of(late))
    # Under KIP-848 the broker matches, and says only what is assigned.
    assert consumer.subscription() == ({*matching, late} if protocol == "classic" else frozenset())
    partition = next(iter(partitions_of(late)))
    fill(partition, 10)
    expect_rows(consumer, partition, 10)
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()


def test_subsequent_pattern_subscription(make_consumer, named_topic, await_assignment, partitions_of, group):
    """It is the new pattern that makes the consumer look for topics, not the age of what it knows."""
    topic, foo = named_topic("topic"), named_topic("foo")
    consumer = make_consumer(metadata_max_age_ms=300_000)
    consumer.subscribe(re.compile(f"{group}-.*o.*"))
    await_assignment(consumer, partitions_of(topic) | partitions_of(foo))
    bar = named_topic("bar")
    consumer.subscribe(re.compile(f"{group}-..."))
    await_assignment(consumer, partitions_of(foo) | partitions_of(bar))


def test_pattern_then_names_then_pattern(make_consumer, named_topic, await_assignment, partitions_of, group):
    one, two = named_topic("one"), named_topic("two")
    pattern = re.compile(f"{group}-o.*")
    consumer = make_consumer()
    for subscription, topics in ((pattern, [one]), ([two], [two]), (pattern, [one])):
        consumer.subscribe(subscription)
        await_assignment(consumer, set().union(*map(partitions_of, topics)))
        consumer.unsubscribe()
        assert consumer.assignment() == consumer.subscription() == frozenset()


def test_offsets_of_other_topics_beside_a_pattern(
    make_consumer, named_topic, make_topic, fill, expect_rows, await_assignment, partitions_of, group
):
    """Looking up a topic that the pattern does not match disturbs neither the subscription nor its fetches."""
    matched = named_topic("topic")
    other = TopicPartition(make_topic("conform"), 0)
    partition = TopicPartition(matched, 0)
    consumer = make_consumer()
    consumer.subscribe(re.compile(f"{group}-topic.*"))
    await_assignment(consumer, partitions_of(matched))
    fill(partition, 10)
    expect_rows(consumer, partition, 10)
    assert consumer.end_offsets([other, partition]) == {other: 0, partition: 10}
    fill(partition, 10)
    expect_rows(consumer, partition, 10, offset=10, index=0)
    assert consumer.assignment() == partitions_of(matched)


@only_consumer
def test_pattern_that_the_broker_cannot_read(make_consumer):
    """The broker matches as RE2 does, which knows no lookahead."""
    consumer = make_consumer()
    consumer.subscribe(re.compile("(?=t).*c"))
    with pytest.raises(KafkaException, match="INVALID_REGULAR_EXPRESSION"):
        consumer.poll(LONG)
    consumer.unsubscribe()
