"""The steps of ``java.util.PriorityQueue``: which of equal entries comes first hangs on them.

``heapq`` sifts in another way. Where Kafka Streams takes equal entries from a queue, or reads what is left in it, an
assignment is equal to Java's only with Java's steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["java_order", "sift_down", "sift_up"]

Entry = TypeVar("Entry")


def sift_down(heap: list[Entry], at: int, key: Callable[[Entry], Any]) -> None:
    """Let an entry sink below those that come before it."""
    while (child := 2 * at + 1) < len(heap):
        if child + 1 < len(heap) and key(heap[child + 1]) < key(heap[child]):
            child += 1
        if not key(heap[child]) < key(heap[at]):
            break
        heap[at], heap[child] = heap[child], heap[at]
        at = child


def sift_up(heap: list[Entry], at: int, key: Callable[[Entry], Any]) -> None:
    """Let an entry rise above those that come after it."""
    while at > 0 and key(heap[at]) < key(heap[parent := (at - 1) // 2]):
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


def java_order(entries: Iterable[Entry], key: Callable[[Entry], Any]) -> list[Entry]:
    """Return entries as they leave a Java queue that they were offered to one by one."""
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
