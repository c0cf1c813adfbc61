"""A topic is deleted and made again while nobody polls: no record of the new one may be skipped in silence.

The old topic's position, committed under the topic's name, would be where reading of the new one begins.
"""

from __future__ import annotations

import pytest
from tests.waiting import collect

from sparkrelay.consumer import TopicPartition
from sparkrelay.errors import KafkaException, UnknownTopicException

OLD, NEW = 100, 150


@pytest.fixture
def topics(make_topic, produce):
    """One topic to be made again, and one that stays."""
    remade, other = make_topic("remade"), make_topic("other")
    for topic in (remade, other):
        produce(topic, [{"value": f"old {i}"} for i in range(OLD)], enable_idempotence=True)
    return remade, other


def read_or_learn(consumer, count):
    """Return so many values, or those that came before the consumer said that its topic is another one."""
    learned = []

    def poll():
        try:
            return [row["value"].decode() for row in consumer.poll(0.3).to_pylist()]
        except KafkaException as error:
            if isinstance(error, UnknownTopicException) and "was not committed" in str(error):
                learned.append(error)
            return ()

    return collect(poll, lambda found: learned or len(found) >= count, f"not {count} records")


@pytest.mark.long
@pytest.mark.parametrize("absent_seconds", [0, 0.3, 1])
@pytest.mark.parametrize("committed_by", ["interval", "on_revoked"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_no_record_of_a_remade_topic_is_skipped(
    make_consumer, topics, produce, read, make_again, group, protocol, committed_by, absent_seconds
):
    remade, _ = topics
    consumer = make_consumer(
        group_id=group,
        group_protocol=protocol,
        enable_auto_commit=committed_by == "interval",
        metadata_max_age_ms=1000,
    )

    def revoked(consumer, partitions):
        if committed_by == "on_revoked":
            consumer.commit()

    consumer.subscribe([remade], on_revoked=revoked)
    read(consumer, OLD)
    make_again(remade, absent_seconds)  # while the program works
    produce(remade, [{"value": f"new {i}"} for i in range(NEW)], enable_idempotence=True)
    found = read_or_learn(consumer, NEW)
    if len(found) < NEW:
        assert found == []
        consumer.seek_to_beginning([TopicPartition(remade, 0)])
        found = read_or_learn(consumer, NEW)
    assert found == [f"new {i}" for i in range(NEW)]


def test_a_commit_names_the_topic_that_is_gone_and_covers_the_others(
    make_consumer, topics, produce, read, make_again, wait_until, group
):
    remade, other = (TopicPartition(topic, 0) for topic in topics)
    consumer = make_consumer(group_id=group, enable_auto_commit=False)
    consumer.assign([remade, other])
    read(consumer, 2 * OLD)
    make_again(remade.topic)
    with pytest.raises(UnknownTopicException, match=f"{remade.topic}-0 at {OLD}.*seek") as refused:
        consumer.commit({remade: OLD, other: OLD})
    assert not refused.value.retriable
    assert other.topic not in str(refused.value)
    assert consumer.committed([remade, other]) == {remade: None, other: OLD}
    consumer.seek(remade, 0)
    produce(remade.topic, [{"value": f"new {i}"} for i in range(NEW)], enable_idempotence=True)
    read(consumer, NEW)
    consumer.commit()
    assert consumer.committed([remade, other]) == {remade: NEW, other: OLD}


def test_offsets_of_partitions_that_are_not_assigned_are_committed(make_consumer, topics, group):
    remade, other = (TopicPartition(topic, 0) for topic in topics)
    consumer = make_consumer(group_id=group)
    consumer.commit({remade: 1})  # nothing is known of the topic
    consumer.partitions_for(remade.topic)
    consumer.commit({remade: 2, other: 3})  # of one of them
    consumer.partitions_for(other.topic)
    consumer.commit({remade: 4})
    assert consumer.committed([remade, other]) == {remade: 4, other: 3}


def test_a_remade_topic_that_was_known_takes_offsets(make_consumer, topics, make_again, wait_until, group):
    """Nothing was read, so the name is all that the program means."""
    remade, _ = (TopicPartition(topic, 0) for topic in topics)
    consumer = make_consumer(group_id=group)
    consumer.commit({remade: 5})
    consumer.partitions_for(remade.topic)
    make_again(remade.topic)
    # Kafka drops the old topic's offsets by its name, a moment after it has shown the new one.
    wait_until(lambda: consumer.committed([remade]) == {remade: None}, "the old topic's offsets are still there")
    consumer.commit({remade: 7})
    assert consumer.committed([remade]) == {remade: 7}
