"""Which broker coordinates the group.

Nobody looks for a coordinator that nobody needs: managers that have something to send call ``need()`` (KAFKA-18569: a
consumer that closes must not begin a search). See the consumer threading refactor, "FindCoordinatorRequest".
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.broker_errors import ErrorCode, broker_error, error_name
from sparkrelay.client.group_requests import find_coordinators
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent
from sparkrelay.consumer.group.classic_requests import JOIN_LANE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
    from sparkrelay.errors import KafkaException

__all__ = ["GROUP_LANE", "CoordinatorManager"]

#: Heartbeats and commits; they must never wait behind a JoinGroup, which the broker holds back.
GROUP_LANE: Final = "group"
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_log = logging.getLogger(__name__)


class CoordinatorManager:
    """Finds the coordinator, and forgets it when it is not the one any more.

    Args:
        group_id: the group.
        metadata: the cluster; the coordinator must be in it.
        topics: refreshes metadata.
        fail: called with errors that looking again does not change.
        state: pauses between attempts.
    """

    def __init__(
        self,
        group_id: str,
        *,
        metadata: Metadata,
        topics: TopicMetadataManager,
        fail: Callable[[KafkaException], None],
        state: RequestState,
    ) -> None:
        self._group_id = group_id
        self._metadata = metadata
        self._topics = topics
        self._fail = fail
        self._state = state
        self._node: int | None = None
        self._needed = False
        self._dropped: tuple[tuple[int, str], ...] = ()
        self.last_error: KafkaException | None = None

    @property
    def node(self) -> int | None:
        """Broker id of the coordinator; None if it is unknown."""
        return self._node

    def need(self) -> int | None:
        """Return the coordinator; if it is unknown, look for it."""
        if self._node is None:
            self._needed = True
        return self._node

    def lost(self, why: object) -> None:
        """Forget the coordinator: it does not answer, or says that it is not the one."""
        if self._node is not None:
            _log.info("group %s: coordinator %s is not it any more: %s", self._group_id, self._node, why)
            self._node = None

    def moved(self, code: int) -> bool:
        """Forget the coordinator if ``code``, which it answered, says so; return whether it did."""
        if code not in _MOVED:
            return False
        self.lost(error_name(code))
        return True

    def silent(self, node: int, why: object) -> None:
        """Forget a coordinator that hangs: its connections stay open, and what waits there would wait too long."""
        self._dropped += (node, GROUP_LANE), (node, JOIN_LANE)
        if node == self._node:
            self.lost(why)

    def poll(self, now: float) -> PollResult:
        """Return FindCoordinator if somebody needs it."""
        dropped, self._dropped = self._dropped, ()
        if not self._needed or self._node is not None:
            return PollResult(dropped=dropped) if dropped else NOTHING
        if (wait := self._state.wait(now)) > 0:
            return PollResult(wait=wait, dropped=dropped)
        self._state.sent()
        request = find_coordinators([self._group_id])
        return PollResult((Unsent(request, self._answered, None, GROUP_LANE),), math.inf, dropped)

    def _answered(self, message: Any, error: KafkaException | None, now: float) -> None:
        if error is None:
            found = message.coordinators[0]
            if found.error_code:
                what = f"finding the coordinator of group {self._group_id!r}"
                error = broker_error(found.error_code, what, needs="READ")
            else:
                self._found(found.node_id, now)
                return
        self.last_error = error
        self._state.failed(now)
        if not error.retriable:
            self._needed = False
            self._fail(error)

    def _found(self, node: int, now: float) -> None:
        if node not in self._metadata.brokers:
            # Brokers are known by their metadata only; ask for it, then for the coordinator again.
            self._topics.refresh()
            self._state.failed(now)
            return
        self._state.succeeded()
        self._needed = False
        self._node = node
        self.last_error = None
        _log.info("group %s: coordinator is broker %s", self._group_id, node)
