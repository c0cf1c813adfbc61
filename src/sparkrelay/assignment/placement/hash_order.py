"""The iteration order of Java's hash tables of ids.

It shows in Kafka's results in a few places: the last tasks dealt to threads, and the choices of the sticky assignor.
Slot = (h ^ h >>> 16) & (n - 1); n starts at 16 and doubles when the size exceeds 3/4 of it; insertion order in a slot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.types import ProcessId, TaskId

__all__ = ["process_hash_order", "task_hash_order"]

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
