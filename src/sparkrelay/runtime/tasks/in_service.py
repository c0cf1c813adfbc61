"""The tasks in service: the stream thread adds and withdraws them, the batch thread runs them.

Such a task belongs to the batch thread while a micro-batch of it runs, otherwise to the stream thread. Only
``withdraw`` makes one wait for the other: a revocation waits for the batch of the leaving tasks, and for no other.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.writers import Writers
    from sparkrelay.types import TaskId


class InService:
    """What both threads share, under one lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: dict[TaskId, Task] = {}
        #: Tasks of the current look that may begin a batch: not those that leave or return meanwhile.
        self._looked_at: set[TaskId] = set()
        self._under_way: frozenset[TaskId] = frozenset()
        self._fallen_out: dict[TaskId, tuple[Task, Exception]] = {}
        #: Number of news for the batch thread, now and at its last look.
        self._news = self._seen = 0
        self._ended = False
        self._paused = False
        self._member: GroupMetadata | None = None
        #: Number of expulsions from the group, now and when the running micro-batch began.
        self._expulsions = self._expulsions_seen = 0
        #: Called at each news, under the lock and on any thread: it must neither wait nor call anything here.
        self.on_news: Callable[[], None] = lambda: None
        #: Partition counts of written topics, as last seen by either thread.
        self.sink_partitions: Mapping[str, int] = {}
        #: Partition counts of source topics, as of the current assignment.
        self.source_partitions: Mapping[str, int] = {}
        #: Repartition topic -> the tasks that write it, if a watermark downstream depends on its rows.
        self.writers: Mapping[str, Writers] = {}

    # -- for the stream thread --------------------------------------------------------------------------------------

    def put(self, tasks: Iterable[Task]) -> None:
        """Take tasks into service: micro-batches may read their input from now on."""
        with self._changed:
            self._tasks |= {task.id: task for task in tasks}
            self._notify()

    def joined(self, member: GroupMetadata) -> None:
        """Record the stream thread's current group membership."""
        with self._changed:
            self._member = member
            self._changed.notify_all()

    def expelled(self) -> None:
        """Record that it is no longer in the group: others may own its tasks."""
        with self._changed:
            self._member = None
            self._expulsions += 1
            self._changed.notify_all()

    @property
    def present_member(self) -> GroupMetadata | None:
        """The stream thread's group membership; None if it has none."""
        return self._member

    def withdraw(self, ids: Collection[TaskId], *, timeout: float) -> frozenset[TaskId]:
        """Take tasks out of service and wait, up to ``timeout`` seconds, for the micro-batch that they are in.

        Tasks not in service are waited for too. Returns the tasks whose batch is still running.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            for id_ in ids:
                self._tasks.pop(id_, None)
                self._fallen_out.pop(id_, None)
            # A look may wait long for a silent broker, but changes nothing.
            self._looked_at.difference_update(ids)
            if not self._tasks:
                # The batch thread must not wait for their input, as its workers hold their stores.
                self._notify()
            while left := self._under_way.intersection(ids):
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    return left
                self._changed.wait(seconds)
        return frozenset()

    @property
    def under_way(self) -> frozenset[TaskId]:
        """The tasks of the running micro-batch, including withdrawn ones."""
        return self._under_way

    def while_under_way(self, ids: Collection[TaskId], do: Callable[[], None]) -> None:
        """Call ``do`` if one of these tasks is in the running micro-batch; the next one cannot begin meanwhile.

        So a cancellation cannot hit the next batch, whose tasks may stay.
        """
        with self._changed:
            if self._under_way.intersection(ids):
                do()

    def take_fallen_out(self) -> list[tuple[Task, Exception]]:
        """Return and clear the tasks that fell out of service, with the reasons: to be initialized again."""
        with self._changed:
            fallen_out, self._fallen_out = self._fallen_out, {}
            return list(fallen_out.values())

    def pause(self) -> None:
        """Begin no further micro-batch; the running one finishes."""
        with self._changed:
            self._paused = True
            self._notify()

    def resume(self) -> None:
        """Continue after ``pause``."""
        with self._changed:
            self._paused = False
            self._notify()

    def end(self) -> None:
        """End the batch thread after its current work."""
        with self._changed:
            self._ended = True
            self._notify()

    # -- for the batch thread ---------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """True once the batch thread is to end."""
        return self._ended

    @property
    def has_news(self) -> bool:
        """True if tasks came, the last one left, or the thread is to pause, resume or end, since the last look."""
        return self._ended or self._news != self._seen

    @property
    def news_seen(self) -> int:
        """Number of the last seen news: while it is unchanged, so are the tasks in service."""
        return self._seen

    @property
    def has_tasks(self) -> bool:
        """True while a task is in service."""
        return bool(self._tasks)

    @property
    def idle(self) -> bool:
        """True if ``look`` would wait: there are no tasks, or they are paused."""
        with self._changed:
            return not self._tasks or self._paused

    def look(self) -> list[Task]:
        """Wait until there are tasks and they are not paused; return them, or none if the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: (self._tasks and not self._paused) or self._ended)
            if self._ended:
                return []
            self._looked_at = set(self._tasks)
            self._seen = self._news
            return list(self._tasks.values())

    def begin(self, ids: Collection[TaskId]) -> frozenset[TaskId]:
        """Begin a micro-batch of those tasks that were not withdrawn or paused since the look; return them."""
        with self._changed:
            self._under_way = frozenset() if self._paused else frozenset(self._looked_at.intersection(ids))
            self._expulsions_seen = self._expulsions
            return self._under_way

    def member(self, but: GroupMetadata | None = None, *, seconds: float = 0.0) -> GroupMetadata | None:
        """Return the group membership for committing the offsets of the running micro-batch (KIP-447).

        Waits up to ``seconds`` for one other than ``but``, whose generation ended. Returns None if there is none, or
        the thread was expelled since the micro-batch began.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._lost or self._member not in {None, but}, seconds)
            return None if self._lost or self._member == but else self._member

    @property
    def _lost(self) -> bool:
        return self._expulsions != self._expulsions_seen

    def done(self, fallen_out: Mapping[TaskId, Exception]) -> None:
        """End the micro-batch; ``fallen_out`` are the tasks to initialize again, with the reasons."""
        with self._changed:
            for id_, reason in fallen_out.items():
                task = self._tasks.pop(id_, None)
                if task is not None:
                    self._fallen_out[id_] = task, reason
            self._under_way = frozenset()
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait for that long, or until there is news."""
        with self._changed:
            self._changed.wait_for(lambda: self.has_news, seconds)

    def _notify(self) -> None:
        self._news += 1
        self._changed.notify_all()
        self.on_news()
