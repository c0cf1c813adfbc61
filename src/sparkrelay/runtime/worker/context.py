"""What every step of a worker needs: its command, its Spark partition, and rows for reports to the driver."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.runtime.contract.commands import COMMAND_PROPERTY, EXECUTOR_PROPERTY, BatchCommand, decode, encode_bytes
from sparkrelay.runtime.contract.failure_marks import MisplacedTask, WorkerFailure
from sparkrelay.runtime.worker.own.executor import own_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec

    #: What a leg does to its rows in one place.
    Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

Command = TypeVar("Command")
P = ParamSpec("P")

#: Most bytes of a batch for the JVM; Spark's own setting for batches that it sends.
_JVM_BYTES: Final = 64 << 20

#: In a resident job: the command of the micro-batch under way.
_in_force: object = None


@contextlib.contextmanager
def commanded(command: object) -> Iterator[None]:
    """Override the job's command within the block."""
    global _in_force  # noqa: PLW0603 - a worker runs one task at a time
    _in_force = command
    try:
        yield
    finally:
        _in_force = None


def current_command(kind: type[Command]) -> Command:
    """Return the command of the running job; raise MisplacedTask if its task should not run here.

    Every step calls this first, so misplaced tasks are turned away before they do anything.
    """
    if isinstance(_in_force, kind):
        return _in_force
    context = TaskContext.get()
    assert context is not None, "worker steps run inside a Spark task"
    refused = refusal(context.getLocalProperty(EXECUTOR_PROPERTY) or None, context.attemptNumber())
    if refused is not None:
        raise MisplacedTask(refused)
    text = context.getLocalProperty(COMMAND_PROPERTY)
    assert text is not None, "the driver sets the command before it runs the job"
    command = _decoded(text)
    assert isinstance(command, kind), f"expected {kind.__name__}, got {type(command).__name__}"
    return command


def refusal(wanted: str | None, attempt: int) -> str | None:
    """Return why a Spark task may not run here, if it may not.

    State is local to an executor (``wanted``, its id; None: any), and the worker of an earlier attempt may still write.
    ``attempt`` is 0 for the first one.
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
    # Each step of a leg asks several times per job.
    return decode(text)


def current_spark_partition(spark_partitions: int) -> int:
    """Return the number of this Spark partition within its process; a union of legs repeats them."""
    context = TaskContext.get()
    assert context is not None, "worker steps run inside a Spark task"
    return context.partitionId() % spark_partitions


def leg_tasks(spec: StepSpec) -> list[TaskCommand]:
    """Return the tasks of this Spark partition with input for the leg. Raises WorkerFailure for a MisplacedTask."""
    try:
        command = current_command(BatchCommand)
    except MisplacedTask as error:
        raise WorkerFailure(error, spec.failure_key) from None
    return [
        task
        for task in command.spark_partitions[current_spark_partition(spec.spark_partitions)]
        if task.task.subtopology == spec.subtopology and any(p.topic in spec.topics for p in task.ranges)
    ]


def clock_ms(task: TaskCommand) -> int:
    """Return the wall clock in milliseconds: as of when the batch was chosen, if that counts, else now."""
    return task.clock_ms or int(time.time() * 1000)


def report_row(reports: list[Any], padding: bytes = b"") -> pa.RecordBatch:
    """Return the reports of this Spark partition as one row, since each row costs the driver a round trip."""
    return pa.record_batch({"report": pa.array([encode_bytes(reports) + padding], pa.binary())})


def reporting(step: Callable[P, Iterator[pa.RecordBatch]]) -> Callable[P, Iterator[pa.RecordBatch]]:
    """Make a step whose rows go straight to the driver report our errors, which ``run_job`` raises there."""

    @functools.wraps(step)
    def answering(*args: P.args, **kwargs: P.kwargs) -> Iterator[pa.RecordBatch]:
        try:
            yield from step(*args, **kwargs)
        except SparkRelayError as error:
            yield report_row([error])

    return answering


def drain(batches: Iterable[object]) -> None:
    """Read input to its end: unread input ends the Python worker with all its caches."""
    for _ in batches:
        pass


def laid_out(columns: Iterable[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns, in the order of a schema, as its rows."""
    return pa.RecordBatch.from_arrays(
        [as_type(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def no_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield nothing; as a step it keeps Spark from folding the steps around it."""
    drain(batches)
    yield from ()


def pieces(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in pieces of about that many bytes, less than twice as many except for single rows; copies nothing."""
    count = max(1, rows.num_rows * most_bytes // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, count):
        piece = rows.slice(start, count)
        if piece.num_rows > 1 and piece.nbytes > 2 * most_bytes:
            # Large rows are next to each other.
            yield from pieces(piece, most_bytes)
        else:
            yield piece


def spans(costs: np.ndarray[Any, Any], most: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of pieces with at most that cost, or with a single element; pieces without cost are skipped."""
    marks = np.cumsum(costs) // most
    cuts = [0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), len(costs)]
    for start, end in itertools.pairwise(cuts):
        if costs[start:end].sum() > 0:
            yield start, end


def in_pieces(step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a step whose rows go to the JVM, which has little memory and reads each batch into one piece of it."""
    for made in step(batches):
        yield from pieces(made, _JVM_BYTES)


def under_names(step: Step, names: tuple[str, ...], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a step on rows with renamed columns."""
    yield from step(batch.rename_columns(list(names)) for batch in batches)


@dataclass(frozen=True, slots=True)
class PickedColumns:
    """The input of a step, taken from the rows of the step before it.

    Attributes:
        columns: name, name in those rows (None: nulls), type.
        conditions: a row passes if, for each of them, one of its alternatives holds: a column is true or, if the flag
            is False, not null.
    """

    columns: tuple[tuple[str, str | None, pa.DataType], ...]
    conditions: tuple[tuple[tuple[str, bool], ...], ...] = ()

    def of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the picked columns of the rows that pass the conditions."""
        for alternatives in self.conditions:
            passes = [
                pc.fill_null(rows.column(name), False) if flag else pc.is_valid(rows.column(name))
                for name, flag in alternatives
            ] or [pa.repeat(pa.scalar(False), rows.num_rows)]
            kept = functools.reduce(pc.or_, passes)
            if kept.false_count:
                rows = rows.filter(kept)
        columns = [pa.nulls(rows.num_rows, kind) if of is None else rows.column(of) for _, of, kind in self.columns]
        return pa.RecordBatch.from_arrays(columns, [name for name, *_ in self.columns])


def followed_by(first: Step, second: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run two steps in sequence."""
    yield from second(first(batches))


def in_turn(
    first: Step, picked: PickedColumns, second: Step, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run two steps in sequence; the second one takes the picked columns of the first."""
    yield from second(picked.of(rows) for rows in first(batches))
