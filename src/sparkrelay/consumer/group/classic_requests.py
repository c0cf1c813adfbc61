"""The requests of a member under the classic protocol, and its leaving."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.messages import JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest
from sparkrelay.consumer.base.assignor import MemberSubscription
from sparkrelay.consumer.base.requests import Unsent
from sparkrelay.consumer.group.coordinator import GROUP_LANE
from sparkrelay.consumer.group.wire import encode_assignment, encode_subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.consumer.base.assignor import MemberAssignment
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.events import Prepared
    from sparkrelay.consumer.group.coordinator import CoordinatorManager
    from sparkrelay.errors import KafkaException

_log = logging.getLogger(__name__)
_PROTOCOL_TYPE: Final = "consumer"
_MIN_JOIN_VERSION: Final = 5  # static members
_MIN_VERSION: Final = 3
_LONGEST_REASON: Final = 255
#: The broker waits max.poll.interval.ms for the slowest member; its answer may take a little longer.
_JOIN_GRACE_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """The settings of a member; times in seconds.

    Attributes:
        assignors: (name, supports cooperative) of each client-side assignor; classic protocol only.
        session_timeout: the group waits this long for a silent member; classic protocol only, else the broker decides.
        max_poll_interval: a member that does not poll for this long leaves; also bounds its part of a rebalance.
    """

    group_id: str
    assignors: tuple[tuple[str, bool], ...] = ()
    remote_assignor: str | None = None  # name of the broker's assignor, None for the broker's choice; KIP-848 only
    group_instance_id: str | None = None  # makes the member static
    rack: str | None = None
    session_timeout: float = 45.0
    heartbeat_interval: float = 3.0  # pause between heartbeats; likewise
    max_poll_interval: float = 300.0

    @property
    def cooperative(self) -> bool:
        """Whether partitions are kept during rebalances: only if every offered assignor allows it (KIP-429)."""
        return all(cooperative for _, cooperative in self.assignors)

    @property
    def poll_missed(self) -> str:
        """The log message for an application that stopped polling."""
        limit = round(self.max_poll_interval * 1000)
        return (
            f"poll() was not called for max.poll.interval.ms={limit}, so the member leaves; "
            "poll more often, take fewer records a time, or raise the setting"
        )

    @property
    def join_timeout(self) -> float:
        """Seconds that JoinGroup and SyncGroup may stay unanswered."""
        return self.max_poll_interval + _JOIN_GRACE_SECONDS


def join_request(
    settings: MemberSettings, place: GroupMetadata, topics: frozenset[str], prepared: Prepared, reason: str
) -> Any:
    """Return JoinGroup, with the member's subscription once per offered assignor."""
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
    """Return SyncGroup, with all assignments if the member leads."""
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


def _leave_request(place: GroupMetadata, reason: str) -> Any:
    """Return LeaveGroup for this member; without a member id, for the holder of its ``group.instance.id``."""
    identity = LeaveGroupRequest.MemberIdentity(
        member_id=place.member_id,
        group_instance_id=None if place.member_id else place.group_instance_id,
        reason=reason[:_LONGEST_REASON],
    )
    return LeaveGroupRequest(group_id=place.group_id, members=[identity], min_version=_MIN_VERSION)


def refusal(code: int, doing: str, settings: MemberSettings) -> KafkaException:
    """Return the error for a broker's refusal, with the setting that caused it if known."""
    detail = ",".join(name for name, _ in settings.assignors)
    if code == ErrorCode.FENCED_INSTANCE_ID:
        detail = f"group.instance.id={settings.group_instance_id!r}"
    elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        detail = f"partition.assignment.strategy={detail}"
    return broker_error(code, f"{doing} in group {settings.group_id!r} with {detail}", needs="READ")


@dataclass(eq=False)
class ClassicLeave:
    """Leaves a classic group: LeaveGroup, and what must happen before it. A part of the membership.

    A member without an id has nothing to leave. If its first JoinGroup is under way, the answer may name it, so that is
    awaited; otherwise the group would wait for a member that never arrives.

    Static members do not send LeaveGroup, and keep their partitions for ``session.timeout.ms``, unless they leave for
    good. Such a member without an id gives up the place that a former run may have left: the broker accepts its
    ``group.instance.id`` instead of a member id (KIP-345). Pure, see ``requests``.
    """

    settings: MemberSettings
    coordinator: CoordinatorManager
    place: Callable[[], GroupMetadata]  # returns the member's identity in its group

    def __post_init__(self) -> None:
        self.awaits_name = False  # whether a JoinGroup is under way whose answer gives the member its id
        self._call: Call | None = None
        self._reason = ""
        self._sent = False
        #: Whether nothing is sent, and the broker keeps the member's place.
        self._stays = self._static
        #: Whether that place is given up, whichever run got it; this needs a coordinator.
        self._frees_name = False

    def begin(self, call: Call, reason: str, *, for_good: bool = False) -> None:
        """Leave, if static only ``for_good``; ``call`` is resolved once the broker knows, or is unreachable."""
        self._call, self._reason, self._sent = call, reason, False
        self._stays, self._frees_name = self._static and not for_good, self._static and for_good

    @property
    def _static(self) -> bool:
        return self.settings.group_instance_id is not None

    @property
    def over(self) -> bool:
        """Whether leaving has ended."""
        return self._call is None or self._call.done

    def poll(self) -> tuple[Unsent, ...]:
        """Return LeaveGroup when it is time for it."""
        call = self._call
        if call is None or call.done or self._sent or (self.awaits_name and not self._stays):
            return ()
        requests = self.request(self._reason, call)
        if requests:
            self._sent = True
        elif not self._frees_name:
            call.resolve(None)
        return requests

    def request(self, reason: str, call: Call | None = None) -> tuple[Unsent, ...]:
        """Return LeaveGroup; nothing if there is nothing to leave, or no coordinator."""
        place = self.place()
        node = self.coordinator.need() if self._frees_name else self.coordinator.node
        if node is None or self._stays or not (place.member_id or self._frees_name):
            return ()

        def handle(_: Any, error: KafkaException | None, now: float) -> None:
            del now
            if error is not None:
                _log.info("group %s: leaving was not confirmed: %s", self.settings.group_id, error)
            if call is not None:
                call.resolve(None)

        return (Unsent(_leave_request(place, reason), handle, node, GROUP_LANE),)
