"""Heartbeats: they tell the coordinator that we live, and bring us the news of a rebalance.

They are sent from the network thread, so they go on while a callback or an assignor keeps the application thread. A
member that does not poll for ``max.poll.interval.ms`` is taken care of by the membership itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.client.messages import HeartbeatRequest
from sparkrelay.consumer.coordinator import GROUP_LANE
from sparkrelay.consumer.requests import NOTHING, PollResult, RequestState, Unsent

if TYPE_CHECKING:
    from sparkrelay.consumer.coordinator import CoordinatorManager
    from sparkrelay.consumer.membership import ClassicMembership
    from sparkrelay.errors import KafkaException

__all__ = ["COORDINATOR_MOVED", "HeartbeatManager"]

#: Codes that say: find the coordinator again.
COORDINATOR_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class HeartbeatManager:
    """Sends a heartbeat each interval while the membership has a generation.

    Args:
        membership: whose heartbeats.
        coordinator: where to.
        interval: seconds between heartbeats.
        session_timeout: seconds without an answer after which the coordinator is looked for again.
        state: pauses after failures.
    """

    def __init__(
        self,
        membership: ClassicMembership,
        coordinator: CoordinatorManager,
        *,
        interval: float,
        session_timeout: float,
        state: RequestState,
    ) -> None:
        self._membership = membership
        self._coordinator = coordinator
        self._interval = interval
        self._session_timeout = session_timeout
        self._state = state
        self._due = -math.inf
        self._answered_at = -math.inf
        self._generation = -1

    def poll(self, now: float) -> PollResult:
        """Return a heartbeat if one is due."""
        metadata = self._membership.metadata
        if not self._membership.beats:
            return NOTHING
        if metadata.generation != self._generation:
            self._generation = metadata.generation
            self._due, self._answered_at = now + self._interval, now
        node = self._coordinator.need()
        if node is None:
            return PollResult(wait=max(self._due - now, 0.05))
        if now - self._answered_at >= self._session_timeout:
            self._answered_at = now
            self._coordinator.lost(f"no heartbeat was answered for {self._session_timeout:g} s")
            return PollResult(wait=0.0)
        wait = max(self._state.wait(now), self._due - now)
        if wait > 0:
            return PollResult(wait=min(wait, self._session_timeout))
        self._state.sent()
        self._due = now + self._interval
        request = HeartbeatRequest(
            group_id=metadata.group_id,
            generation_id=metadata.generation,
            member_id=metadata.member_id,
            group_instance_id=metadata.group_instance_id,
            min_version=3,
        )

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._answered(metadata.generation, message, error, now)

        return PollResult((Unsent(request, handle, node, GROUP_LANE),), self._interval)

    def _answered(self, generation: int, message: Any, error: KafkaException | None, now: float) -> None:
        if error is not None:
            self._state.failed(now)
            self._coordinator.lost(error)
            self._due = now
            if not error.retriable:
                self._membership.refused(error)
            return
        code = message.error_code
        if code in COORDINATOR_MOVED or code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._state.failed(now)
            self._due = now
            if code in COORDINATOR_MOVED:
                self._coordinator.lost(broker_error(code, "heartbeat"))
            return
        self._state.succeeded()
        self._answered_at = now
        if code and generation == self._membership.metadata.generation:
            # An answer to a heartbeat of an older generation says nothing about this one.
            self._membership.heartbeat_refused(code)
