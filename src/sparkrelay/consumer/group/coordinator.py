"""The group's coordinator.

It is searched only when needed: managers with something to send call ``need()`` (KAFKA-18569: a closing consumer must
not begin a search). See the consumer threading refactor, "FindCoordinatorRequest".
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import broker_error, error_name
from sparkrelay.client.coordinators import is_moved
from sparkrelay.client.group_requests import find_coordinators
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
    from sparkrelay.errors import KafkaException

#: Heartbeats and commits; they must never queue after a JoinGroup, which the broker holds back.
GROUP_LANE: Final = "group"
#: JoinGroup and SyncGroup are answered when all members have arrived, so they have their own connection.
JOIN_LANE: Final = "join"
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class CoordinatorManager:
    """Finds the coordinator, and drops it when it has moved or is silent."""

    group_id: str
    metadata: Metadata  # the cluster; the coordinator must be in it
    topics: TopicMetadataManager  # refreshes metadata
    fail: Callable[[KafkaException], None]  # called with errors that repeating does not change
    state: RequestState  # pauses between attempts

    def __post_init__(self) -> None:
        self.node: int | None = None  # broker id of the coordinator; None if unknown
        self._needed = False
        self._dropped: tuple[tuple[int, str], ...] = ()
        self.last_error: KafkaException | None = None  # why the last search failed

    def need(self) -> int | None:
        """Return the coordinator; search for it if it is unknown."""
        if self.node is None:
            self._needed = True
        return self.node

    def lost(self, why: object) -> None:
        """Drop the coordinator: it does not answer, or is not the coordinator."""
        if self.node is not None:
            _log.info("group %s: coordinator %s was lost: %s", self.group_id, self.node, why)
            self.node = None

    def moved(self, code: int) -> bool:
        """Drop the coordinator if the error ``code`` it returned says so; return whether it did."""
        if not is_moved(code):
            return False
        self.lost(error_name(code))
        return True

    def silent(self, node: int, why: object) -> None:
        """Drop a coordinator that hangs, and close its open connections."""
        self._dropped += (node, GROUP_LANE), (node, JOIN_LANE)
        if node == self.node:
            self.lost(why)

    def poll(self, now: float) -> PollResult:
        """Return FindCoordinator if somebody needs the coordinator."""
        dropped, self._dropped = self._dropped, ()
        if not self._needed or self.node is not None:
            return PollResult(dropped=dropped) if dropped else NOTHING
        if (wait := self.state.wait(now)) > 0:
            return PollResult(wait=wait, dropped=dropped)
        self.state.sent()
        request = find_coordinators([self.group_id])
        return PollResult((Unsent(request, self._answered, None, GROUP_LANE),), math.inf, dropped)

    def _answered(self, message: Any, error: KafkaException | None, now: float) -> None:
        if error is None:
            found = message.coordinators[0]
            if found.error_code:
                what = f"finding the coordinator of group {self.group_id!r}"
                error = broker_error(found.error_code, what, needs="READ")
            else:
                self._found(found.node_id, now)
                return
        self.last_error = error
        self.state.failed(now)
        if not error.retriable:
            self._needed = False
            self.fail(error)

    def _found(self, node: int, now: float) -> None:
        if node not in self.metadata.brokers:
            # Brokers are known by metadata only: refresh it, then search again.
            self.topics.refresh()
            self.state.failed(now)
            return
        self.state.succeeded()
        self._needed = False
        self.node = node
        self.last_error = None
        _log.info("group %s: coordinator is broker %s", self.group_id, node)
