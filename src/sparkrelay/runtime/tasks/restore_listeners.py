"""Listeners for restores and standby updates, as in Kafka Streams, and the code that calls them.

``StateRestoreListener`` includes ``onRestoreSuspended`` of KIP-869; ``StandbyUpdateListener`` is KIP-988. Counts are
changelog offsets, including markers and records of aborted transactions.
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

log = logging.getLogger(__name__)


class StateRestoreListener:
    """Notified of the stores that active tasks restore before they run. Override the methods you need.

    Methods are called on threads of the instance, which wait for them: they must be quick, and must not stop the
    instance. Exceptions are logged.
    """

    def on_restore_start(self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int) -> None:
        """A store's restore begins.

        Args:
            partition: the changelog partition.
            store: name of the store.
            starting_offset: changelog offset that the local copy has reached already.
            ending_offset: changelog offset where the restore ends.
        """

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """A slice of the changelog is restored: ``num_restored`` offsets, up to ``batch_end_offset`` (exclusive)."""

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The store is restored, after ``total_restored`` offsets."""

    def on_restore_suspended(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The task leaves before its store is restored, after ``total_restored`` offsets."""


class StandbyUpdateListener:
    """Notified of the stores of standby tasks and warm-ups as they follow their owners. Override the methods you need.

    The rules of :class:`StateRestoreListener` apply.
    """

    def on_update_start(self, partition: TopicPartition, store: str, starting_offset: int) -> None:
        """A copy begins to follow its changelog, from ``starting_offset``."""

    def on_batch_loaded(  # noqa: PLR0917 - as Kafka Streams has it
        self,
        partition: TopicPartition,
        store: str,
        task: TaskId,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        """``batch_size`` offsets are loaded, up to ``batch_end_offset``, of a changelog with ``current_end_offset``."""

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        store_offset: int,
        current_end_offset: int,
        reason: Literal["MIGRATED", "PROMOTED"],
    ) -> None:
        """A copy stops following: its task moved to another instance (MIGRATED), or runs here now (PROMOTED)."""


@dataclass(slots=True)
class RestoreListeners:
    """The listeners of an instance."""

    restore: StateRestoreListener | None = None
    standby: StandbyUpdateListener | None = None


@dataclass(slots=True)
class _Copy:
    """What listeners know of a store: where it began, its position and its goal."""

    task: TaskId
    store: str
    restoring: bool
    first: int
    at: int
    end: int


class RestoreNotices:
    """Calls the listeners, in order for each store. Thread-safe."""

    def __init__(self, listeners: RestoreListeners) -> None:
        self._listeners = listeners
        self._lock = threading.RLock()
        self._copies: dict[TopicPartition, _Copy] = {}

    def moved(self, copies: Sequence[RestoreProgress], restored: Collection[TaskId]) -> None:
        """Notify of the progress after a slice; ``restored`` are the tasks that are complete."""
        with self._lock:
            for progress in copies:
                for store, partition in progress.changelogs.items():
                    self._moved(progress, store, partition)
                    if progress.task in restored and (done := self._copies.pop(partition, None)) is not None:
                        self._say(self._listeners.restore, "on_restore_end", partition, store, done.at - done.first)

    def left(self, tasks: Collection[TaskId]) -> None:
        """Notify that tasks left."""
        with self._lock:
            for partition, copy in list(self._copies.items()):
                if copy.task in tasks:
                    self._suspended(partition, copy, "MIGRATED")

    def _moved(self, progress: RestoreProgress, store: str, partition: TopicPartition) -> None:
        if progress.offsets is None or partition not in progress.ends:
            # Not known yet.
            return
        at, end = progress.offsets.get(partition, 0), progress.ends[partition]
        known = self._copies.get(partition)
        if known is not None and known.restoring != progress.restoring:
            self._suspended(partition, known, "PROMOTED")
            known = None
        elif known is not None and at < known.at:
            # The copy was unusable and is rebuilt.
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
            # Even sys.exit(), which would silently end a thread of the instance.
            log.exception("%s of a listener has failed; the instance goes on", method)
