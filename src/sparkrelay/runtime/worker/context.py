"""What every step of a worker needs: the order of the batch, its slot, and errors that the driver can read."""

from __future__ import annotations

import functools
import gc
import re
from typing import TYPE_CHECKING, TypeVar

from pyspark import TaskContext

from sparkrelay.runtime.orders import ORDER_PROPERTY, BatchOrder, decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.errors import SparkRelayError
    from sparkrelay.runtime.orders import TaskOrder
    from sparkrelay.runtime.specs import FetchSpec, PublishSpec, StateSpec
    from sparkrelay.types import TaskId

__all__ = ["WorkerFailure", "current_order", "current_slot", "drain", "find_failure", "leg_tasks", "settle_memory"]

Order = TypeVar("Order")

_MARK = re.compile(r"\[sparkrelay-error:([A-Za-z0-9+/=]+)\]")
_BATCHES_BEFORE_FREEZE = 3
_batches_seen = 0


class WorkerFailure(Exception):  # noqa: N818 - it is not ours to catch, it carries one that is
    """Carries one of our errors from a step before the user's code to the driver, through Spark's own error text.

    ``task`` names the one task whose fault it is; without it the whole job failed.
    """

    def __init__(self, error: SparkRelayError, task: TaskId | None = None) -> None:
        super().__init__(f"{error} [sparkrelay-error:{encode((error, task))}]")


def find_failure(text: str) -> tuple[SparkRelayError, TaskId | None] | None:
    """Return the error of ours that a failed Spark job's message carries, if there is one, and the task it is of."""
    match = _MARK.search(text)
    if match is None:
        return None
    failure: tuple[SparkRelayError, TaskId | None] = decode(match.group(1))
    return failure


def current_order(kind: type[Order]) -> Order:
    """Return the order of the job that runs here."""
    context = TaskContext.get()
    assert context is not None, "worker steps run inside a Spark task"
    text = context.getLocalProperty(ORDER_PROPERTY)
    assert text is not None, "the driver sets the order before it runs the job"
    order = _decoded(text)
    assert isinstance(order, kind), f"expected {kind.__name__}, got {type(order).__name__}"
    return order


@functools.lru_cache(maxsize=1)
def _decoded(text: str) -> object:
    # Each step of a leg asks several times within one job.
    return decode(text)


def current_slot(slots: int) -> int:
    """Return which of its process's slots this Spark partition is; a union of legs repeats them."""
    context = TaskContext.get()
    assert context is not None, "worker steps run inside a Spark task"
    return context.partitionId() % slots


def leg_tasks(spec: FetchSpec | StateSpec | PublishSpec) -> list[TaskOrder]:
    """Return the tasks of this slot that have input for the leg in this batch."""
    order = current_order(BatchOrder)
    return [
        task
        for task in order.slots[current_slot(spec.slots)]
        if task.task.subtopology == spec.subtopology and any(p.topic in spec.topics for p in task.ranges)
    ]


def drain(batches: Iterable[object]) -> None:
    """Read input to its end: unread input ends the Python worker with all its caches."""
    for _ in batches:
        pass


def settle_memory() -> None:
    """Take what is loaded by now out of the garbage collector's sight.

    PySpark collects after every task; with numba and pyarrow loaded that costs 37 ms each time.
    """
    global _batches_seen  # noqa: PLW0603 - one counter for the process is what is meant
    _batches_seen += 1
    if _batches_seen == _BATCHES_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()
