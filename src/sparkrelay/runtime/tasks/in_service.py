"""The tasks in service: the stream thread puts them in and takes them out, the batch thread works on them.

A task that is in here belongs to the batch thread while a micro-batch of it is under way, and to the stream thread
else. ``withdraw`` is the one place where one waits for the other: a revocation waits for the batch of the tasks that
leave, and for no other.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from sparkrelay.client.transaction_calls import GroupMember
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.writers import Writers
    from sparkrelay.types import TaskId

__all__ = ["InService"]


class InService:
    """What both threads share, under one lock."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._tasks: dict[TaskId, Task] = {}
        #: The tasks that the batch thread looks at and that may begin; who leaves meanwhile, or comes again, may not.
        self._looked_at: set[TaskId] = set()
        self._under_way: frozenset[TaskId] = frozenset()
        self._fallen_out: dict[TaskId, tuple[Task, Exception]] = {}
        #: How often there was news for the batch thread, now and when it last looked.
        self._news = self._seen = 0
        self._ended = False
        self._paused = False
        #: As whom the stream thread is in the group; None: it is not.
        self._member: GroupMember | None = None
        #: How often the group has expelled it, now and when the micro-batch under way began.
        self._expulsions = self._expulsions_seen = 0
        #: Called at each news, under the lock and on any thread: it must neither wait nor call anything here.
        self.on_news: Callable[[], None] = _nothing
        #: Partition count of each topic that is written, as last seen by either thread.
        self.sink_partitions: Mapping[str, int] = {}
        #: Partition count of each source topic, as of the assignment that is followed.
        self.source_partitions: Mapping[str, int] = {}
        #: Repartition topic -> the tasks that write it, where a watermark behind it goes by event times in its rows.
        self.writers: Mapping[str, Writers] = {}

    # -- for the stream thread --------------------------------------------------------------------------------------

    def put(self, tasks: Iterable[Task]) -> None:
        """Take tasks into service: micro-batches may take input for them from now on."""
        with self._changed:
            self._tasks |= {task.id: task for task in tasks}
            self._notify()

    def fall_out(self, tasks: Mapping[TaskId, tuple[Task, Exception]]) -> None:
        """Note tasks that could not be taken into service: they are initialized again, as those that fell out are."""
        with self._changed:
            self._fallen_out.update(tasks)

    def joined(self, member: GroupMember) -> None:
        """Note as whom the stream thread is in the group from now on."""
        with self._changed:
            self._member = member
            self._changed.notify_all()

    def expelled(self) -> None:
        """Note that it is not in the group any more, so that its tasks may be others' by now."""
        with self._changed:
            self._member = None
            self._expulsions += 1
            self._changed.notify_all()

    @property
    def present_member(self) -> GroupMember | None:
        """As whom the stream thread is in the group now; None: it is not."""
        return self._member

    def withdraw(self, ids: Collection[TaskId], *, timeout: float) -> frozenset[TaskId]:
        """Take tasks out of service and wait for the micro-batch that they are in.

        Args:
            ids: tasks; those that are not in service only have their batch waited for.
            timeout: seconds.

        Returns:
            The tasks whose batch is still under way.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            for id_ in ids:
                self._tasks.pop(id_, None)
                self._fallen_out.pop(id_, None)
            # A look may wait long for a broker that is silent; nothing is done by it.
            self._looked_at.difference_update(ids)
            if not self._tasks:
                # Who waits for their input would hold on to their stores.
                self._notify()
            while left := self._under_way.intersection(ids):
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    return left
                self._changed.wait(seconds)
        return frozenset()

    @property
    def under_way(self) -> frozenset[TaskId]:
        """The tasks of the micro-batch under way, those that have left meanwhile included."""
        return self._under_way

    def while_under_way(self, ids: Collection[TaskId], do: Callable[[], None]) -> None:
        """Call ``do`` if one of those tasks is in the micro-batch under way; no other one begins meanwhile.

        What cancels that batch can so not hit the next, which may be of tasks that stay.
        """
        with self._changed:
            if self._under_way.intersection(ids):
                do()

    def take_fallen_out(self) -> list[tuple[Task, Exception]]:
        """Return, once, the tasks that fell out of service, with the reason: they are to be initialized again."""
        with self._changed:
            fallen_out, self._fallen_out = self._fallen_out, {}
            return list(fallen_out.values())

    def pause(self) -> None:
        """Begin no further micro-batch; the one under way ends."""
        with self._changed:
            self._paused = True
            self._notify()

    def resume(self) -> None:
        """Go on after ``pause``."""
        with self._changed:
            self._paused = False
            self._notify()

    def end(self) -> None:
        """Let the batch thread end after what it does."""
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
        """True if, since the last look, tasks came or all have left, or the thread is to pause, to go on or to end."""
        return self._ended or self._news != self._seen

    @property
    def news_seen(self) -> int:
        """How often there had been news by the last look: the tasks in service stay the same while it does."""
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
        """Wait for tasks in service, and while paused, and return them; none when the thread is to end."""
        with self._changed:
            self._changed.wait_for(lambda: (self._tasks and not self._paused) or self._ended)
            if self._ended:
                return []
            self._looked_at = set(self._tasks)
            self._seen = self._news
            return list(self._tasks.values())

    def begin(self, ids: Collection[TaskId]) -> frozenset[TaskId]:
        """Begin a micro-batch of those tasks; return those that may: not withdrawn, not paused since the look."""
        with self._changed:
            self._under_way = frozenset() if self._paused else frozenset(self._looked_at.intersection(ids))
            self._expulsions_seen = self._expulsions
            return self._under_way

    def member(self, but: GroupMember | None = None, *, seconds: float = 0.0) -> GroupMember | None:
        """Return as whom the offsets of the micro-batch under way may be committed (KIP-447).

        Args:
            but: another one than this is waited for: its generation is over.
            seconds: for how long.

        Returns:
            None if the thread was expelled since the micro-batch began, or there is no other one yet.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._lost or self._member not in {None, but}, seconds)
            return None if self._lost or self._member == but else self._member

    @property
    def _lost(self) -> bool:
        return self._expulsions != self._expulsions_seen

    def done(self, fallen_out: Mapping[TaskId, Exception]) -> None:
        """End the micro-batch; ``fallen_out`` are tasks that must be initialized again before they can go on."""
        with self._changed:
            for id_, reason in fallen_out.items():
                task = self._tasks.pop(id_, None)
                if task is not None:
                    self._fallen_out[id_] = task, reason
            self._under_way = frozenset()
            self._changed.notify_all()

    def rest(self, seconds: float) -> None:
        """Wait, but no longer than until there is news."""
        with self._changed:
            self._changed.wait_for(lambda: self.has_news, seconds)

    def _notify(self) -> None:
        self._news += 1
        self._changed.notify_all()
        self.on_news()


def _nothing() -> None:
    """Do nothing."""
