"""Who is notified of how stores are restored and kept warm: Kafka Streams' listeners, and what they are called with.

``StateRestoreListener`` is as old as Kafka Streams' (with ``onRestoreSuspended`` of KIP-869), ``StandbyUpdateListener``
is KIP-988. Counts are offsets of changelogs here: markers and records of aborted transactions count.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["RestoreListeners", "RestoreNotices", "StandbyUpdateListener", "StateRestoreListener"]

log = logging.getLogger(__name__)


class StateRestoreListener:
    """Is notified of the stores that active tasks restore before they run. Override what is wanted.

    Methods are called on threads of the instance, which wait for them: they must be quick, and must not stop it. What
    they raise is logged.
    """

    def on_restore_start(self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int) -> None:
        """A store's restore begins.

        Args:
            partition: of its changelog.
            store: its name.
            starting_offset: what the local copy has already, as an offset of the changelog.
            ending_offset: where the restore ends.
        """

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """A slice of the changelog is in the store: so many offsets, up to ``batch_end_offset`` (exclusive)."""

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The store has all that it needs, after so many offsets."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The task leaves before its store was restored, after so many offsets."""


class StandbyUpdateListener:
    """Is notified of the stores of standby tasks and warm-ups, as they follow their owners. Override what is wanted.

    The same rules hold as for :class:`StateRestoreListener`.
    """

    def on_update_start(self, partition: TopicPartition, store: str, starting_offset: int) -> None:
        """A copy begins to follow its changelog, of which it has ``starting_offset`` already."""

    def on_batch_loaded(  # noqa: PLR0917 - as Kafka Streams has it
        self,
        partition: TopicPartition,
        store: str,
        task: TaskId,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        """So many offsets are in the copy, up to ``batch_end_offset``, of those up to ``current_end_offset``."""

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        store_offset: int,
        current_end_offset: int,
        reason: Literal["MIGRATED", "PROMOTED"],
    ) -> None:
        """A copy follows no more: its task has moved to another instance, or runs here now."""


@dataclass(slots=True)
class RestoreListeners:
    """Those of an instance."""

    restore: StateRestoreListener | None = None
    standby: StandbyUpdateListener | None = None


@dataclass(slots=True)
class _Copy:
    """What was said of a store: whether its task waits for it, where it began, and how far it was and was to get."""

    task: TaskId
    store: str
    restoring: bool
    first: int
    at: int
    end: int


class RestoreNotices:
    """Calls the listeners, in the order of what happens to each store. Any thread may call it."""

    def __init__(self, listeners: RestoreListeners) -> None:
        self._listeners = listeners
        self._lock = threading.RLock()
        self._copies: dict[TopicPartition, _Copy] = {}

    def moved(self, copies: Sequence[RestoreProgress], restored: Collection[TaskId]) -> None:
        """Take where copies stand after a slice; ``restored`` are tasks that have all they need."""
        with self._lock:
            for progress in copies:
                for store, partition in progress.changelogs.items():
                    self._moved(progress, store, partition)
                    if progress.task in restored and (done := self._copies.pop(partition, None)) is not None:
                        self._say(self._listeners.restore, "on_restore_end", partition, store, done.at - done.first)

    def left(self, tasks: Collection[TaskId]) -> None:
        """Take it that tasks are here no more."""
        with self._lock:
            for partition, copy in list(self._copies.items()):
                if copy.task in tasks:
                    self._suspended(partition, copy, "MIGRATED")

    def _moved(self, progress: RestoreProgress, store: str, partition: TopicPartition) -> None:
        if progress.offsets is None or partition not in progress.ends:
            # Nobody has looked at the store yet.
            return
        at, end = progress.offsets.get(partition, 0), progress.ends[partition]
        known = self._copies.get(partition)
        if known is not None and known.restoring != progress.restoring:
            self._suspended(partition, known, "PROMOTED")
            known = None
        elif known is not None and at < known.at:
            # Its copy could not be used, and is built anew.
            known = None
        if known is None:
            first = min(at, (progress.started_at or {}).get(partition, 0))
            known = self._copies[partition] = _Copy(progress.task, store, progress.restoring, first, first, end)
            if progress.restoring:
                self._say(self._listeners.restore, "on_restore_start", partition, store, first, end)
            else:
                self._say(self._listeners.standby, "on_update_start", partition, store, first)
        size, known.at, known.end = at - known.at, at, end
        if not size:
            return
        if progress.restoring:
            self._say(self._listeners.restore, "on_batch_restored", partition, store, at, size)
        else:
            self._say(self._listeners.standby, "on_batch_loaded", partition, store, progress.task, at, size, end)

    def _suspended(self, partition: TopicPartition, copy: _Copy, reason: str) -> None:
        del self._copies[partition]
        if copy.restoring:
            done = copy.at - copy.first
            self._say(self._listeners.restore, "on_restore_suspended", partition, copy.store, done)
        else:
            about = partition, copy.store, copy.at, copy.end
            self._say(self._listeners.standby, "on_update_suspended", *about, reason)

    @staticmethod
    def _say(listener: object, method: str, *about: object) -> None:
        if listener is None:
            return
        try:
            getattr(listener, method)(*about)
        except BaseException:
            # Also sys.exit(), which would end a thread of the instance's without a word.
            log.exception("%s of a listener has failed; the instance goes on", method)
