"""The steps of ``java.util.PriorityQueue``, which decide the order of equal entries.

``heapq`` sifts differently. Where Kafka Streams takes equal entries from a queue, or reads the rest of it, Java's steps
are needed for Java's assignments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["java_order", "sift_down", "sift_up"]

Entry = TypeVar("Entry")


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
