"""Finding start positions: the committed offset, else ``auto.offset.reset``.

Sequences calls of the commit and the offsets manager. Pure, see ``requests``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkrelay.client.leader_requests import LATEST
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.requests import NOTHING, PollResult
from sparkrelay.errors import OffsetOutOfRangeException

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.offsets.commits import CommitManager, Committed
    from sparkrelay.consumer.offsets.offsets import OffsetsManager
    from sparkrelay.types import TopicPartition

#: Pause after an error before the look-up is repeated.
_PAUSE_SECONDS: Final = 1.0


@dataclass(eq=False)
class PositionsManager:
    """Looks up unknown positions.

    Args:
        reset_timestamp: returns where to start without a committed offset; None if that is an error.
    """

    subscription: SubscriptionState
    commits: CommitManager | None  # fetches committed offsets; None for a consumer without a group
    offsets: OffsetsManager  # lists starts and ends
    reset_timestamp: Callable[[], int | None]
    read_committed: bool  # whether the end is the last stable offset
    fail: Callable[[Exception], None]  # takes errors that the next ``poll`` raises
    notify: Callable[[], None]  # called when positions became known

    def __post_init__(self) -> None:
        self._failed = False
        self._not_before = -math.inf

    def poll(self, now: float) -> PollResult:
        """Begin look-ups; the managers involved are polled afterwards."""
        if self._failed:
            self._failed, self._not_before = False, now + _PAUSE_SECONDS
        if now < self._not_before:
            return PollResult(wait=self._not_before - now)
        lookup, unknown = self.subscription.take_unknown()
        if not unknown:
            return NOTHING
        resets = {p: timestamp for p, timestamp in unknown.items() if timestamp is not None}
        fresh = frozenset(unknown) - resets.keys()
        if fresh and self.commits is not None:
            call = Call("fetching committed offsets", math.inf)
            call.when_done(lambda done: self._take_committed(lookup, fresh, done))
            self.subscription.asking(lookup, fresh, call)
            self.commits.fetch(call, fresh)
        elif fresh:
            self._without_offset(lookup, fresh)
        if resets:
            self._ask(lookup, resets)
        return NOTHING

    def reset(self, partition: TopicPartition) -> None:
        """Start again at ``auto.offset.reset``, which must not be ``none``."""
        timestamp = self.reset_timestamp()
        assert timestamp is not None, "auto.offset.reset is not none"
        self.subscription.reset(partition, timestamp)

    def _take_committed(self, lookup: int, asked: frozenset[TopicPartition], done: Call) -> None:
        if done.error is not None:
            self._give_back(lookup, asked, done.error)
            return
        committed: Committed = done.result()
        for partition, commit in committed.items():
            self.subscription.found(partition, lookup, commit.offset, commit.leader_epoch)
        self._without_offset(lookup, asked - committed.keys())
        self.notify()

    def _without_offset(self, lookup: int, partitions: frozenset[TopicPartition]) -> None:
        if not partitions:
            return
        timestamp = self.reset_timestamp()
        if timestamp is not None:
            self._ask(lookup, dict.fromkeys(partitions, timestamp))
            return
        names = ", ".join(map(str, sorted(partitions)[:5]))
        # Not repeated until somebody seeks: it would raise again and again.
        error = OffsetOutOfRangeException(
            f"no committed offset for {names}, and auto.offset.reset=none; seek(), commit offsets, or set it to "
            "earliest or latest"
        )
        error.partitions = partitions
        for partition in partitions:
            self.subscription.without_offset(partition, lookup, error)
        self.fail(error)

    def _ask(self, lookup: int, wanted: Mapping[TopicPartition, int]) -> None:
        call = Call("looking up positions", math.inf)

        def take(done: Call) -> None:
            if done.error is not None:
                self._give_back(lookup, frozenset(wanted), done.error)
                return
            found: dict[TopicPartition, int] = done.result()
            # No record is that recent: the next one will be at the end (KIP-1106).
            too_young = {p: LATEST for p, offset in found.items() if offset < 0}
            for partition, offset in found.items():
                if offset >= 0:
                    self.subscription.found(partition, lookup, offset)
            if too_young:
                self._ask(lookup, too_young)
            self.notify()

        call.when_done(take)
        self.subscription.asking(lookup, wanted, call)
        self.offsets.ask(call, wanted, read_committed=self.read_committed)

    def _give_back(self, lookup: int, partitions: frozenset[TopicPartition], error: BaseException) -> None:
        for partition in partitions:
            self.subscription.not_found(partition, lookup)
        self._failed = True
        if isinstance(error, Exception):
            self.fail(error)
