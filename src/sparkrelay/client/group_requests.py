"""Requests to and about a group's coordinator: its lookup, and committed offsets.

A topic that was deleted and recreated keeps its name but gets another id. Since version 10 (Kafka 4.1) offsets can name
the topic in which they were found by its id, and the broker refuses them for another one. A request has one version: if
any id is unknown, all topics go by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.messages import FindCoordinatorRequest, OffsetCommitRequest, OffsetFetchRequest
from sparkrelay.client.messages.per_topic import each_partition, grouped

if TYPE_CHECKING:
    import uuid
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from sparkrelay.types import TopicPartition

_LAST_VERSION_WITH_NAMES: Final = 9
#: Many keys, or groups, in a request: FindCoordinator 4 (Kafka 3.0, KIP-699), OffsetFetch 8 (KIP-709).
_MANY_COORDINATORS: Final = 4
_MANY_GROUPS: Final = 8
#: OffsetCommit 7 (KIP-345).
_STATIC_MEMBERS: Final = 7


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member's identity in its group, as offset commits name it.

    Attributes:
        group_id: the group.
        generation: number of the rebalance, or the member's epoch; -1 outside of a group.
        member_id: name assigned by the broker; empty outside of a group.
        group_instance_id: static name (KIP-345), or None.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset.

    Attributes:
        offset: of the next record to be read.
        metadata: any text; the group's members see it with ``committed(..., with_metadata=True)``.
        leader_epoch: of the record before it, -1 if unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def find_coordinators(keys: Iterable[str], key_type: int = 0) -> Any:
    """Return FindCoordinator for groups (key type 0) or transactional ids (1)."""
    return FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys), min_version=_MANY_COORDINATORS)


def offset_fetch(
    group: str,
    partitions: Collection[TopicPartition] | None,
    *,
    stable: bool,
    member: GroupMetadata | None = None,
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
    topics = grouped(sorted(partitions or ()))
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


def fetch_codes(group: Any) -> Iterator[int]:
    """Yield all error codes in a group's answer to OffsetFetch, 0 for none."""
    yield group.error_code
    yield from (part.error_code for _, part in each_partition(group.topics))


def fetched_offsets(
    group: Any, names: Mapping[uuid.UUID, str] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets in a group's answer to OffsetFetch, without partitions that have none.

    ``names`` are the topics' by their ids, if the request had ids.
    """
    return {
        partition: OffsetAndMetadata(part.committed_offset, part.metadata or "", part.committed_leader_epoch)
        for partition, part in each_partition(group.topics, names)
        if part.committed_offset >= 0
    }


def offset_commit(
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    member: GroupMetadata | None = None,
    ids: Mapping[TopicPartition, uuid.UUID] | None = None,
) -> Any:
    """Return OffsetCommit.

    Args:
        group: its id.
        offsets: by partition.
        member: the committing member; None is accepted by a group without members only.
        ids: ids of the topics in which the offsets were found, as far as known.
    """
    known, make = ids or {}, OffsetCommitRequest.OffsetCommitRequestTopic
    topics = grouped(
        ((partition.topic, known.get(partition)), commit_part(make.OffsetCommitRequestPartition, partition, commit))
        for partition, commit in offsets.items()
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


def commit_part(make: Any, partition: TopicPartition, commit: OffsetAndMetadata) -> Any:
    """Return the part of a commit, in a transaction or not, about one partition."""
    return make(
        partition_index=partition.partition,
        committed_offset=commit.offset,
        committed_leader_epoch=commit.leader_epoch,
        committed_metadata=commit.metadata,
    )


def _bound(ids: Iterable[uuid.UUID | None]) -> dict[str, int]:
    return {"max_version": _LAST_VERSION_WITH_NAMES} if any(topic_id is None for topic_id in ids) else {}
