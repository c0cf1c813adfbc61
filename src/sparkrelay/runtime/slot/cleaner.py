"""When local copies are removed that no task here needs (``state.cleanup.delay.ms``), and when they must not be.

KIP-441's mutex: a subscription reports which copies there are, and the leader may give tasks to whoever has them. So
from the moment a subscription is made until its assignment is followed, nothing is removed. All stream threads of a
process share one slot, hence one cleaner; it removes only while none of them is in between.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import StateStoreException
from sparkrelay.state.home.application_home import remove_state
from sparkrelay.state.home.obsolete import ABANDONED_SECONDS, clear_abandoned, obsolete

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable
    from pathlib import Path

    from sparkrelay.types import TaskId

__all__ = ["Cleaner"]

log = logging.getLogger(__name__)

_LONGEST_INTERVAL: Final = 60.0
_SHORTEST_INTERVAL: Final = 1.0


class Cleaner:
    """Removes obsolete directories of a slot. Any stream thread may call it; ``who`` is its own name for itself.

    Args:
        slot: the slot's directory.
        delay_seconds: how long a copy stays after its task was last here.
        now: epoch seconds; the first look is an interval later.
    """

    def __init__(self, slot: Path, *, delay_seconds: float, now: float) -> None:
        self._slot = slot
        self._delay = delay_seconds
        self._interval = min(_LONGEST_INTERVAL, max(_SHORTEST_INTERVAL, delay_seconds))
        self._due = now + self._interval
        self._lock = threading.Lock()
        self._tasks: dict[Hashable, frozenset[TaskId]] = {}
        self._reported: set[Hashable] = set()
        #: When each task was last seen here: a lost one leaves without a trace in its directory.
        self._seen: dict[TaskId, float] = {}

    def reported(self, who: Hashable) -> None:
        """A subscription is about to report the local copies; returns once nothing is being removed."""
        with self._lock:
            self._reported.add(who)

    def assigned(self, who: Hashable, tasks: Collection[TaskId]) -> None:
        """The assignment that answers it is followed; ``tasks`` are active or standby on that thread."""
        with self._lock:
            self._reported.discard(who)
            self._tasks[who] = frozenset(tasks)

    def held(self) -> frozenset[TaskId]:
        """Return the tasks that are active or standby on some thread of the slot."""
        with self._lock:
            return frozenset().union(*self._tasks.values())

    def gone(self, who: Hashable) -> None:
        """A thread has ended."""
        with self._lock:
            self._reported.discard(who)
            self._tasks.pop(who, None)

    def turn(self, who: Hashable, tasks: Collection[TaskId], now: float) -> list[Path]:
        """Remove what is due to go, which is rarely something; return what was removed."""
        with self._lock:
            self._tasks[who] = frozenset(tasks)
            if now < self._due:
                return []
            self._seen.update({task: now for held in self._tasks.values() for task in held})
            if self._reported:
                return []
            self._due = now + self._interval
            before = now - self._delay
            self._seen = {task: at for task, at in self._seen.items() if at >= before}
            return self._remove(before, now)

    def close(self) -> None:
        """End what is being done."""

    def _remove(self, before: float, now: float) -> list[Path]:
        removed = []
        try:
            for path in obsolete(self._slot, self._seen.keys(), before):
                remove_state(path)
                log.info("%s is removed: not used here for %.0f s (state.cleanup.delay.ms)", path, self._delay)
                removed.append(path)
            for path in clear_abandoned(self._slot, min(before, now - ABANDONED_SECONDS)):
                log.info("%s is removed: its instance has not come back for a day", path)
                removed.append(path)
        except StateStoreException as error:
            # It costs disk, no correctness; the next look tries again.
            log.warning("cleaning up below %s failed: %s", self._slot.parent, error)
        return removed
