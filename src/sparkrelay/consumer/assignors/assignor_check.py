"""What an assignor may answer: refused here, on the thread that ran it, before anything of it goes to the group.

An assignor may be the user's. What it got wrong would otherwise be found out by the other members, or by nobody: a
partition that two members read, or one that nobody does because its number does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.consumer.base.assignor import MemberAssignment
from sparkrelay.errors import KafkaException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from sparkrelay.consumer.base.assignor import ClusterView, MemberSubscription, PartitionAssignor

__all__ = ["checked_assignment", "checked_user_data"]


def checked_user_data(assignor: PartitionAssignor, data: object) -> bytes:
    """Return what an assignor sends to the leader.

    Raises:
        KafkaException: it is not bytes.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise KafkaException(f"assignor {assignor.name!r}: subscription_user_data() returned {data!r}; return bytes")
    return bytes(data)


def checked_assignment(
    assignor: PartitionAssignor, answer: object, cluster: ClusterView, members: Mapping[str, MemberSubscription]
) -> Mapping[str, MemberAssignment]:
    """Return an answer that has something for every member, if it makes sense.

    Members that the assignor left out get an empty assignment: Java's consumer fails if it gets none at all.

    Raises:
        KafkaException: the answer is nonsense; the message names the assignor and what is wrong.
    """
    try:
        return _checked(answer, cluster, members, cooperative=assignor.supports_cooperative)
    except _NonsenseError as nonsense:
        refused = KafkaException(f"assignor {assignor.name!r} {nonsense}; nothing was assigned")
        # The cluster view may be older than what the assignor saw; the next one will not be.
        refused.retriable = nonsense.passing
        raise refused from None


class _NonsenseError(Exception):
    """What is wrong, and whether the next try may be right."""

    def __init__(self, what: str, *, passing: bool = False) -> None:
        super().__init__(what)
        self.passing = passing


def _checked(
    answer: object, cluster: ClusterView, members: Mapping[str, MemberSubscription], *, cooperative: bool
) -> Mapping[str, MemberAssignment]:
    if not isinstance(answer, Mapping):
        raise _NonsenseError(f"returned {_short(answer)}, not a mapping of member ids to MemberAssignment")
    owner: dict[TopicPartition, str] = {}
    for member, assignment in answer.items():
        if member not in members:
            raise _NonsenseError(f"gives partitions to {_short(member)}, which is no member of the group")
        if not isinstance(assignment, MemberAssignment):
            raise _NonsenseError(f"gives {_short(assignment)} to {member}, which is no MemberAssignment")
        if not isinstance(assignment.user_data, bytes | bytearray | memoryview):
            raise _NonsenseError(f"gives the user data {_short(assignment.user_data)} to {member}, which is not bytes")
        for partition in assignment.partitions:
            _check_partition(partition, member, cluster)
            if partition in owner:
                raise _NonsenseError(f"gives {partition} twice: to {owner[partition]} and to {member}")
            owner[partition] = member
    if cooperative:
        _check_cooperative(owner, members)
    return MappingProxyType({member: answer.get(member, MemberAssignment()) for member in members})


def _check_partition(partition: object, member: str, cluster: ClusterView) -> None:
    match partition:
        case TopicPartition(str(topic), int(number)) if number >= 0:
            if number not in cluster.partitions.get(topic, (number,)):  # it may have created other topics itself
                count = len(cluster.partitions[topic])
                raise _NonsenseError(
                    f"gives {partition} to {member}, but the topic has {count} partitions", passing=True
                )
        case _:
            raise _NonsenseError(f"gives {_short(partition)} to {member}, which is no TopicPartition")


def _check_cooperative(owner: Mapping[TopicPartition, str], members: Mapping[str, MemberSubscription]) -> None:
    """Refuse to give a partition to one member while it is taken from another (KIP-429)."""
    for member, subscription in members.items():
        for partition in subscription.owned_partitions:
            to = owner.get(partition, member)
            if to != member and partition not in members[to].owned_partitions:
                raise _NonsenseError(
                    f"gives {partition} to {to} while {member} still holds it; a cooperative assignor must wait for "
                    "the next rebalance"
                )


def _short(value: object, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."
