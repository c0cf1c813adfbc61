"""What every step of a worker needs: its command, its Spark partition, and rows that report to the driver."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.runtime.contract.commands import COMMAND_PROPERTY, EXECUTOR_PROPERTY, BatchCommand, decode, encode_bytes
from sparkrelay.runtime.contract.failure_marks import MisplacedTask, WorkerFailure
from sparkrelay.runtime.worker.own_executor import own_executor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import StepSpec

__all__ = [
    "PickedColumns",
    "clock_ms",
    "commanded",
    "current_command",
    "current_spark_partition",
    "drain",
    "earlier_than",
    "in_pieces",
    "in_turn",
    "laid_out",
    "leg_file",
    "leg_tasks",
    "no_rows",
    "pieces",
    "refusal",
    "report_row",
    "reporting",
    "spans",
    "under_names",
    "whole",
]

Command = TypeVar("Command")
P = ParamSpec("P")

#: Bytes of rows that the JVM gets in one batch; as many as it sends in one, by Spark's own setting.
_JVM_BYTES: Final = 64 << 20

#: In a resident job: the command of the micro-batch under way.
_in_force: object = None


@contextlib.contextmanager
def commanded(command: object) -> Iterator[None]:
    """Have a command in force within the block, instead of the one that stands beside the job."""
    global _in_force  # noqa: PLW0603 - a worker runs one task at a time
    _in_force = command
    try:
        yield
    finally:
        _in_force = None


def current_command(kind: type[Command]) -> Command:
    """Return the command of the job that runs here.

    Every step asks before it does anything, so this is where a task that should not run is turned away.

    Raises:
        MisplacedTask: it should not run here.
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


def current_spark_partition(spark_partitions: int) -> int:
    """Return which of its process's Spark partitions this one is; a union of legs repeats them."""
    context = TaskContext.get()
    assert context is not None, "worker steps run inside a Spark task"
    return context.partitionId() % spark_partitions


def leg_tasks(spec: StepSpec) -> list[TaskCommand]:
    """Return the tasks of this Spark partition that have input for the leg in this batch.

    Raises:
        WorkerFailure: with :class:`MisplacedTask`.
    """
    try:
        command = current_command(BatchCommand)
    except MisplacedTask as error:
        raise WorkerFailure(error, spec.failure_key) from None
    return [
        task
        for task in command.spark_partitions[current_spark_partition(spec.spark_partitions)]
        if task.task.subtopology == spec.subtopology and any(p.topic in spec.topics for p in task.ranges)
    ]


def leg_file(home: str, leg: str, task: TaskCommand) -> Path:
    """Return the file below a directory in which something of a leg waits for a task's micro-batch."""
    # Names of legs have signs that names of files have not, and may be longer than these.
    return Path(home) / f"{task.task}-{hashlib.sha256(leg.encode()).hexdigest()}.arrow"


def earlier_than(home: Path) -> list[Path]:
    """Return what stands beside a micro-batch's directory: that of earlier ones, and of former processes.

    A worker of a micro-batch that was cancelled may go on for a moment: what is a later one's is not its to remove.

    Raises:
        OSError: the directory cannot be read.
    """
    return [path for path in home.parent.iterdir() if path != home and not _is_later(path.name, home.name)]


def _is_later(name: str, than: str) -> bool:
    of, _, number = name.rpartition("-")
    own, _, own_number = than.rpartition("-")
    return of == own and number.isdecimal() and own_number.isdecimal() and int(number) > int(own_number)


def clock_ms(task: TaskCommand) -> int:
    """Return what the machine's clock says or, where that counts, said when the batch was chosen; in milliseconds."""
    return task.clock_ms or int(time.time() * 1000)


def report_row(reports: list[Any], padding: bytes = b"") -> pa.RecordBatch:
    """Return what a job brings back of this Spark partition: one row, since each costs the driver a round trip."""
    return pa.record_batch({"report": pa.array([encode_bytes(reports) + padding], pa.binary())})


def reporting(step: Callable[P, Iterator[pa.RecordBatch]]) -> Callable[P, Iterator[pa.RecordBatch]]:
    """Have a step whose rows go straight to the driver report an error of ours, which ``run_job`` raises there."""

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
    """Return columns as the rows of a schema, in whose order they come."""
    return pa.RecordBatch.from_arrays(
        [as_type(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def no_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield nothing, whatever comes in; as a step it keeps Spark from folding the steps around it away."""
    drain(batches)
    yield from ()


def pieces(rows: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in pieces of about so many bytes, and not twice as many but for a single row; nothing is copied."""
    count = max(1, rows.num_rows * most_bytes // max(1, rows.nbytes))
    for start in range(0, rows.num_rows, count):
        piece = rows.slice(start, count)
        if piece.num_rows > 1 and piece.nbytes > 2 * most_bytes:
            # Large rows stand together.
            yield from pieces(piece, most_bytes)
        else:
            yield piece


def spans(costs: np.ndarray[Any, Any], most: int) -> Iterator[tuple[int, int]]:
    """Yield bounds of pieces that cost so much together at most, or are a single one; those that cost nothing not."""
    marks = np.cumsum(costs) // most
    cuts = [0, *(np.flatnonzero(np.diff(marks)) + 1).tolist(), len(costs)]
    for start, end in itertools.pairwise(cuts):
        if costs[start:end].sum() > 0:
            yield start, end


def in_pieces(
    step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run a step whose rows go to the JVM: it reads each batch into one piece of memory, and has little."""
    for made in step(batches):
        yield from pieces(made, _JVM_BYTES)


def under_names(
    step: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    names: tuple[str, ...],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run a step on rows whose columns came under other names."""
    yield from step(batch.rename_columns(list(names)) for batch in batches)


@dataclass(frozen=True, slots=True)
class PickedColumns:
    """The input of a step, taken from the rows of the step before it.

    Attributes:
        columns: name, name in those rows (None: nulls), type.
        conditions: a row passes if of each of them something is so: a column (of those rows) is true, or, where the
            flag is False, only not null.
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


def in_turn(
    first: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    picked: PickedColumns,
    second: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run two steps in sequence; the second one takes the picked columns of the first."""
    yield from second(picked.of(rows) for rows in first(batches))
