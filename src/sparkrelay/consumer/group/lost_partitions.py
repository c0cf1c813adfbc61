"""Holds back records of partitions that others may own.

A member that was expelled, or that left because nobody polled, keeps its partitions and their fetched records until the
application takes the step that drops them. ``poll`` must not return these records before (KAFKA-20321). Polled right
after the membership: in the turn in which that leaves, before its request to leave is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.consumer.base.requests import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.consumer.base.assignor import GroupMetadata
    from sparkrelay.consumer.base.requests import PollResult
    from sparkrelay.consumer.base.subscription import SubscriptionState

__all__ = ["LostPartitions"]


@dataclass(eq=False)
class LostPartitions:
    """Holds back the partitions of a member that has lost its generation. Pure, see ``requests``.

    Args:
        place: returns the member's identity in its group; None for partitions assigned by hand.
    """

    place: Callable[[], GroupMetadata | None]
    subscription: SubscriptionState

    def poll(self, now: float) -> PollResult:
        """Hold back; there is never anything to send."""
        del now
        place = self.place()
        if place is not None and place.generation < 0:
            self.subscription.lose()
        return NOTHING
