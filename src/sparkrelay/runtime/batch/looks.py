"""Which tasks the batch thread checks for input: those with news from the brokers, or all of them.

To check all tasks, the thread lists the ends of their inputs and changelogs, at a cost per task. It does so after a
rebalance, after a failed batch, when a batch left input unread, when a broker reported an error, and for tasks that act
on silence. Otherwise brokers report partitions with new records (``client.new_records``), and only their tasks are
checked: 10 tasks with input cost the same among 10 tasks as among 1,000. Pure; times are monotonic seconds.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkrelay.client.new_records import News
    from sparkrelay.runtime.tasks.ranges import Ranges
    from sparkrelay.runtime.tasks.task import Task, Work
    from sparkrelay.types import TaskId, TopicPartition

#: All tasks are checked at least this often.
_ALL_SECONDS: Final = 60.0
#: The changelog ends of a task with input are listed this often. A copy continues from there, and may lag.
_CHANGELOGS_SECONDS: Final = 1.0


class Looks:
    """What is known between two micro-batches about the inputs of a stream thread's tasks."""

    def __init__(self) -> None:
        #: True if the event times of upstream tasks count, which every check asks for.
        self.asks_writers = False
        self._tasks: dict[TopicPartition, Task] = {}
        self._clocked: list[Task] = []
        self._by_silence = False
        #: End offsets that brokers have reported since the last check.
        self._ends: Mapping[TopicPartition, int] = {}
        #: True if the last batch took all input that was there.
        self._all_taken = False
        self._all_due = -math.inf
        self._changelogs_listed: dict[TaskId, float] = {}

    def reset(self, tasks: Iterable[Task]) -> None:
        """Continue with these tasks; nothing is known about their inputs."""
        tasks = tuple(tasks)
        self._tasks = {partition: task for task in tasks for partition in task.inputs}
        self._clocked = [task for task in tasks if task.shape.clocked]
        self._by_silence = any(task.times.depend_on_silence for task in tasks)
        self._changelogs_listed.clear()
        self.invalidate()

    def invalidate(self) -> None:
        """Check all tasks the next time."""
        self._ends, self._all_taken = {}, False

    def on_news(self, news: News) -> None:
        """Record an answer of the brokers."""
        if news.trouble:
            self.invalidate()
        elif news.ends:
            self._ends = news.ends

    def seconds_to_wait(self, now: float, clock_ms: float) -> float:
        """Return for how many seconds no task needs to be checked without news from brokers."""
        if self._ends or not self._all_taken:
            return 0.0
        return max(0.0, min(self._all_due - now, (self.next_due_ms - clock_ms) / 1000))

    @property
    def next_due_ms(self) -> float:
        """When the first timer of a task is due, wall clock in milliseconds since 1970; infinity: never."""
        return min((task.times.due_times.next_ms for task in self._clocked), default=math.inf)

    def with_news(self, now: float) -> tuple[list[Task], Mapping[TopicPartition, int]] | None:
        """Return the tasks with new input and its end offsets; None if all tasks must be checked."""
        # Input that was left before is not in the brokers' news.
        if not (self._ends and self._all_taken) or now >= self._all_due or self._clocked or self._always_all:
            return None
        tasks = {task.id: task for task in map(self._tasks.get, self._ends) if task is not None}
        return list(tasks.values()), self._ends

    def changelogs_due(self, tasks: Iterable[Task], now: float) -> list[TopicPartition]:
        """Return the changelogs of these tasks whose end offsets are to be listed now."""
        due = [
            task
            for task in tasks
            # A changelog is cut at the end that was listed before the batch.
            if task.shape.cut or now - self._changelogs_listed.get(task.id, -math.inf) >= _CHANGELOGS_SECONDS
        ]
        self._changelogs_listed.update({task.id: now for task in due})
        return [partition for task in due for partition in task.changelogs.values()]

    def on_all_checked(self, now: float) -> None:
        """Record that all tasks were checked."""
        self._all_due = now + _ALL_SECONDS

    def on_planned(
        self,
        tasks: Iterable[Task],
        ends: Mapping[TopicPartition, int],
        work: Work,
    ) -> None:
        """Record the next micro-batch: the checked tasks, known ends, and the chosen ranges."""
        self._ends = {}
        self._all_taken = not self._always_all and all(
            _takes_all(task, ends, work[task.id][1] if task.id in work else {}) for task in tasks
        )

    @property
    def _always_all(self) -> bool:
        return self._by_silence or self.asks_writers


def _takes_all(task: Task, ends: Mapping[TopicPartition, int], ranges: Ranges) -> bool:
    """Return whether a micro-batch with these ranges leaves no input of the task unread."""
    offsets = task.position.offsets
    return all(
        ends.get(partition, 0) <= (ranges[partition][1] if partition in ranges else offsets.get(partition, 0))
        for partition in task.inputs
    )
