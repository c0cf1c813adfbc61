"""A process's tasks on its consumers: sticky for state, balanced for work. See KIP-924, "Consumer Assignments".

KIP-924 keeps this step internal: assignors never see a consumer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from sparkrelay.assignment.placement.java_order import sift_down, sift_up, task_hash_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.types import TaskId


def _itself(task: TaskId) -> TaskId:
    return task


class TaskHeap:
    """A binary heap with removal, readable in array order.

    Kafka builds it from a hash set, and deals a process's last tasks in the array order of the heap.
    """

    __slots__ = ("_heap",)

    def __init__(self, tasks: Iterable[TaskId]) -> None:
        self._heap = task_hash_order(sorted(tasks))
        for at in reversed(range(len(self._heap) // 2)):
            sift_down(self._heap, at, _itself)

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, task: object) -> bool:
        return task in self._heap

    @property
    def array(self) -> tuple[TaskId, ...]:
        """The tasks in array order."""
        return tuple(self._heap)

    def pop(self) -> TaskId:
        """Remove and return the least task."""
        least = self._heap[0]
        self.remove(least)
        return least

    def remove(self, task: TaskId) -> None:
        """Remove a task; raises ValueError if it is missing."""
        at = self._heap.index(task)
        last = self._heap.pop()
        if at == len(self._heap):
            return
        self._heap[at] = last
        sift_down(self._heap, at, _itself)
        if self._heap[at] == last:
            sift_up(self._heap, at, _itself)


class ThreadLoads:
    """Spreads one kind of tasks after another over the consumers of a process.

    The order is stateful actives, standbys, stateless actives; each kind evens out the loads that the former left.
    """

    __slots__ = ("_load", "consumers")

    def __init__(self, consumers: Iterable[str]) -> None:
        self.consumers: Sequence[str] = sorted(consumers)
        self._load = dict.fromkeys(self.consumers, 0)

    def spread(
        self,
        tasks: Iterable[TaskId],
        previous: Mapping[str, Sequence[TaskId]] | None = None,
        holders: Mapping[TaskId, str] | None = None,
    ) -> dict[str, list[TaskId]]:
        """Return tasks of one kind by consumer, in the order dealt.

        ``previous`` are the tasks with state on each consumer, least lag first. ``holders`` get their tasks whatever
        their load.
        """
        given: dict[str, list[TaskId]] = {consumer: [] for consumer in self.consumers}
        rest = TaskHeap(tasks)
        for task, consumer in sorted((holders or {}).items()):
            if task in rest:
                given[consumer].append(task)
                rest.remove(task)
        if len(rest):
            total = len(rest) + sum(self._total(consumer, given) for consumer in self.consumers)
            least = total // len(self.consumers)
            skipped = self._keep_previous(given, rest, least, previous or {})
            self._fill(given, rest, least)
            self._deal_rest(given, rest, least, skipped)
        for consumer, got in given.items():
            self._load[consumer] += len(got)
        return given

    def _total(self, consumer: str, given: Mapping[str, Sequence[TaskId]]) -> int:
        return self._load[consumer] + len(given[consumer])

    def _keep_previous(
        self,
        given: dict[str, list[TaskId]],
        rest: TaskHeap,
        least: int,
        previous: Mapping[str, Sequence[TaskId]],
    ) -> dict[TaskId, str]:
        """Let every thread keep tasks that it has state of, up to the least share; return the skipped ones."""
        skipped: dict[TaskId, str] = {}
        for consumer in self.consumers:
            for task in previous.get(consumer, ()):
                if task not in rest:
                    continue
                if self._total(consumer, given) < least:
                    given[consumer].append(task)
                    rest.remove(task)
                else:
                    skipped[task] = consumer
        return skipped

    def _fill(self, given: dict[str, list[TaskId]], rest: TaskHeap, least: int) -> None:
        """Deal tasks round robin to threads below the least share."""
        short = deque(consumer for consumer in self.consumers if self._total(consumer, given) < least)
        while short and len(rest):
            consumer = short.popleft()
            given[consumer].append(rest.pop())
            if self._total(consumer, given) < least:
                short.append(consumer)

    def _deal_rest(
        self, given: dict[str, list[TaskId]], rest: TaskHeap, least: int, skipped: Mapping[TaskId, str]
    ) -> None:
        """Give the remaining tasks, one each, to threads with the least share, preferring previous owners."""
        open_consumers = [consumer for consumer in self.consumers if self._total(consumer, given) == least]
        for task in sorted(skipped):
            owner = skipped[task]
            if task in rest and owner in open_consumers:
                given[owner].append(task)
                rest.remove(task)
                open_consumers.remove(owner)
        for task, consumer in zip(rest.array, open_consumers, strict=False):
            given[consumer].append(task)
