"""Heartbeats: they keep the member alive, and their answers announce rebalances.

The network thread sends them, so they continue while a callback or an assignor occupies the application thread. The
membership itself handles a member that does not poll for ``max.poll.interval.ms``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import NOT_COORDINATING, ErrorCode, broker_error
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent
from sparkrelay.consumer.group.coordinator import GROUP_LANE

if TYPE_CHECKING:
    from sparkrelay.consumer.group.coordinator import CoordinatorManager
    from sparkrelay.consumer.group.membership import Membership
    from sparkrelay.errors import KafkaException

#: A partition that moves is not read until its next owner learns of the second rebalance. So heartbeats are quick for
#: this long after the first, and after the application announced one.
_AWAITING_SECONDS: Final = 3.0
_AWAITING_INTERVAL: Final = 0.1


@dataclass(eq=False)
class HeartbeatManager:
    """Sends a heartbeat each interval, one at a time, while the membership wants them.

    Args:
        session_timeout: seconds after which an unanswered heartbeat's connection is dropped and the coordinator
            searched again; infinity if only the broker knows it.
    """

    membership: Membership
    coordinator: CoordinatorManager
    session_timeout: float
    state: RequestState  # pauses after failures

    def __post_init__(self) -> None:
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
        membership = self.membership
        if not membership.beats:
            return NOTHING
        if membership.life != self._life:
            self._life, self._awaiting_since = membership.life, None
            self._due = now + membership.heartbeat_interval
        if self._awaiting_since is None and membership.awaits_another:
            self._awaiting_since = now
            self._due = min(self._due, now + _AWAITING_INTERVAL)
        node = self.coordinator.need()
        if self.state.in_flight:
            if (left := self._sent_at + self.session_timeout - now) > 0:
                return PollResult(wait=left)
            self._sent_at = now
            self.coordinator.silent(self._sent_to, f"a heartbeat was not answered for {self.session_timeout:g} s")
            return PollResult(wait=0.0)
        if node is None:
            return PollResult(wait=max(self._due - now, 0.05))
        wait = self.state.wait(now)
        if not membership.hurried:
            wait = max(wait, self._due - now)
        if wait > 0:
            return PollResult(wait=wait)
        self.state.sent()
        self._sent_at, self._sent_to = now, node
        interval = self._interval(now)
        self._due = now + interval
        life = membership.life

        def handle(message: Any, error: KafkaException | None, now: float) -> None:
            self._answered(life, message, error, now)

        return PollResult((Unsent(membership.heartbeat(), handle, node, GROUP_LANE),), interval)

    def _interval(self, now: float) -> float:
        interval = self.membership.heartbeat_interval
        since = self._awaiting_since
        quick = since is not None and now - since < _AWAITING_SECONDS
        return min(interval, _AWAITING_INTERVAL) if quick else interval

    def _answered(self, life: int, message: Any, error: KafkaException | None, now: float) -> None:
        code = 0 if message is None else message.error_code
        if error is not None:
            self.coordinator.lost(error)
        elif code in NOT_COORDINATING:
            self.coordinator.moved(code)
            error = broker_error(code, "heartbeat")
        if error is not None:
            self.state.failed(now)
            self._due = now
            if life == self.membership.life:
                self.membership.heartbeat_failed(error)
            return
        if code and code != ErrorCode.REBALANCE_IN_PROGRESS:
            # Whatever follows is delayed, ever longer while the error repeats.
            self.state.failed(now)
        else:
            self.state.succeeded()
        if life == self.membership.life:
            self.membership.heartbeat_answered(message)
            self._due = min(self._due, now + self._interval(now))
