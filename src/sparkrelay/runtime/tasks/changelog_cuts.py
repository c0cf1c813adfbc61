"""Where a task's changelogs may be cut: before that are only expired windows, nothing that a restore needs."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkrelay.types import TopicPartition


class ChangelogCuts:
    """Updated after every committed batch. Pure.

    A restore needs the unexpired part of a changelog, and the last marker. Everything before an offset has expired once
    the store's last window at the time that the changelog ended there has: earlier records belong to no later window,
    had expired already, or were deleted. A copy that is before the cut may still have deleted rows: it starts anew
    (``TaskStore.restore_anew``).
    """

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._before: dict[TopicPartition, int] = {}

    @property
    def before(self) -> dict[TopicPartition, int]:
        """Changelog partition -> offset before which it may be cut. Thread-safe."""
        return dict(self._before)

    def committed(self, changelog: TopicPartition, end: int, *, expired: int, last_end: int) -> None:
        """Update from a batch after the changelog's ``end`` that removed windows up to ``expired`` (ms since 1970).

        ``last_end`` is the end of the store's last window.
        """
        waiting = self._waiting.setdefault(changelog, deque())
        # The later offset may be cut no later than these: deleted rows hold nothing back.
        while waiting and waiting[-1][1] >= last_end:
            waiting.pop()
        waiting.append((end, last_end))
        while waiting and waiting[0][1] <= expired:
            self._before[changelog] = waiting.popleft()[0]
