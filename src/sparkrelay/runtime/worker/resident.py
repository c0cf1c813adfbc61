"""The steps of a resident job: the same steps as in a job of one micro-batch, run again and again.

A resident job is started once and stays. Its source waits on a channel for the driver's command, yields the rows of
that micro-batch, and then two more: a *marker*, which carries the command in a hidden column, and a *filler*.
Catalyst's steps and ours run on them as ever. Whoever meets the marker has had every row of the micro-batch, and knows
its command; the last step sends its reports back over a channel of its own.

What makes rows flow on although everything in between buffers:

1. A step flushes what it has written before it waits for more.
2. The marker's column is longer than what the JVM gathers before it passes an Arrow batch on (the plan's
   ``spark.sql.execution.arrow.maxBytesPerBatch``) and before it writes to a worker's socket (``spark.buffer.size``).
3. The JVM asks for one more row before it looks at the size: the filler is that row.
4. Where a step stands in the middle, ``spark.python.udf.pipelined.enabled`` has the JVM feed it on a thread of its own.
   Else the thread that should read what it has made waits for the input of the next micro-batch.

Consecutive steps of ours are one Python stage (``compile.job_kinds``): rows pass from one to the next in Python, but
each step has its own channel.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.errors import SparkRelayError, StreamsException
from sparkrelay.runtime.contract.channel import Channel, connect
from sparkrelay.runtime.contract.commands import BatchCommand, decode_bytes
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.contract.resident import ResidentCommand, Role, StepName, read_stamp, stamped
from sparkrelay.runtime.worker.context import commanded, current_command, drain

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkrelay.runtime.worker.context import Step

#: Marker column of the row after a marker.
_FILLER: Final = b""

#: The file through which this worker's rows go to the JVM.
_output: BinaryIO | None = None


def writes_to(output: BinaryIO) -> None:
    """Record where this worker writes its rows; the worker daemon calls it."""
    global _output  # noqa: PLW0603 - one process, one output
    _output = output


def resident_steps(
    names: Sequence[StepName], step: Step, schema: pa.Schema | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run consecutive steps of a leg as one, for one micro-batch after the other.

    A source makes rows when the driver asks for them, until it closes the channel; its input, the placed source's row,
    only starts it. A last step (``schema`` is None) sends its reports over its channel, and passes no rows on.
    ``schema`` is that of the output without the marker's column.
    """
    with contextlib.ExitStack() as stack:
        begun = [stack.enter_context(_begun(name)) for name in names]
        (job, first), (_, last) = begun[0], begun[-1]
        commands = _asked(first, batches) if names[0].role == Role.SOURCE else _micro_batches(batches)
        clock = _CpuClock()
        for (seconds, data), rows in commands:
            with commanded(_command(data)):
                for made in step(iter(rows)):
                    if schema is None:
                        last.send(clock.stamped(made.column(0)[0].as_py(), seconds))
                    else:
                        yield _with_marker(made, None)
            if schema is not None:
                yield _end(schema, clock.stamped(data, seconds), job.marker_bytes)


def _asked(
    channel: Channel, batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[tuple[float, bytes], list[pa.RecordBatch]]]:
    """Yield the command of each micro-batch that the driver asks for, without rows."""
    drain(batches)
    while (data := _next(channel)) is not None:
        yield (0.0, data), []


class _CpuClock:
    """Counts the CPU seconds that this worker spends on each micro-batch; they travel with it."""

    def __init__(self) -> None:
        self._at = time.process_time()

    def stamped(self, data: bytes, seconds: float = 0.0) -> bytes:
        """Return data stamped with the CPU seconds of earlier steps and of this one since the last call."""
        before, self._at = self._at, time.process_time()
        return stamped(data, seconds + self._at - before)


@contextlib.contextmanager
def _begun(name: StepName) -> Iterator[tuple[ResidentCommand, Channel]]:
    """Connect a step to the driver. Raises WorkerFailure if it should not run here, or nobody listens."""
    try:
        job = current_command(ResidentCommand)
        channel = connect(job.address, name.key)
    except SparkRelayError as error:
        raise WorkerFailure(error, name.key) from None
    try:
        channel.send(f"{name.role} {name.leg}".encode())
        yield job, channel
    finally:
        channel.close()


def _next(channel: Channel) -> bytes | None:
    _flush()
    return channel.receive()


def _flush() -> None:
    if _output is None:
        raise StreamsException(
            "a resident job needs workers of sparkrelay's own daemon: set spark.python.daemon.module to "
            "sparkrelay.runtime.worker.daemon, as sparkrelay.spark_session() does"
        )
    _output.flush()


def _command(data: bytes) -> BatchCommand:
    command: Any = decode_bytes(data)
    assert isinstance(command, BatchCommand), f"expected a BatchCommand, got {type(command).__name__}"
    return command


def _micro_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[tuple[float, bytes], list[pa.RecordBatch]]]:
    """Yield the stamped command and the rows of each micro-batch once its marker arrives."""
    rows: list[pa.RecordBatch] = []
    while True:
        _flush()
        batch = next(batches, None)
        if batch is None:
            return
        column = batch.schema.get_field_index(hidden_columns.MARKER)
        markers, batch = batch.column(column), batch.remove_column(column)
        start = 0
        # Nulls for rows: usually all.
        for place in range(len(markers)) if markers.null_count < len(markers) else ():
            if not markers[place].is_valid:
                continue
            rows.append(batch.slice(start, place - start))
            start = place + 1
            data = markers[place].as_py()
            if data != _FILLER:
                yield read_stamp(data), [part for part in rows if part.num_rows]
                rows = []
        rows.append(batch.slice(start))


def _with_marker(rows: pa.RecordBatch, marker: bytes | None) -> pa.RecordBatch:
    return rows.append_column(
        pa.field(hidden_columns.MARKER, pa.binary()), pa.array([marker] * rows.num_rows, pa.binary())
    )


def _end(schema: pa.Schema, data: bytes, length: int) -> pa.RecordBatch:
    """Return the two rows that end a micro-batch, padded; the padding is not read."""
    columns = [pa.nulls(2, field.type) if field.nullable else _zeros(field.type) for field in schema]
    markers = pa.array([data.ljust(length, b"\0"), _FILLER], pa.binary())
    return pa.RecordBatch.from_arrays(
        [*columns, markers], schema=schema.append(pa.field(hidden_columns.MARKER, pa.binary()))
    )


def _zeros(kind: pa.DataType) -> pa.Array:
    """Return two placeholder values of a non-nullable type; nothing is computed from them."""
    if pa.types.is_struct(kind):
        children = [pa.nulls(2, f.type) if f.nullable else _zeros(f.type) for f in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind))
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        value: Any = []
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        value = b""
    else:
        value = False if pa.types.is_boolean(kind) else 0
    return pa.array([value, value], kind)
