"""Removal of local copies that no task here needs (``state.cleanup.delay.ms``), and when it must not happen.

KIP-441's mutex: a subscription reports the copies, and the leader may assign tasks to their owners. So nothing is
removed between a subscription and the moment its assignment is followed. The stream threads of a process share one
slot and one cleaner, which removes nothing while any of them is in between.
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

log = logging.getLogger(__name__)

_LONGEST_INTERVAL: Final = 60.0
_SHORTEST_INTERVAL: Final = 1.0


class Cleaner:
    """Removes obsolete directories of a slot, ``delay_seconds`` after their task has left.

    Thread-safe; ``who`` identifies a stream thread. Times are epoch seconds.
    """

    def __init__(self, slot: Path, *, delay_seconds: float, now: float) -> None:
        self._slot = slot
        self._delay = delay_seconds
        self._interval = min(_LONGEST_INTERVAL, max(_SHORTEST_INTERVAL, delay_seconds))
        self._due = now + self._interval
        self._lock = threading.Lock()
        self._tasks: dict[Hashable, frozenset[TaskId]] = {}
        self._reported: set[Hashable] = set()
        #: When each task was last here; the directory of a lost task does not show it.
        self._seen: dict[TaskId, float] = {}

    def reported(self, who: Hashable) -> None:
        """Stop removals before a subscription reports the local copies; returns once none is in progress."""
        with self._lock:
            self._reported.add(who)

    def assigned(self, who: Hashable, tasks: Collection[TaskId]) -> None:
        """Allow removals again: the thread follows its assignment of active and standby ``tasks``."""
        with self._lock:
            self._reported.discard(who)
            self._tasks[who] = frozenset(tasks)

    def held(self) -> frozenset[TaskId]:
        """Return the active and standby tasks of all threads."""
        with self._lock:
            return frozenset().union(*self._tasks.values())

    def gone(self, who: Hashable) -> None:
        """Forget a thread that has ended."""
        with self._lock:
            self._reported.discard(who)
            self._tasks.pop(who, None)

    def turn(self, who: Hashable, tasks: Collection[TaskId], now: float) -> list[Path]:
        """Remove obsolete copies if a check is due; return the removed paths."""
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
        """End a removal in progress."""

    def _remove(self, before: float, now: float) -> list[Path]:
        removed = []
        try:
            for path in obsolete(self._slot, self._seen.keys(), before):
                remove_state(path)
                log.info("removed %s: unused for %.0f s (state.cleanup.delay.ms)", path, self._delay)
                removed.append(path)
            for path in clear_abandoned(self._slot, min(before, now - ABANDONED_SECONDS)):
                log.info("removed %s: its instance has been away for a day", path)
                removed.append(path)
        except StateStoreException as error:
            # Costs only disk space; the next check retries.
            log.warning("cleaning up below %s failed: %s", self._slot.parent, error)
        return removed
