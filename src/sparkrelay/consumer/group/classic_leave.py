"""How a member of a classic group says that it goes: LeaveGroup, and what it has to wait for. A part of its membership.

A member that the broker does not know yet has nothing to leave; one whose first JoinGroup is under way may be known by
the time of the answer, so that is waited for, or the group would wait for a member that does not come.

Static members say nothing: they keep their place for ``session.timeout.ms``, unless they go for good. Then one that the
broker has not named gives up the place that a former run may have left: the broker takes its ``group.instance.id``
instead of its member id (KIP-345). Pure, see ``requests``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from sparkrelay.consumer.base.requests import Unsent
from sparkrelay.consumer.group.classic_requests import leave_request
from sparkrelay.consumer.group.coordinator import GROUP_LANE

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.consumer.base.events import Call
    from sparkrelay.consumer.group.classic_requests import MemberSettings
    from sparkrelay.consumer.group.coordinator import CoordinatorManager
    from sparkrelay.errors import KafkaException

__all__ = ["ClassicLeave"]

_log = logging.getLogger(__name__)


class ClassicLeave:
    """See the module.

    Args:
        settings: the member's.
        coordinator: knows where to.
        place: returns the member's place in its group.

    Attributes:
        awaits_name: whether a JoinGroup is under way whose answer gives the member its id.
    """

    def __init__(
        self, settings: MemberSettings, coordinator: CoordinatorManager, place: Callable[[], GroupMetadata]
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._place = place
        self.awaits_name = False
        self._call: Call | None = None
        self._reason = ""
        self._sent = False
        #: Whether nothing is said, and the broker keeps the member's place.
        self._stays = self._static
        #: Whether that place is given up, whoever of this name got it: its coordinator is looked for.
        self._frees_name = False

    def begin(self, call: Call, reason: str, *, for_good: bool = False) -> None:
        """Leave, if static only ``for_good``; ``call`` is resolved when the broker knows, or cannot be reached."""
        self._call, self._reason, self._sent = call, reason, False
        self._stays, self._frees_name = self._static and not for_good, self._static and for_good

    @property
    def _static(self) -> bool:
        return self._settings.group_instance_id is not None

    @property
    def over(self) -> bool:
        """Whether what ``begin`` began is done."""
        return self._call is None or self._call.done

    def poll(self) -> tuple[Unsent, ...]:
        """Return LeaveGroup when it is time for it."""
        call = self._call
        if call is None or call.done or self._sent:
            return ()
        if self.awaits_name and not self._stays:
            return ()
        requests = self.request(self._reason, call)
        if requests:
            self._sent = True
        elif not self._frees_name:
            call.resolve(None)
        return requests

    def request(self, reason: str, call: Call | None = None) -> tuple[Unsent, ...]:
        """Return LeaveGroup; nothing if there is nothing to leave, or nobody to ask."""
        place = self._place()
        node = self._coordinator.need() if self._frees_name else self._coordinator.node
        if node is None or self._stays or not (place.member_id or self._frees_name):
            return ()

        def handle(_: Any, error: KafkaException | None, now: float) -> None:
            del now
            if error is not None:
                _log.info("group %s: leaving was not confirmed: %s", self._settings.group_id, error)
            if call is not None:
                call.resolve(None)

        return (Unsent(leave_request(place, reason), handle, node, GROUP_LANE),)
