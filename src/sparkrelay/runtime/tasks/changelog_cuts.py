"""Where a task's changelogs may be cut: in front of it are windows that expired, and nothing that a restore needs."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkrelay.types import TopicPartition

__all__ = ["ChangelogCuts"]


class ChangelogCuts:
    """Learns from each batch that is committed. Pure.

    A restore needs of a changelog what has not expired, and the last marker. All that stands before an offset has
    expired once the last window has that the store had when the changelog ended there: whatever was written before was
    of no later one, or had expired already, or was deleted by then. What was deleted, a copy that stands in front of
    the cut has all the same: it begins anew there (``TaskStore.restore_anew``).
    """

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[tuple[int, int]]] = {}
        self._before: dict[TopicPartition, int] = {}

    @property
    def before(self) -> dict[TopicPartition, int]:
        """Changelog partition -> offset before which it may be cut. Any thread may ask."""
        return dict(self._before)

    def committed(self, changelog: TopicPartition, end: int, *, expired: int, last_end: int) -> None:
        """Learn of a batch.

        Args:
            changelog: of the store.
            end: where it ended before the batch, whose marker lies behind.
            expired: windows that end by then are removed with the batch, in milliseconds since 1970.
            last_end: when the last window of the store ends, in milliseconds since 1970.
        """
        waiting = self._waiting.setdefault(changelog, deque())
        # The later offset is allowed as soon as those before it, or sooner: what was deleted holds nothing back.
        while waiting and waiting[-1][1] >= last_end:
            waiting.pop()
        waiting.append((end, last_end))
        while waiting and waiting[0][1] <= expired:
            self._before[changelog] = waiting.popleft()[0]
