"""The contents of a KIP-848 heartbeat: everything when necessary, otherwise only changes.

A full heartbeat is sent when joining, and after each heartbeat with unknown outcome, which the coordinator may or may
not have processed. The coordinator answers it with the whole assignment. See KIP-848, "ConsumerGroupHeartbeat API";
KIP-1082 for the member id, which the client generates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.messages import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    import uuid
    from collections.abc import Mapping, Set as AbstractSet

    from sparkrelay.consumer.group.classic_requests import MemberSettings

    #: Partition numbers by topic id.
    PartitionsById = Mapping[uuid.UUID, AbstractSet[int]]

JOIN_EPOCH: Final = 0
_LEAVE_EPOCH: Final = -1
_PAUSE_EPOCH: Final = -2
_PATTERN_VERSION: Final = 1


@dataclass(eq=False)
class HeartbeatWriter:
    """Writes one member's heartbeats, and remembers what the coordinator got."""

    settings: MemberSettings

    def __post_init__(self) -> None:
        self._sent: tuple[frozenset[str], str] | None = None

    def forget(self) -> None:
        """Make the next heartbeat a full one."""
        self._sent = None

    def differs(self, topics: frozenset[str], pattern: str) -> bool:
        """Return whether the coordinator has another subscription than this."""
        return self._sent is not None and self._sent != (topics, pattern)

    def write(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: frozenset[str],
        pattern: str,
        owned: PartitionsById,
        acknowledge: bool,
    ) -> Any:
        """Return the heartbeat to send now.

        Args:
            member_id: the member's id.
            epoch: the member's; 0 to join.
            topics: subscribed by name.
            pattern: subscribed by expression, empty for none.
            owned: partitions that the member holds, or may be about to hold.
            acknowledge: whether to name them even in a heartbeat that is not full.
        """
        sent, self._sent = self._sent, (topics, pattern)
        full = epoch == JOIN_EPOCH or sent is None
        says_pattern = bool(pattern) or (sent is not None and bool(sent[1]))
        settings = self.settings
        return ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=settings.group_instance_id,
            rack_id=(settings.rack or None) if full else None,
            rebalance_timeout_ms=round(settings.max_poll_interval * 1000) if full else -1,
            subscribed_topic_names=sorted(topics) if full or sent != self._sent else None,
            # An empty expression revokes the one that the coordinator knows.
            subscribed_topic_regex=pattern if says_pattern and (full or sent != self._sent) else None,
            server_assignor=settings.remote_assignor if full else None,
            topic_partitions=_listed(owned) if full or acknowledge else None,
            min_version=_PATTERN_VERSION if says_pattern else 0,
        )


def leave_heartbeat(settings: MemberSettings, member_id: str, *, for_good: bool = False) -> Any:
    """Return the heartbeat that leaves the group.

    A static member keeps its partitions for the session timeout (KIP-345), unless it leaves ``for_good``.
    """
    return ConsumerGroupHeartbeatRequest(
        group_id=settings.group_id,
        member_id=member_id,
        member_epoch=_LEAVE_EPOCH if for_good or settings.group_instance_id is None else _PAUSE_EPOCH,
        instance_id=settings.group_instance_id,
    )


def _listed(owned: PartitionsById) -> list[Any]:
    make = ConsumerGroupHeartbeatRequest.TopicPartitions
    return [make(topic_id=topic, partitions=sorted(numbers)) for topic, numbers in sorted(owned.items()) if numbers]
