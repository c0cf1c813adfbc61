"""What an assignor sees and says: the client side of the classic group protocol.

One member of a group, its leader, decides which member gets which partition. An assignor is the code that decides; the
members may send it bytes of their own with their subscription, and it may send each member bytes with its assignment.
Kafka Streams does all its work this way, and so does SparkRelay's runtime.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["ClusterView", "GroupMetadata", "MemberAssignment", "MemberSubscription", "PartitionAssignor"]


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member's place in its group: what an offset commit must name.

    Attributes:
        group_id: the group.
        generation: number of the rebalance; -1 outside of a group.
        member_id: name that the broker gave us; empty outside of a group.
        group_instance_id: name that we gave ourselves (KIP-345), or None.
    """

    group_id: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The topics that members subscribe to, as the leader sees them; topics that do not exist are missing.

    Attributes:
        partitions: partition numbers by topic, in order.
        racks: racks that hold a copy, by partition; empty where brokers have none.
    """

    partitions: Mapping[str, tuple[int, ...]]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member said when it joined.

    Attributes:
        topics: what it wants to read.
        owned_partitions: what it holds now (cooperative protocols; empty otherwise).
        user_data: its assignor's own bytes.
        generation: when it got what it holds; -1 if it does not say.
        rack: where it runs, None if it does not say.
        group_instance_id: its static name, or None.
    """

    topics: frozenset[str]
    owned_partitions: frozenset[TopicPartition] = frozenset()
    user_data: bytes = b""
    generation: int = -1
    rack: str | None = None
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader says to a member: its partitions, in the order given, and the assignor's own bytes."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes = b""


@runtime_checkable
class PartitionAssignor(Protocol):
    """Decides who reads what.

    Everything runs on the thread that polls the consumer, inside ``poll``; heartbeats go on meanwhile. It may block,
    but the group waits for it: longer than ``max.poll.interval.ms``, and the member is expelled.
    """

    @property
    def name(self) -> str:
        """Name that all members must share, as it goes over the wire."""

    @property
    def supports_cooperative(self) -> bool:
        """Whether members may keep what they hold during a rebalance (KIP-429).

        If so, ``assign`` must not give a partition to a member while another one still holds it.
        """

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return bytes for the leader; called each time the member joins."""

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Return an assignment for each member, by member id; called on the leader only.

        Partitions of topics that nobody subscribes to are accepted. If it raises, the error comes out of the leader's
        ``poll``, and the leader leaves the group, so that the others do not wait; it joins again when polled again.
        """

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Take the member's own assignment, before the callbacks of this rebalance run."""
