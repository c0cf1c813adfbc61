"""Stops records of partitions that others may have by now.

A member that was expelled, or that left because nobody polled, still has its partitions and what was fetched of them,
until the application takes the step that drops them. It must not get any of these records before that (KAFKA-20321).
Polled right after the membership: in the turn in which that leaves, before its request to leave is on the wire.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.consumer.base.requests import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.consumer.base.requests import PollResult
    from sparkrelay.consumer.base.subscription import SubscriptionState

__all__ = ["LostPartitions"]


class LostPartitions:
    """Holds back what a member that has no generation any more still has. Pure, see ``requests``.

    Args:
        place: the member's place in its group; None for partitions assigned by hand.
        subscription: what the consumer holds.
    """

    def __init__(self, place: Callable[[], GroupMetadata | None], subscription: SubscriptionState) -> None:
        self._place = place
        self._subscription = subscription

    def poll(self, now: float) -> PollResult:
        """Hold back; there is never anything to send."""
        del now
        place = self._place()
        if place is not None and place.generation < 0:
            self._subscription.lose()
        return NOTHING
