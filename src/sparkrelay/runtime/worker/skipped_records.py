"""Skipped records of a leg's source: from its first step to its last, and from there to the dead letter topic.

The first step decodes and skips records; the last one writes them, in the task's transaction, and reports. The user's
steps are in between. So skipped records are stored in a file of their Spark task, in which both steps run. The file
need not survive a crash, as the batch then runs again.

If several legs read a topic, one of them reports its skipped records (``BatchCommand.skips_of``), so that a record is
written and counted once. KIP-1034, "Default Deserialization/Processing/Production exception handler".
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import (
    RecordRefusedException,
    RecordTooLargeException,
    SerializationException,
    SparkRelayError,
    StreamsException,
)
from sparkrelay.records.batches.columns import HEADERS_TYPE
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.contract import dead_letter_headers
from sparkrelay.runtime.contract.commands import BatchCommand, decode_bytes
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, leg_tasks, report_row
from sparkrelay.runtime.worker.lent_transaction import LentTransaction, await_answers
from sparkrelay.runtime.worker.rows_file import RowsFile, leg_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sparkrelay.records.bad_record import BadRecord
    from sparkrelay.runtime.contract.commands import LegReport, TaskCommand
    from sparkrelay.runtime.contract.specs import FetchSpec, SkippedSpec, StepSpec
    from sparkrelay.runtime.worker.context import Step
    from sparkrelay.types import TopicPartition

log = logging.getLogger(__name__)

_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS_TYPE),
        ("exception", pa.string()),
        ("message", pa.string()),
        ("trace", pa.string()),
    ]
)
#: The added headers of a dead letter; the last ones are these columns.
_NAMES: Final = (
    dead_letter_headers.EXCEPTION,
    dead_letter_headers.MESSAGE,
    dead_letter_headers.TRACE,
    dead_letter_headers.TOPIC,
    dead_letter_headers.PARTITION,
    dead_letter_headers.OFFSET,
)
_ORIGIN: Final = ("topic", "partition", "offset")
#: Most undecodable records of a fetch that are logged.
_MOST_LOGGED: Final = 10
_UNDECODED: Final = f"{SerializationException.__module__}.{SerializationException.__name__}"


class SkippedRecords:
    """The records that the first step of a leg skips in the ranges of its Spark partition's tasks."""

    def __init__(self, spec: StepSpec, tasks: Sequence[TaskCommand]) -> None:
        command = current_command(BatchCommand)
        self._spec = spec
        self._home = command.skipped_records
        self._topics = {topic for leg, topic in command.skips_of if leg == spec.leg}
        self._others = {topic for leg, topic in command.skips_of if leg != spec.leg} - self._topics
        self._tasks = {partition: task for task in tasks for partition in task.ranges}
        self._open = contextlib.ExitStack()
        self._files: dict[str, RowsFile] = {}

    def speaks_for(self, topic: str) -> bool:
        """Return whether this leg writes and counts the skipped records of a topic."""
        return topic in self._topics

    def another_speaks_for(self, topic: str) -> bool:
        """Return whether another leg writes and counts the skipped records of a topic."""
        return topic in self._others

    def undecoded(self, partition: TopicPartition, raw: pa.RecordBatch, reasons: Mapping[int, str]) -> None:
        """Add records that cannot be decoded: their index in ``raw``, and the reason."""
        self._add(partition, raw, {index: (_UNDECODED, reason, "") for index, reason in reasons.items()})

    def left_out(self, partition: TopicPartition, raw: pa.RecordBatch) -> pa.RecordBatch:
        """Add the records that the batch leaves out; return the others."""
        task = self._tasks[partition]
        wanted = task.left_out.get(partition)
        if not wanted:
            return raw
        offsets = raw.column("offset").to_pylist()
        found = {index: wanted[offset] for index, offset in enumerate(offsets) if offset in wanted}
        if not found:
            return raw
        if self.speaks_for(partition.topic):
            self._add(partition, raw, {i: (one.exception, one.message, one.trace) for i, one in found.items()})
        keep = np.ones(raw.num_rows, dtype=bool)
        keep[list(found)] = False
        return raw.filter(pa.array(keep))

    def close(self) -> None:
        """Finish the files for the leg's last step."""
        with self._open:
            for file in self._files.values():
                file.finish()

    def _add(self, partition: TopicPartition, raw: pa.RecordBatch, reasons: Mapping[int, tuple[str, str, str]]) -> None:
        count = len(reasons)
        records = raw.take(pa.array(list(reasons), pa.int64()))
        exceptions, messages, traces = zip(*reasons.values(), strict=True)
        given = {
            "topic": pa.array([partition.topic] * count),
            "partition": pa.array([partition.partition] * count, pa.int32()),
            "exception": pa.array(exceptions, pa.string()),
            "message": pa.array(messages, pa.string()),
            "trace": pa.array(traces, pa.string()),
            "timestamp": records.column("timestamp").cast(pa.timestamp("ms", "UTC")).view(pa.int64()),
        }
        columns = [
            given[field.name]
            if field.name in given
            else records.column(field.name)
            if field.name in records.schema.names
            else pa.nulls(count, field.type)
            for field in _SCHEMA
        ]
        self._file(self._tasks[partition]).add(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))

    def _file(self, task: TaskCommand) -> RowsFile:
        name = str(task.task)
        if name not in self._files:
            assert self._home is not None, "a batch that may skip records has a directory for them"
            what = f"the skipped records of task {task.task}"
            self._files[name] = self._open.enter_context(RowsFile(self._home, self._spec.leg, task, _SCHEMA, what))
        return self._files[name]


