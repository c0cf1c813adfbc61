"""The requests of a member under the classic protocol, as values of the membership's settings and place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.messages import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from sparkrelay.consumer.base.assignor import MemberSubscription
from sparkrelay.consumer.group.wire import encode_assignment, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.consumer.base.assignor import GroupMetadata, MemberAssignment
    from sparkrelay.consumer.base.events import Prepared
    from sparkrelay.errors import KafkaException

__all__ = ["JOIN_LANE", "MemberSettings", "join_request", "leave_request", "refusal", "sync_request"]

#: The broker answers JoinGroup and SyncGroup when all members have come: they get a connection of their own.
JOIN_LANE: Final = "join"
_PROTOCOL_TYPE: Final = "consumer"
_MIN_JOIN_VERSION: Final = 5  # static members
_MIN_VERSION: Final = 3
_LONGEST_REASON: Final = 255
#: The broker waits for the slowest member for max.poll.interval.ms; its answer may take a little longer.
_JOIN_GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """What a member is configured with; times in seconds.

    Attributes:
        group_id: the group.
        assignors: (name, supports cooperative) of each client-side assignor; classic protocol only.
        remote_assignor: name of the broker's assignor, None for the broker's choice; KIP-848 only.
        group_instance_id: makes the member static.
        rack: where the consumer runs.
        session_timeout: a silent member is dead after this; classic protocol only, else the broker decides.
        heartbeat_interval: pause between heartbeats; likewise.
        max_poll_interval: a member that does not poll for so long leaves; the bound on its part of a rebalance.
    """

    group_id: str
    assignors: tuple[tuple[str, bool], ...] = ()
    remote_assignor: str | None = None
    group_instance_id: str | None = None
    rack: str | None = None
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0
    max_poll_interval: float = 300.0

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept during rebalances: only if every assignor on offer allows it (KIP-429)."""
        return all(cooperative for _, cooperative in self.assignors)

    @property
    def poll_missed(self) -> str:
        """What is said when the application does not poll any more."""
        limit = round(self.max_poll_interval * 1000)
        return (
            f"poll() was not called for max.poll.interval.ms={limit}, so the member leaves; "
            "poll more often, take fewer records a time, or raise the setting"
        )

    @property
    def join_timeout(self) -> float:
        """How long JoinGroup and SyncGroup may stay unanswered, in seconds."""
        return self.max_poll_interval + _JOIN_GRACE_SECONDS


def join_request(
    settings: MemberSettings, place: GroupMetadata, topics: frozenset[str], prepared: Prepared, reason: str
) -> Any:
    """Return JoinGroup: the member's subscription, once for each assignor it offers."""
    protocols = []
    for name, _ in settings.assignors:
        subscription = MemberSubscription(
            topics=topics,
            owned_partitions=prepared.owned,
            user_data=prepared.user_data.get(name, b""),
            generation=place.generation,
            rack=settings.rack or None,
        )
        protocols.append(
            JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=encode_subscription(subscription))
        )
    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=round(settings.session_timeout * 1000),
        rebalance_timeout_ms=round(settings.max_poll_interval * 1000),
        member_id=place.member_id,
        group_instance_id=settings.group_instance_id,
        protocol_type=_PROTOCOL_TYPE,
        protocols=protocols,
        reason=reason[:_LONGEST_REASON],
        min_version=_MIN_JOIN_VERSION,
    )


def sync_request(place: GroupMetadata, protocol: str, assignments: Mapping[str, MemberAssignment]) -> Any:
    """Return SyncGroup, with everybody's assignment if we lead."""
    make = SyncGroupRequest.SyncGroupRequestAssignment
    return SyncGroupRequest(
        group_id=place.group_id,
        generation_id=place.generation,
        member_id=place.member_id,
        group_instance_id=place.group_instance_id,
        protocol_type=_PROTOCOL_TYPE,
        protocol_name=protocol,
        assignments=[
            make(member_id=member, assignment=encode_assignment(assignment))
            for member, assignment in assignments.items()
        ],
        min_version=_MIN_VERSION,
    )


def leave_request(place: GroupMetadata, reason: str) -> Any:
    """Return LeaveGroup for this member; without a member id for whoever has its ``group.instance.id``."""
    identity = LeaveGroupRequest.MemberIdentity(
        member_id=place.member_id,
        group_instance_id=None if place.member_id else place.group_instance_id,
        reason=reason[:_LONGEST_REASON],
    )
    return LeaveGroupRequest(group_id=place.group_id, members=[identity], min_version=_MIN_VERSION)


def refusal(code: int, doing: str, settings: MemberSettings) -> KafkaException:
    """Return (not raise) the error for a broker's refusal, naming the setting that caused it where that is known."""
    names = ",".join(name for name, _ in settings.assignors)
    text = f"{doing} in group {settings.group_id!r}"
    if code == ErrorCode.FENCED_INSTANCE_ID:
        text += f" with group.instance.id={settings.group_instance_id!r}"
    elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        text += f" with partition.assignment.strategy={names}"
    else:
        text += f" with {names}"
    return broker_error(code, text, needs="READ")
