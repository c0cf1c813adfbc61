"""Where to start in a newly assigned partition: at the committed offset, else as ``auto.offset.reset`` says.

Uses the commit and the offsets manager for its questions, and only sequences them. Pure, see ``requests``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sparkrelay.consumer.base.events import Call
from sparkrelay.consumer.base.requests import NOTHING, PollResult
from sparkrelay.consumer.offsets.offsets import LATEST
from sparkrelay.errors import OffsetOutOfRangeException

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.offsets.commits import CommitManager
    from sparkrelay.consumer.offsets.offsets import OffsetsManager
    from sparkrelay.types import TopicPartition

__all__ = ["PositionsManager"]

#: After an error that was raised, before the same is asked again.
_PAUSE_SECONDS: Final = 1.0


class PositionsManager:
    """Finds positions that are not known.

    Args:
        subscription: the partitions.
        commits: asks for committed offsets; None for a consumer without a group.
        offsets: asks for starts and ends.
        reset: returns the timestamp to start at without a committed offset; None if that is an error.
        read_committed: whether the end is the last stable offset.
        fail: takes errors that the next ``poll`` raises.
        notify: called when positions became known.
    """

    def __init__(
        self,
        subscription: SubscriptionState,
        *,
        commits: CommitManager | None,
        offsets: OffsetsManager,
        reset: Callable[[], int | None],
        read_committed: bool,
        fail: Callable[[Exception], None],
        notify: Callable[[], None],
    ) -> None:
        self._subscription = subscription
        self._commits = commits
        self._offsets = offsets
        self._reset = reset
        self._read_committed = read_committed
        self._fail = fail
        self._notify = notify
        self._failed = False
        self._not_before = -math.inf

    def poll(self, now: float) -> PollResult:
        """Begin to look up what is not known; the managers that it asks are polled after it."""
        if self._failed:
            self._failed, self._not_before = False, now + _PAUSE_SECONDS
        if now < self._not_before:
            return PollResult(wait=self._not_before - now)
        lookup, unknown = self._subscription.take_unknown()
        if not unknown:
            return NOTHING
        resets = {p: timestamp for p, timestamp in unknown.items() if timestamp is not None}
        fresh = frozenset(unknown) - resets.keys()
        if fresh and self._commits is not None:
            call = Call("fetching committed offsets", math.inf)
            call.when_done(lambda done: self._take_committed(lookup, fresh, done))
            self._subscription.asking(lookup, fresh, call)
            self._commits.fetch(call, fresh)
        elif fresh:
            self._without_offset(lookup, fresh)
        if resets:
            self._ask(lookup, resets)
        return NOTHING

    def reset(self, partition: TopicPartition) -> None:
        """Start again as ``auto.offset.reset`` says; there must be such a policy."""
        timestamp = self._reset()
        assert timestamp is not None, "whoever calls this has looked"
        self._subscription.reset(partition, timestamp)

    def _take_committed(self, lookup: int, asked: frozenset[TopicPartition], done: Call) -> None:
        error = done.error
        if error is not None:
            self._give_back(lookup, asked, error)
            return
        committed = done.result()
        assert isinstance(committed, dict)
        for partition, (offset, epoch, _) in committed.items():
            self._subscription.found(partition, lookup, offset, epoch)
        self._without_offset(lookup, asked - committed.keys())
        self._notify()

    def _without_offset(self, lookup: int, partitions: frozenset[TopicPartition]) -> None:
        if not partitions:
            return
        timestamp = self._reset()
        if timestamp is not None:
            self._ask(lookup, dict.fromkeys(partitions, timestamp))
            return
        names = ", ".join(map(str, sorted(partitions)[:5]))
        # They stay as they are until somebody seeks: asking again and again would raise again and again.
        error = OffsetOutOfRangeException(
            f"no committed offset for {names}, and auto.offset.reset=none; seek(), commit offsets, or set it to "
            "earliest or latest"
        )
        error.partitions = partitions
        for partition in partitions:
            self._subscription.without_offset(partition, lookup, error)
        self._fail(error)

    def _ask(self, lookup: int, wanted: Mapping[TopicPartition, int]) -> None:
        call = Call("looking up positions", math.inf)

        def take(done: Call) -> None:
            error = done.error
            if error is not None:
                self._give_back(lookup, frozenset(wanted), error)
                return
            found = done.result()
            assert isinstance(found, dict)
            # No record is so young: then the end is where the first one will be (KIP-1106).
            too_young = {p: LATEST for p, offset in found.items() if offset < 0}
            for partition, offset in found.items():
                if offset >= 0:
                    self._subscription.found(partition, lookup, offset)
            if too_young:
                self._ask(lookup, too_young)
            self._notify()

        call.when_done(take)
        self._subscription.asking(lookup, wanted, call)
        self._offsets.ask(call, wanted, read_committed=self._read_committed)

    def _give_back(self, lookup: int, partitions: frozenset[TopicPartition], error: BaseException) -> None:
        for partition in partitions:
            self._subscription.not_found(partition, lookup)
        self._failed = True
        if isinstance(error, Exception):
            self._fail(error)
