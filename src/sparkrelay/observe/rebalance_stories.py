"""The last rebalances, for the page: the reason, the decision, what moved, the duration."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST_ENTRIES: Final = 60
#: Bounds of an entry: user code may name tasks and reasons at length.
_MOST_LINES: Final = 60
_LONGEST_LINE: Final = 500


class RebalanceStories:
    """The newest rebalances of an instance. Thread-safe; ``clock`` returns seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: deque[dict[str, Any]] = deque(maxlen=_MOST_ENTRIES)
        #: Stream thread -> its decision, until the assignment brings its generation.
        self._undated: dict[str, dict[str, Any]] = {}

    @property
    def entries(self) -> list[dict[str, Any]]:
        """Copies, oldest first.

        Each has ``at`` (seconds since 1970), ``thread``, ``kind``, ``generation`` (None if unknown), ``why``, ``lines``
        and ``seconds``. ``kind`` is ``decided`` (lines: each decision with its reason), ``assigned`` (lines: what moves
        here) or ``in service`` (seconds: the duration).
        """
        with self._lock:
            return [dict(entry) for entry in self._entries]

    def decided(self, thread: str, why: str, lines: Sequence[str]) -> None:
        """Add a leader's decision."""
        with self._lock:
            self._undated[thread] = self._add(thread, "decided", None, why=why, lines=lines)

    def assigned(
        self, thread: str, generation: int, *, why: str, moves: Sequence[str], active: int, standby: int
    ) -> None:
        """Add the changes of an assignment for a stream thread, and its numbers of tasks."""
        has = f"{active} active, {standby} standby now"
        with self._lock:
            decision = self._undated.pop(thread, None)
            if decision is not None:
                decision["generation"] = generation
            self._add(thread, "assigned", generation, why=why, lines=[*moves, has])

    def in_service(self, thread: str, generation: int, *, seconds: float, until_assigned: float) -> None:
        """Add the time until every task of a stream thread was in service."""
        line = f"{until_assigned:.3f} s until the assignment, {seconds - until_assigned:.3f} s to open tasks"
        with self._lock:
            self._add(thread, "in service", generation, lines=[line], seconds=seconds)

    def _add(
        self,
        thread: str,
        kind: str,
        generation: int | None,
        *,
        why: str = "",
        lines: Sequence[str] = (),
        seconds: float | None = None,
    ) -> dict[str, Any]:
        kept = [line[:_LONGEST_LINE] for line in lines[:_MOST_LINES]]
        if len(lines) > _MOST_LINES:
            kept.append(f"and {len(lines) - _MOST_LINES} lines more, which the leader's log has at DEBUG")
        entry = {
            "at": self._clock(),
            "thread": thread,
            "kind": kind,
            "generation": generation,
            "why": why[:_LONGEST_LINE],
            "lines": kept,
            "seconds": seconds,
        }
        self._entries.append(entry)
        return entry
