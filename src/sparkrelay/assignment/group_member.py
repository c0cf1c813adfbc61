"""A member of the group, and its assignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkrelay.protocol import AssignmentInfo, SubscriptionInfo
    from sparkrelay.types import ProcessId, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One consumer of the group, with its subscription.

    Attributes:
        consumer_id: Its member id in the group.
        subscription: Its user data, decoded.
        owned_partitions: Partitions that it owns until they are revoked (cooperative protocol).
        rack_id: The consumer's ``client.rack``, if set.
    """

    consumer_id: str
    subscription: SubscriptionInfo
    owned_partitions: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None

    @property
    def process_id(self) -> ProcessId:
        """Its process."""
        return self.subscription.process_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment:
    """The assignment of one consumer: partitions for the consumer protocol, and user data."""

    partitions: tuple[TopicPartition, ...]
    info: AssignmentInfo
