"""A member as the leader sees it, and what it is sent back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkrelay.protocol import AssignmentInfo, SubscriptionInfo
    from sparkrelay.types import ProcessId, TopicPartition

__all__ = ["ConsumerAssignment", "GroupMember"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """One consumer of the group, with what it brought to the rebalance.

    Attributes:
        consumer_id: Its member id in the group.
        subscription: Its user data, decoded.
        owned_partitions: Partitions that it owns and will not give up unasked (cooperative protocol).
        rack_id: The consumer's ``client.rack``, if set.
    """

    consumer_id: str
    subscription: SubscriptionInfo
    owned_partitions: frozenset[TopicPartition] = frozenset()
    rack_id: str | None = None

    @property
    def process_id(self) -> ProcessId:
        """The process it drives."""
        return self.subscription.process_id


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerAssignment:
    """What one consumer is sent: partitions for the consumer protocol, and the user data beside them."""

    partitions: tuple[TopicPartition, ...]
    info: AssignmentInfo
