"""Whether a copy that has become warm is a reason to ask for the next rebalance. Pure: the time is an argument.

KIP-441 waits for ``probing.rebalance.interval.ms``, fearing storms. Here each copy that the leader held to be cold asks
once, at half of the acceptable lag, after a pause that begins short and grows to ``follow.up.min.interval.ms`` while
rebalance follows rebalance. A copy that has asked in vain again and again, since its owner is always further ahead by
the time that the leader looks, waits longer each time: each such rebalance stops the group for nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sparkrelay.assignment.leader.follow_up_pause import FollowUpPause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TaskId

__all__ = ["FollowUp"]

#: How long a copy that is warm waits for others of the process that are not: copies that began together take turns and
#: are warm soon after each other, and a request for each would be a rebalance and a pause for each.
_COMPANY_SECONDS: Final = 1.0
#: How often a copy may ask in vain before its pause doubles each time: an owner's next batch may have been in between.
_TRIES: Final = 3
_MOST_DOUBLINGS: Final = 30


class FollowUp:
    """One member's copies, as the leader knew them at the last rebalance.

    Args:
        acceptable_lag: offsets within which a copy is warm.
        longest_pause_s: least seconds from an assignment, or from asking, to asking, once the pause has grown.
        probing_s: seconds after which the leader looks again by itself; no copy waits for longer.
    """

    def __init__(self, *, acceptable_lag: int, longest_pause_s: float, probing_s: float) -> None:
        self._acceptable_lag = acceptable_lag
        self._pause = FollowUpPause(longest_pause_s)
        self._longest_pause_s = longest_pause_s
        self._probing_s = probing_s
        #: Copies that have asked for the assignment to come.
        self._asked: set[TaskId] = set()
        #: How often in a row a copy was held to be cold by the assignment that it had asked for.
        self._in_vain: dict[TaskId, int] = {}
        #: When the last one has asked.
        self._asked_at = -math.inf
        self._reported: Mapping[TaskId, int] = {}
        self._standby: frozenset[TaskId] = frozenset()
        self._cold: set[TaskId] = set()
        #: Since when there is a reason that is kept back.
        self._warm_since: float | None = None

    def on_subscription(self, lags: Mapping[TaskId, int], running: Iterable[TaskId]) -> None:
        """Note the copies that a subscription reports to the leader.

        Args:
            lags: how far each copy is behind, where that is known.
            running: tasks that we run. If they stand by here from now on, they do so without being behind.
        """
        # Of a copy that was not looked at since, the last report holds: a hand-over takes two rebalances at once.
        before = {task: lag for task, lag in self._reported.items() if task in self._standby}
        self._reported = {**before, **dict.fromkeys(running, 0), **lags}

    def on_assignment(self, now: float) -> None:
        """Note that an assignment has come."""
        self._pause.assigned(now)

    def on_followed(self, standby: Collection[TaskId], warming: Collection[str]) -> None:
        """Note the copies of the assignment that is followed now.

        Args:
            standby: all of ours.
            warming: tasks that are to move here once our copy, which the leader holds to be cold, has caught up.
        """
        # The leader decided on our report; a copy that has caught up since must still ask. And the leader may hold one
        # to be cold that we held to be warm: the ends that it lists are newer, by whole batches of a busy owner.
        limit = self._acceptable_lag
        self._standby = frozenset(standby)
        self._cold = {task for task in standby if self._reported.get(task, limit + 1) > limit or str(task) in warming}
        self._in_vain = {
            task: count + (task in self._asked)
            for task in self._cold
            if (count := self._in_vain.get(task, 0)) or task in self._asked
        }
        self._asked.clear()

    @property
    def waits(self) -> bool:
        """True while there is a copy that could be a reason."""
        return bool(self._cold)

    def reasons(self, lags: Mapping[TaskId, int], now: float) -> list[TaskId]:
        """Return the copies that are a reason to ask now, in order; asked once, they are none any more."""
        warm = sorted(
            task
            for task in self._cold
            if task in lags and lags[task] <= self._acceptable_lag // 2 and now >= self._asked_at + self._pause_of(task)
        )
        if not warm:
            self._warm_since = None
            return []
        if self._warm_since is None:
            self._warm_since = now
        alone = len(warm) < len(self._cold) and now < self._warm_since + _COMPANY_SECONDS
        if alone or now < self._pause.over_at:
            return []
        self._warm_since = None
        self._cold.difference_update(warm)
        self._asked.update(warm)
        self._asked_at = now
        self._pause.asked(now)
        return warm

    def _pause_of(self, task: TaskId) -> float:
        """Return how long a copy waits behind a request."""
        doubled = self._in_vain.get(task, 0) - _TRIES
        if doubled <= 0:
            return 0.0
        return min(self._longest_pause_s * 2.0 ** min(doubled, _MOST_DOUBLINGS), self._probing_s)
