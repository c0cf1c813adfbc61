"""Which topics committed offsets belong to.

Offsets are committed under the id of the topic in which they were found (``client.group_requests``). Brokers before
Kafka 4.1 know names only; for them the newest metadata decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.errors import UnknownTopicException

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Mapping

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.types import TopicPartition

__all__ = ["Sorted", "gone_error", "ids_by_topic", "sort_out", "topic_names"]


class Sorted(NamedTuple):
    """What can be committed, and what cannot.

    Attributes:
        ids: the topic's id of partitions of which one is known.
        gone: partitions of which the position belongs to a topic that is there no more.
    """

    ids: dict[TopicPartition, uuid.UUID]
    gone: frozenset[TopicPartition]


def sort_out(
    partitions: Iterable[TopicPartition], found_in: Mapping[TopicPartition, uuid.UUID], metadata: Metadata
) -> Sorted:
    """Compare the topics in which offsets were found with those that there are.

    Args:
        partitions: what is to be committed.
        found_in: ids of the topics in which positions were found. Of the others the name is all that we know.
        metadata: the topics that there are, as far as we know.
    """
    ids: dict[TopicPartition, uuid.UUID] = {}
    gone = set()
    for partition in partitions:
        found, there = found_in.get(partition), metadata.topic_id(partition.topic)
        missing = metadata.topic_error(partition.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if found is not None and (missing or there not in (None, found)):
            gone.add(partition)
        elif (topic_id := found or there) is not None:
            ids[partition] = topic_id
    return Sorted(ids, frozenset(gone))


def ids_by_topic(partitions: Iterable[TopicPartition], metadata: Metadata) -> dict[str, uuid.UUID]:
    """Return the ids of topics that there are, as far as we know."""
    known = ((topic, metadata.topic_id(topic)) for topic in {partition.topic for partition in partitions})
    return {topic: topic_id for topic, topic_id in known if topic_id is not None}


def topic_names(ids: Mapping[TopicPartition, uuid.UUID]) -> dict[uuid.UUID, str]:
    """Return the names under which an answer's topics were asked for."""
    return {topic_id: partition.topic for partition, topic_id in ids.items()}


def gone_error(
    what: str, gone: Iterable[TopicPartition], offsets: Mapping[TopicPartition, tuple[int, int, str]]
) -> UnknownTopicException:
    """Return (not raise) the error for offsets that belong to a topic that is there no more."""
    names = ", ".join(f"{partition} at {offsets[partition][0]}" for partition in sorted(gone))
    error = UnknownTopicException(
        f"{what}: not committed: {names}: the topic was deleted, or deleted and created again, so its offsets mean "
        "other records now; seek() to go on"
    )
    error.retriable = False
    return error
