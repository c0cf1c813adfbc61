"""Requests to and about a group's coordinator: its lookup, and committed offsets.

A topic that was deleted and recreated keeps its name but gets another id. Since version 10 (Kafka 4.1) offsets can name
the topic in which they were found by its id, and the broker refuses them for another one. A request has one version: if
any id is unknown, all topics go by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkrelay.client.messages import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TopicPartition

_LAST_VERSION_WITH_NAMES: Final = 9
#: Many keys, or groups, in a request: FindCoordinator 4 (Kafka 3.0, KIP-699), OffsetFetch 8 (KIP-709).
_MANY_COORDINATORS: Final = 4
_MANY_GROUPS: Final = 8
#: OffsetCommit 7 (KIP-345).
_STATIC_MEMBERS: Final = 7


class Member(Protocol):
    """A member's place in its group."""

    @property
    def generation(self) -> int:
        """Generation of a classic group, or the member's epoch."""

    @property
    def member_id(self) -> str:
        """The name given by the broker."""

    @property
    def group_instance_id(self) -> str | None:
        """The static name (KIP-345)."""


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in the order given."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def find_coordinators(keys: Iterable[str], key_type: int = 0) -> Any:
    """Return FindCoordinator for groups (key type 0) or transactional ids (1)."""
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys), min_version=_MANY_COORDINATORS)


def offset_fetch(
    group: str,
    partitions: Collection[TopicPartition] | None,
    *,
    stable: bool,
    member: Member | None = None,
    ids: Mapping[str, uuid.UUID] | None = None,
) -> Any:
    """Return OffsetFetch.

    Args:
        group: its id.
        partitions: None for all.
        stable: whether to wait for the end of pending transactional commits (KIP-447).
        member: the asking member, None for nobody.
        ids: topic ids, as far as known.
    """
    known, make = ids or {}, OffsetFetchRequest.OffsetFetchRequestGroup
    topics = by_topic(sorted(partitions or ()))
    asked = [
        make.OffsetFetchRequestTopics(name=name, topic_id=known.get(name), partition_indexes=parts)
        for name, parts in topics.items()
    ]
    return OffsetFetchRequest(
        groups=[
            make(
                group_id=group,
                member_id=None if member is None else member.member_id,
                member_epoch=-1 if member is None else member.generation,
                topics=None if partitions is None else asked,
            )
        ],
        require_stable=stable,
        min_version=_MANY_GROUPS,
        **_bound(map(known.get, topics) if topics else [None]),
    )


def offset_commit(
    group: str,
    offsets: Mapping[TopicPartition, tuple[int, int, str]],
    *,
    member: Member | None = None,
    ids: Mapping[TopicPartition, uuid.UUID] | None = None,
) -> Any:
    """Return OffsetCommit.

    Args:
        group: its id.
        offsets: offset, leader epoch (-1: unknown) and metadata of each partition.
        member: the committing member; None is accepted by a group without members only.
        ids: ids of the topics in which the offsets were found, as far as known.
    """
    known, make = ids or {}, OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[tuple[str, uuid.UUID | None], list[Any]] = {}
    for partition, (offset, epoch, text) in offsets.items():
        topics.setdefault((partition.topic, known.get(partition)), []).append(
            make.OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=text,
            )
        )
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1 if member is None else member.generation,
        member_id="" if member is None else member.member_id,
        group_instance_id=None if member is None else member.group_instance_id,
        topics=[make(name=name, topic_id=topic_id, partitions=parts) for (name, topic_id), parts in topics.items()],
        min_version=_STATIC_MEMBERS,
        **_bound(topic_id for _, topic_id in topics),
    )


def _bound(ids: Iterable[uuid.UUID | None]) -> dict[str, int]:
    return {"max_version": _LAST_VERSION_WITH_NAMES} if any(topic_id is None for topic_id in ids) else {}
