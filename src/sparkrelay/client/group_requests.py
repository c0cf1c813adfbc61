"""Requests to and about a group's coordinator: who it is, and the offsets that it keeps.

An offset means something in one topic only. A topic that was deleted and created again has the same name and another
id. Since version 10 (Kafka 4.1) offsets can go by the id of the topic in which they were found, and the broker refuses
them for another one. A request is in one version: where any id is unknown, all topics go by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from sparkrelay.client.messages import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["GROUP", "Member", "find_coordinators", "offset_commit", "offset_fetch"]

#: The key type of a group in FindCoordinator.
GROUP: Final = 0
_LAST_VERSION_WITH_NAMES: Final = 9
#: Many keys, or groups, in one request: FindCoordinator 4 (Kafka 3.0, KIP-699), OffsetFetch 8 (KIP-709).
_MANY_COORDINATORS: Final = 4
_MANY_GROUPS: Final = 8
#: OffsetCommit 7 (KIP-345).
_STATIC_MEMBERS: Final = 7


class Member(Protocol):
    """A member's place in its group."""

    @property
    def generation(self) -> int:
        """Number of the rebalance, or epoch of the member."""

    @property
    def member_id(self) -> str:
        """Its name, given by the broker."""

    @property
    def group_instance_id(self) -> str | None:
        """Its static name (KIP-345)."""


def find_coordinators(keys: Iterable[str], key_type: int = GROUP) -> Any:
    """Return FindCoordinator for groups or transactional ids."""
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
        group: whose offsets.
        partitions: of which; None: of all.
        stable: True to wait for offsets of a transaction that is not decided yet (KIP-447).
        member: who asks; None: nobody of the group.
        ids: ids of topics, as far as known.
    """
    known, make = ids or {}, OffsetFetchRequest.OffsetFetchRequestGroup
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions or ()):
        topics.setdefault(partition.topic, []).append(partition.partition)
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
        group: whose offsets.
        offsets: offset, leader epoch (-1: unknown) and text of each partition.
        member: as whom; None: as nobody, which a group without members accepts.
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
