"""Which tasks are looked at for input: those that brokers have named, or all of them.

A look at all of them lists the ends of their inputs and changelogs, and so costs by their number. It is for when that
is all that helps: tasks have come, a batch has failed or has left something, a wait has ended in trouble, or a task
goes by silence. Otherwise brokers say what has come (``client.new_records``), and a look costs by that: of a thousand
tasks of which ten have input, ten. Pure; it is given monotonic times in seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.client.new_records import News
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["Looks"]

#: All tasks are looked at so often at least: nothing that is known is much older.
_ALL_SECONDS: Final = 60.0
#: What changelogs of tasks with input have got is looked up so often: a copy goes on from there, and may be behind.
_CHANGELOGS_SECONDS: Final = 1.0


class Looks:
    """What is known, between two micro-batches of a stream thread, of the inputs of its tasks."""

    def __init__(self) -> None:
        #: True if event times count of who writes the inputs: they are asked in every look.
        self.asks_writers = False
        self._of: dict[TopicPartition, Task] = {}
        self._clocked: list[Task] = []
        self._by_silence = False
        #: What brokers have named since the last look, and where it ends.
        self._ends: Mapping[TopicPartition, int] = {}
        #: True if a micro-batch has taken all that was there by the last look, or takes it.
        self._all_taken = False
        self._all_due = -math.inf
        self._changelogs_listed: dict[TaskId, float] = {}

    def begin(self, tasks: Iterable[Task]) -> None:
        """Go on with these tasks, of which nothing is known yet."""
        tasks = tuple(tasks)
        self._of = {partition: task for task in tasks for partition in task.inputs}
        self._clocked = [task for task in tasks if task.clocked]
        self._by_silence = any(task.goes_by_silence for task in tasks)
        self._changelogs_listed.clear()
        self.doubt()

    def doubt(self) -> None:
        """Look at all of them next."""
        self._ends, self._all_taken = {}, False

    def said(self, news: News) -> None:
        """Note what brokers have answered."""
        if news.trouble:
            self.doubt()
        elif news.ends:
            self._ends = news.ends

    def wait(self, now: float, clock_ms: float) -> float:
        """Return for how many seconds there is nothing to look at unless brokers name something.

        Args:
            now: monotonic seconds.
            clock_ms: what the clock of the wall says, in milliseconds since 1970.
        """
        if self._ends or not self._all_taken:
            return 0.0
        return max(0.0, min(self._all_due - now, (self.next_due_ms - clock_ms) / 1000))

    @property
    def next_due_ms(self) -> float:
        """When the first of the tasks is due by the clock of the wall, in milliseconds since 1970; infinity: never."""
        return min((task.due_times.next_ms for task in self._clocked), default=math.inf)

    def named(self, now: float) -> tuple[list[Task], Mapping[TopicPartition, int]] | None:
        """Return the tasks that have what brokers have named, and where that ends; None: all are to be looked at."""
        if not self._ends or now >= self._all_due or self._clocked or self._always_all:
            return None
        tasks = {task.id: task for task in map(self._of.get, self._ends) if task is not None}
        return list(tasks.values()), self._ends

    def changelogs(self, tasks: Iterable[Task], now: float) -> list[TopicPartition]:
        """Return the changelogs of these tasks whose ends are to be listed again."""
        due = [task for task in tasks if now - self._changelogs_listed.get(task.id, -math.inf) >= _CHANGELOGS_SECONDS]
        self._changelogs_listed.update({task.id: now for task in due})
        return [partition for task in due for partition in task.changelogs.values()]

    def looked_at_all(self, now: float) -> None:
        """Note that what is known now is so of all tasks."""
        self._all_due = now + _ALL_SECONDS

    def chosen(
        self,
        tasks: Iterable[Task],
        ends: Mapping[TopicPartition, int],
        work: Mapping[TaskId, tuple[Task, Mapping[TopicPartition, tuple[int, int]]]],
    ) -> None:
        """Note what the next micro-batch takes.

        Args:
            tasks: those that were looked at.
            ends: of their inputs, as far as they were listed or named.
            work: what it takes.
        """
        self._ends = {}
        self._all_taken = not self._always_all and all(
            _taken(task, ends, work[task.id][1] if task.id in work else {}) for task in tasks
        )

    @property
    def _always_all(self) -> bool:
        return self._by_silence or self.asks_writers


def _taken(task: Task, ends: Mapping[TopicPartition, int], ranges: Mapping[TopicPartition, tuple[int, int]]) -> bool:
    """Return whether a micro-batch of these ranges leaves nothing of the task's inputs."""
    stands = task.position.offsets
    return all(
        ends.get(partition, 0) <= (ranges[partition][1] if partition in ranges else stands.get(partition, 0))
        for partition in task.inputs
    )
