"""Checks of an assignor's results, on the thread that ran it, before anything is sent to the group.

An assignor may be the user's. Otherwise other members, or nobody, would notice its errors: a partition read by two
members, or by none because its number does not exist.
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


def checked_user_data(assignor: PartitionAssignor, data: object) -> bytes:
    """Return an assignor's user data; raise KafkaException unless it is bytes."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise KafkaException(f"assignor {assignor.name!r}: subscription_user_data() returned {data!r}; return bytes")
    return bytes(data)


def checked_assignment(
    assignor: PartitionAssignor, answer: object, cluster: ClusterView, members: Mapping[str, MemberSubscription]
) -> Mapping[str, MemberAssignment]:
    """Return a valid assignment with an entry for every member, or raise KafkaException.

    Members that the assignor left out get an empty one: Java's consumer fails without any.
    """
    try:
        return _checked(answer, cluster, members, cooperative=assignor.supports_cooperative)
    except _NonsenseError as nonsense:
        refused = KafkaException(f"assignor {assignor.name!r} {nonsense}; nothing was assigned")
        # The assignor may have seen a newer cluster than this view; the next view is newer.
        refused.retriable = nonsense.passing
        raise refused from None


class _NonsenseError(Exception):
    """What is wrong, and whether the next attempt may succeed."""

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
            raise _NonsenseError(f"gives partitions to {_short(member)}, which is not a member of the group")
        if not isinstance(assignment, MemberAssignment):
            raise _NonsenseError(f"gives {_short(assignment)} to {member}, which is not a MemberAssignment")
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
            raise _NonsenseError(f"gives {_short(partition)} to {member}, which is not a TopicPartition")


def _check_cooperative(owner: Mapping[TopicPartition, str], members: Mapping[str, MemberSubscription]) -> None:
    """Refuse to give a partition to one member while another one holds it (KIP-429)."""
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
