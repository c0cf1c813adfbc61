"""Heartbeats: by them the coordinator knows that we live, and bring us the news of a rebalance.

They are sent from the network thread, so they go on while a callback or an assignor keeps the application thread. A
member that does not poll for ``max.poll.interval.ms`` is taken care of by the membership itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import NOT_COORDINATING, ErrorCode, broker_error
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent
from sparkrelay.consumer.group.coordinator import GROUP_LANE

if TYPE_CHECKING:
    from sparkrelay.consumer.group.coordinator import CoordinatorManager
    from sparkrelay.consumer.group.membership import Membership
    from sparkrelay.errors import KafkaException

__all__ = ["HeartbeatManager"]

#: Of a partition that moves nobody takes records until its next owner knows of the second rebalance; so heartbeats
#: are quick for so long after the first, and after the application said that it expects one.
_AWAITING_SECONDS: Final = 3.0
_AWAITING_INTERVAL: Final = 0.1


class HeartbeatManager:
    """Sends a heartbeat each interval, one at a time, while the membership wants them.

    Args:
        membership: whose heartbeats.
        coordinator: where to.
        session_timeout: seconds that a heartbeat may stay unanswered before its connection is dropped and the
            coordinator looked for again; infinity if only the broker knows it.
        state: pauses after failures.
    """

    def __init__(
        self,
        membership: Membership,
        coordinator: CoordinatorManager,
        *,
        session_timeout: float,
        state: RequestState,
    ) -> None:
        self._membership = membership
        self._coordinator = coordinator
        self._session_timeout = session_timeout
        self._state = state
        self._due = -math.inf
        self._sent_at = -math.inf
        self._sent_to = -1
        self._life: int | None = None
        self._awaiting_since: float | None = None

    def hasten(self, now: float) -> None:
        """Be quick for a while: a rebalance is expected, which an answer announces."""
        self._awaiting_since = now
        self._due = min(self._due, now + _AWAITING_INTERVAL)

    def poll(self, now: float) -> PollResult:
        """Return a heartbeat if one is due."""
        membership = self._membership
        if not membership.beats:
            return NOTHING
        if membership.life != self._life:
            self._life, self._awaiting_since = membership.life, None
            self._due = now + membership.heartbeat_interval
        if self._awaiting_since is None and membership.awaits_another:
            self._awaiting_since = now
            self._due = min(self._due, now + _AWAITING_INTERVAL)
        node = self._coordinator.need()
        if self._state.in_flight:
            if (left := self._sent_at + self._session_timeout - now) > 0:
                return PollResult(wait=left)
            self._sent_at = now
            self._coordinator.silent(self._sent_to, f"a heartbeat was not answered for {self._session_timeout:g} s")
            return PollResult(wait=0.0)
        if node is None:
            return PollResult(wait=max(self._due - now, 0.05))
        wait = self._state.wait(now)
        if not membership.hurried:
            wait = max(wait, self._due - now)
        if wait > 0:
            return PollResult(wait=wait)
        self._state.sent()
        self._sent_at, self._sent_to = now, node
        interval = self._interval(now)
        self._due = now + interval
        life = membership.life

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._answered(life, message, error, now)

        return PollResult((Unsent(membership.heartbeat(), handle, node, GROUP_LANE),), interval)

    def _interval(self, now: float) -> float:
        interval = self._membership.heartbeat_interval
        since = self._awaiting_since
        quick = since is not None and now - since < _AWAITING_SECONDS
        return min(interval, _AWAITING_INTERVAL) if quick else interval

    def _answered(self, life: int, message: Any, error: KafkaException | None, now: float) -> None:
        code = 0 if message is None else message.error_code
        if error is not None:
            self._coordinator.lost(error)
        elif code in NOT_COORDINATING:
            self._coordinator.moved(code)
            error = broker_error(code, "heartbeat")
        if error is not None:
            self._state.failed(now)
            self._due = now
            if life == self._membership.life:
                self._membership.heartbeat_failed(error)
            return
        if code and code != ErrorCode.REBALANCE_IN_PROGRESS:
            # Whatever follows: not at once, and ever more slowly while it repeats itself.
            self._state.failed(now)
        else:
            self._state.succeeded()
        if life == self._membership.life:
            self._membership.heartbeat_answered(message)
            self._due = min(self._due, now + self._interval(now))
