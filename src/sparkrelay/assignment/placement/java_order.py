"""The orders in which Java's collections return ids, where they show in Kafka's assignments.

Hash tables: the last tasks dealt to threads, and the choices of the sticky assignor. Slot = (h ^ h >>> 16) & (n - 1); n
starts at 16 and doubles when the size exceeds 3/4 of it; insertion order in a slot. ``java.util.PriorityQueue`` decides
among equal entries by its sift steps, from which ``heapq``'s differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.types import ProcessId, TaskId

Entry = TypeVar("Entry")

_LOW_32 = (1 << 32) - 1
_FIRST_CAPACITY = 16


def task_hash_order(tasks: Iterable[TaskId]) -> list[TaskId]:
    """Return task ids in the order of a Java hash set after these insertions."""
    given = list(tasks)
    mask = _capacity(len(given)) - 1
    return sorted(given, key=lambda task: _slot(((31 + task.subtopology) * 31 + task.partition) * 31, mask))


def process_hash_order(processes: Iterable[ProcessId]) -> list[ProcessId]:
    """Return process ids in the order of a Java hash map after these insertions."""
    given = list(processes)
    mask = _capacity(len(given)) - 1
    return sorted(given, key=lambda process: _slot(_uuid_hash(process.id.int), mask))


def _uuid_hash(value: int) -> int:
    halves = (value >> 64) ^ (value & ((1 << 64) - 1))
    return (halves >> 32) ^ halves


def _slot(hashed: int, mask: int) -> int:
    low = hashed & _LOW_32
    return (low ^ (low >> 16)) & mask


def _capacity(size: int) -> int:
    capacity = _FIRST_CAPACITY
    while 4 * size > 3 * capacity:
        capacity *= 2
    return capacity


def sift_down(heap: list[Entry], at: int, key: Callable[[Entry], Any]) -> None:
    """Move an entry down below smaller ones."""
    while (child := 2 * at + 1) < len(heap):
        if child + 1 < len(heap) and key(heap[child + 1]) < key(heap[child]):
            child += 1
        if not key(heap[child]) < key(heap[at]):
            break
        heap[at], heap[child] = heap[child], heap[at]
        at = child


def sift_up(heap: list[Entry], at: int, key: Callable[[Entry], Any]) -> None:
    """Move an entry up above larger ones."""
    while at > 0 and key(heap[at]) < key(heap[parent := (at - 1) // 2]):
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


def java_order(entries: Iterable[Entry], key: Callable[[Entry], Any]) -> list[Entry]:
    """Return entries in the order in which a Java queue, filled one by one, returns them."""
    heap: list[Entry] = []
    for entry in entries:
        heap.append(entry)
        sift_up(heap, len(heap) - 1, key)
    taken = []
    while heap:
        taken.append(heap[0])
        last = heap.pop()
        if heap:
            heap[0] = last
            sift_down(heap, 0, key)
    return taken
