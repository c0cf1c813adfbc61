"""Whether a warm copy is a reason to request the next rebalance. Pure: the time is an argument.

KIP-441 waits for ``probing.rebalance.interval.ms``, to avoid storms. Here each copy that was behind for the leader
requests once, at half of the acceptable lag, after a pause that grows from a second to ``follow.up.min.interval.ms``
while rebalance follows rebalance. If the leader keeps finding the copy behind, because its owner has moved on
meanwhile, the copy waits longer each time: such rebalances stop the group for nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sparkrelay.assignment.leader.follow_up_pause import FollowUpPause

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.types import TaskId

#: How long a warm copy waits for the others of its process: copies that start together become warm soon after each
#: other, and one rebalance is enough for all.
_COMPANY_SECONDS: Final = 1.0
#: Requests in vain before a copy's pause doubles each time; the owner's next batch may have interfered.
_TRIES: Final = 3
_MOST_DOUBLINGS: Final = 30


class FollowUp:
    """The copies of one member, as of the last rebalance.

    A copy within ``acceptable_lag`` offsets is warm. ``longest_pause_s`` bounds the pause from an assignment or a
    request to the next request. After ``probing_s`` the leader checks again by itself, so no copy waits longer.
    """

    def __init__(self, *, acceptable_lag: int, longest_pause_s: float, probing_s: float) -> None:
        self._acceptable_lag = acceptable_lag
        self._pause = FollowUpPause(longest_pause_s)
        self._longest_pause_s = longest_pause_s
        self._probing_s = probing_s
        #: Copies that requested the next assignment.
        self._asked: set[TaskId] = set()
        #: Consecutive requests of a copy after which it was still behind for the leader.
        self._in_vain: dict[TaskId, int] = {}
        #: The time of the last request.
        self._asked_at = -math.inf
        self._reported: Mapping[TaskId, int] = {}
        self._standby: frozenset[TaskId] = frozenset()
        self._cold: set[TaskId] = set()
        #: Since when a request is held back.
        self._warm_since: float | None = None

    def on_subscription(self, lags: Mapping[TaskId, int], running: Iterable[TaskId]) -> None:
        """Record the lags that a subscription reports; as standbys, ``running`` tasks would not be behind."""
        # Copies not checked since then keep their last report: a hand-over takes two rebalances in a row.
        before = {task: lag for task, lag in self._reported.items() if task in self._standby}
        self._reported = {**before, **dict.fromkeys(running, 0), **lags}

    def on_assignment(self, now: float) -> None:
        """Record an assignment."""
        self._pause.assigned(now)

    def on_followed(self, standby: Collection[TaskId], warming: Collection[str]) -> None:
        """Record the copies of the assignment that is now followed; ``warming`` is :meth:`Notice.warms`."""
        # The leader decided on our report, so copies that have caught up since must still request. The leader may also
        # find a copy behind that we reported as warm: it lists newer ends, by whole batches of a busy owner.
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
        """True while any copy is cold."""
        return bool(self._cold)

    def reasons(self, lags: Mapping[TaskId, int], now: float) -> list[TaskId]:
        """Return the copies that are a reason to request now, sorted; each is returned once."""
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
        """Return how long a copy waits after the last request, in seconds."""
        doubled = self._in_vain.get(task, 0) - _TRIES
        if doubled <= 0:
            return 0.0
        return min(self._longest_pause_s * 2.0 ** min(doubled, _MOST_DOUBLINGS), self._probing_s)