def without_bad(
    spec: FetchSpec,
    partition: TopicPartition,
    raw: pa.RecordBatch,
    bad: list[BadRecord],
    skipped: SkippedRecords | None,
) -> pa.Array:
    """Return a mask without the undecodable records, or raise, as configured."""
    silent = skipped is not None and skipped.another_speaks_for(partition.topic)
    for record in bad[: 1 if not spec.skip_bad_records else _MOST_LOGGED]:
        offset = raw.column("offset")[record.index].as_py()
        message = f"record {partition.topic}-{partition.partition} at offset {offset} does not decode: {record.reason}"
        if not spec.skip_bad_records:
            raise SerializationException(
                f"{message}. Fix the producer, or set deserialization.exception.handler=log-and-continue to skip such "
                "records; errors.dead.letter.queue.topic.name names a topic that keeps them."
            )
        if not silent:
            log.warning("skipped: %s", message)
    if skipped is not None and skipped.speaks_for(partition.topic):
        skipped.undecoded(partition, raw, {record.index: record.reason for record in bad})
    keep = np.ones(raw.num_rows, dtype=bool)
    keep[[record.index for record in bad]] = False
    return pa.array(keep)


def reporting_skipped(spec: SkippedSpec, step: Step, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run a leg's last step, then write the records that its first one skipped, and add them to the reports."""
    home = current_command(BatchCommand).skipped_records
    for row in step(batches):
        if home is None or not Path(home).exists():
            yield row
        else:
            reports: list[LegReport] = decode_bytes(row.column(0)[0].as_py())
            yield report_row(_with_skipped(spec, home, reports))


def _with_skipped(spec: SkippedSpec, home: str, reports: Sequence[LegReport]) -> list[LegReport]:
    tasks = {task.task: task for task in leg_tasks(spec)}
    made = list(reports)
    sent: dict[int, TaskCommand] = {}
    written: dict[TopicPartition, int] = {}
    for index, report in enumerate(reports):
        task = tasks[report.task]
        path = leg_file(home, spec.leg, task)
        if report.error is not None or not path.exists():
            continue
        sent[index] = task
        try:
            made[index] = _sent(spec, task, report, path, written)
        except SparkRelayError as error:
            made[index] = report._replace(error=error)
    # Without a connection, each report has that error already.
    if spec.topic is not None and any(made[index].error is None for index in sent):
        await_answers(connections.producer(spec.client), made, sent, spec.flush_seconds)
    for index in sent:
        # Distinguish it from a record of the pipeline's sinks.
        reason = made[index].error
        if isinstance(reason, RecordTooLargeException | RecordRefusedException):
            refusal = type(reason)(
                f"a dead letter does not fit errors.dead.letter.queue.topic.name={spec.topic!r}; that topic's "
                "max.message.bytes must be some kilobytes larger than the largest record, and it must take records "
                f"without a key and of their timestamps: {reason}"
            )
            made[index] = made[index]._replace(error=refusal)
    if any(made[index].error is not None for index in sent):
        connections.forget_producer(spec.client)
    return made


def _sent(
    spec: SkippedSpec, task: TaskCommand, report: LegReport, path: Path, written: dict[TopicPartition, int]
) -> LegReport:
    """Send a task's skipped records to the dead letter topic, if any, and count them."""
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as stream:
            records = stream.read_all()
        path.unlink()
    except (OSError, pa.ArrowException) as error:
        raise StreamsException(
            f"the skipped records of task {task.task} cannot be read from {path}: {error}"
        ) from error
    topics, counts = np.unique(records.column("topic").to_numpy(zero_copy_only=False), return_counts=True)
    skipped = dict(zip(topics.tolist(), counts.tolist(), strict=True))
    if spec.topic is None:
        return report._replace(skipped=skipped)
    producer = connections.producer(spec.client)
    transaction = LentTransaction(producer, task, spec.compression, written)
    count = current_command(BatchCommand).partitions[spec.topic]
    records = records.combine_chunks()
    keys, values = (records.column(name).combine_chunks() for name in ("key", "value"))
    headers, times = _headers(records), records.column("timestamp").combine_chunks()
    targets = murmur2_partitions(keys, count)
    targets = np.where(targets < 0, task.task.partition % count, targets).astype(np.int32)
    transaction.send_by_partition(spec.topic, targets, task.task, keys, values, times, headers)
    written |= transaction.next_sequences
    return report._replace(skipped=skipped, next_sequences={**report.next_sequences, **transaction.next_sequences})


def _headers(records: pa.Table) -> pa.Array:
    """Return the records' own headers, followed by the error and the origin."""
    rows, own = records.num_rows, records.column("headers").combine_chunks()
    exception, message, trace = (records.column(name) for name in ("exception", "message", "trace"))
    # Undecodable records have no stack.
    trace = pc.if_else(pc.equal(trace, ""), pc.binary_join_element_wise(exception, message, ": "), trace)
    said = [exception, message, trace, *(records.column(name).cast(pa.string()) for name in _ORIGIN)]
    lengths = pc.fill_null(pc.list_value_length(own), 0).to_numpy()
    given = own.flatten()
    ends = np.cumsum(lengths + len(_NAMES))
    # A row's last headers are ours, which are stored after the own headers of all rows.
    places = ends[:, None] + np.arange(-len(_NAMES), 0)
    sources = len(given) + np.arange(len(_NAMES)) * rows + np.arange(rows)[:, None]
    order = np.full(ends[-1], -1)
    order[places] = sources
    order[order < 0] = np.arange(len(given))
    values = pa.concat_arrays([given.field("value"), *(column.combine_chunks().cast(pa.binary()) for column in said)])
    names = pa.concat_arrays([given.field("key"), pa.array(np.repeat(_NAMES, rows))])
    headers = pa.StructArray.from_arrays([names.take(order), values.take(order)], fields=list(HEADERS_TYPE.value_type))
    return pa.ListArray.from_arrays(pa.array([0, *ends.tolist()], pa.int32()), headers)
