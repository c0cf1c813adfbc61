"""The interface of client-side assignors: what they see and return, under the classic group protocol.

The group's leader decides which member gets which partition, by running an assignor. Members may attach bytes to their
subscriptions, and the leader to each assignment. Kafka Streams and SparkRelay's runtime work this way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The subscribed topics as the leader sees them; topics that do not exist are missing.

    Attributes:
        partitions: partition numbers by topic, in order.
        racks: racks that hold a copy, by partition; empty where brokers have none.
    """

    partitions: Mapping[str, tuple[int, ...]]
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member sent when it joined.

    Attributes:
        topics: subscribed topics.
        owned_partitions: partitions it holds (cooperative protocols; empty otherwise).
        user_data: its assignor's bytes.
        generation: generation of the owned partitions; -1 if unknown.
        rack: its rack, or None.
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
    """A member's partitions, in the leader's order, and the assignor's bytes for it."""

    partitions: tuple[TopicPartition, ...] = ()
    user_data: bytes = b""


@runtime_checkable
class PartitionAssignor(Protocol):
    """Assigns partitions to the members of a group.

    All methods run inside ``poll``, on the polling thread; heartbeats continue. They may block, but the group waits:
    after ``max.poll.interval.ms`` the member is expelled.
    """

    @property
    def name(self) -> str:
        """Protocol name; all members must share it."""

    @property
    def supports_cooperative(self) -> bool:
        """Whether members keep their partitions during a rebalance (KIP-429).

        If so, ``assign`` must not give a partition to a member while another one holds it.
        """

    def subscription_user_data(self, topics: frozenset[str]) -> bytes:
        """Return bytes for the leader; called whenever the member joins."""

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Return the assignment of each member, by member id; called on the leader only.

        Partitions of topics that nobody subscribes to are accepted. If it raises, the leader's ``poll`` raises the
        error and the leader leaves the group, so that the others need not wait; it joins again when polled again.
        """

    def on_assignment(self, assignment: MemberAssignment, metadata: GroupMetadata) -> None:
        """Handle the member's own assignment, before the callbacks of this rebalance."""
