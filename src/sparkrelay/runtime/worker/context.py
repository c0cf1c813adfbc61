"""What every step of a worker needs: the order of the batch, its slot, and errors that the driver can read."""

from __future__ import annotations

import functools
import gc
import re
from typing import TYPE_CHECKING, TypeVar

from pyspark import TaskContext

from sparkrelay.errors import StreamsException
from sparkrelay.runtime.orders import EXECUTOR_PROPERTY, ORDER_PROPERTY, BatchOrder, decode, encode
from sparkrelay.runtime.worker.own_executor import own_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from sparkrelay.errors import SparkRelayError
    from sparkrelay.runtime.orders import TaskOrder
    from sparkrelay.runtime.specs import FetchSpec, PublishSpec, StateSpec
    from sparkrelay.types import TaskId

__all__ = [
    "MisplacedTask",
    "WorkerFailure",
    "current_order",
    "current_slot",
    "drain",
    "find_failure",
    "leg_tasks",
    "no_rows",
    "refusal",
    "settle_memory",
    "under_names",
]

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


class MisplacedTask(StreamsException):
    """A Spark task refused to run: it is on another executor than its state, or not the first of its kind."""


def find_failure(text: str) -> tuple[SparkRelayError, TaskId | None] | None:
    """Return the error of ours that a failed Spark job's message carries, if there is one, and the task it is of."""
    match = _MARK.search(text)
    if match is None:
        return None
    failure: tuple[SparkRelayError, TaskId | None] = decode(match.group(1))
    return failure


def current_order(kind: type[Order]) -> Order:
    """Return the order of the job that runs here.

    Every step asks before it does anything, so this is where a task that should not run is turned away.

    Raises:
        WorkerFailure: with :class:`MisplacedTask`.
    """
    context = TaskContext.get()
    assert context is not None, "worker steps run inside a Spark task"
    refused = refusal(context.getLocalProperty(EXECUTOR_PROPERTY) or None, context.attemptNumber())
    if refused is not None:
        raise WorkerFailure(MisplacedTask(refused))
    text = context.getLocalProperty(ORDER_PROPERTY)
    assert text is not None, "the driver sets the order before it runs the job"
    order = _decoded(text)
    assert isinstance(order, kind), f"expected {kind.__name__}, got {type(order).__name__}"
    return order


def refusal(wanted: str | None, attempt: int) -> str | None:
    """Return why a Spark task may not run here, or None.

    State is local to an executor, and an earlier attempt's worker may still be writing.

    Args:
        wanted: id of the executor where the job belongs; None: it belongs wherever it is.
        attempt: 0 for the task's first attempt.
    """
    if attempt > 0:
        return f"attempt {attempt} of a Spark task was refused: spark.task.maxFailures should be 1"
    if wanted is None:
        return None
    own = own_executor()
    found = "an executor that does not say its id" if own is None else f"executor {own.id}"
    if own is not None and own.id == wanted:
        return None
    return (
        f"a Spark task of executor {wanted} was started on {found} and refused: either executor {wanted} is gone, or "
        "spark.locality.wait is too short (10m is recommended)"
    )


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


def no_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield nothing, whatever comes in; as a step it keeps Spark from folding the steps around it away."""
    drain(batches)
    yield from ()


def under_names(
    step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    names: tuple[str, ...],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run a step on rows whose columns came under other names."""
    yield from step(batch.rename_columns(list(names)) for batch in batches)


def settle_memory() -> None:
    """Take what is loaded by now out of the garbage collector's sight.

    PySpark collects after every task; with numba and pyarrow loaded that costs 37 ms each time.
    """
    global _batches_seen  # noqa: PLW0603 - one counter for the process is what is meant
    _batches_seen += 1
    if _batches_seen == _BATCHES_BEFORE_FREEZE:
        gc.collect()
        gc.freeze()
