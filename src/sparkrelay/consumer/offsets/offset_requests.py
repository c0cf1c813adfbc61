"""OffsetCommit and OffsetFetch, and which topics they are about.

An offset means something in one topic only. A topic that was deleted and made again has the same name and another id,
so offsets go out under the id of the topic in which they were found: since version 10 (Kafka 4.1) the broker refuses
them for another one. Older brokers know names only; for them the newest metadata has to do. A request is in one
version: where any id is unknown, all topics go by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.messages import OffsetCommitRequest, OffsetFetchRequest
from sparkrelay.errors import UnknownTopicException

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.types import TopicPartition

__all__ = ["Sorted", "commit_request", "fetch_request", "gone_error", "ids_by_topic", "sort_out", "topic_names"]

_LAST_VERSION_WITH_NAMES: Final = 9
_MIN_COMMIT_VERSION: Final = 7  # static members
_MIN_FETCH_VERSION: Final = 8


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


def commit_request(
    group_id: str,
    place: GroupMetadata | None,
    offsets: Mapping[TopicPartition, tuple[int, int, str]],
    ids: Mapping[TopicPartition, uuid.UUID],
) -> Any:
    """Return OffsetCommit: (offset, leader epoch, text) by partition, as a member if there is a ``place``."""
    make = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[tuple[str, uuid.UUID | None], list[Any]] = {}
    for partition, (offset, epoch, text) in offsets.items():
        topics.setdefault((partition.topic, ids.get(partition)), []).append(
            make.OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=text,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1 if place is None else place.generation,
        member_id="" if place is None else place.member_id,
        group_instance_id=None if place is None else place.group_instance_id,
        topics=[make(name=name, topic_id=topic_id, partitions=parts) for (name, topic_id), parts in topics.items()],
        min_version=_MIN_COMMIT_VERSION,
        **_bound(topic_id for _, topic_id in topics),
    )


def fetch_request(
    group_id: str,
    member: GroupMetadata | None,
    partitions: Collection[TopicPartition],
    ids: Mapping[str, uuid.UUID],
) -> Any:
    """Return OffsetFetch, as a member if one is given."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[
            group(
                group_id=group_id,
                member_id=None if member is None else member.member_id,
                member_epoch=-1 if member is None else member.generation,
                topics=[
                    group.OffsetFetchRequestTopics(name=name, topic_id=ids.get(name), partition_indexes=parts)
                    for name, parts in topics.items()
                ],
            )
        ],
        # Offsets of a transaction that is not decided yet are waited for (KIP-447).
        require_stable=True,
        min_version=_MIN_FETCH_VERSION,
        **_bound(map(ids.get, topics)),
    )


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


def _bound(ids: Iterable[uuid.UUID | None]) -> dict[str, int]:
    return {"max_version": _LAST_VERSION_WITH_NAMES} if any(topic_id is None for topic_id in ids) else {}
