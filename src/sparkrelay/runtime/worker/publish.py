"""The last step of a leg: outputs, repartition records and changelog, produced under the task's lent transaction.

Every response is awaited before the report is written. Whether the records become visible is the driver's to decide:
it ends the transaction once all legs of the batch are back.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.encode import NO_TIMESTAMP, ProducerState, encode as encode_records, next_sequence
from sparkrelay.records.partition import murmur2_partitions, split_by_partition
from sparkrelay.runtime.contract import fault_points, hidden_columns
from sparkrelay.runtime.contract.commands import BatchCommand, LegReport, TaskCommand
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, leg_tasks, release_unused_memory, report_row
from sparkrelay.runtime.worker.encoding import sink_keys, sink_values
from sparkrelay.runtime.worker.state import TaskOutcome, apply_leg, collect_rows
from sparkrelay.state.changelog import Marker, encode_changelog, encode_marker
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.client.produce import Producer
    from sparkrelay.runtime.contract.specs import PublishSpec, StateSpec
    from sparkrelay.state import Applied

__all__ = ["publish_leg", "state_and_publish_leg", "state_leg"]


#: Where a batch is full; one that is compressed is smaller, and topics take 1 MiB by default.
_BATCH_BYTES: Final = 1_000_000


class _Transaction:
    """Produces one task's records under its lent producer id, keeping count of sequences."""

    def __init__(self, producer: Producer, command: TaskCommand, compression: str) -> None:
        self._producer = producer
        self._command = command
        self._compression = compression
        #: Of the partitions that are written here: those of legs beside this one must not be said again as they were.
        self.next_sequences: dict[TopicPartition, int] = {}
        #: Sink topic of the user's -> the oldest timestamp written to it.
        self.oldest: dict[str, int] = {}
        producer.begin(command.transaction)

    def send(
        self,
        partition: TopicPartition,
        keys: pa.Array,
        values: pa.Array,
        timestamps: pa.Array | int,
        headers: pa.Array | None = None,
    ) -> None:
        lent = self._command.transaction
        sequence = self.next_sequences.get(partition, self._command.sequences.get(partition, 0))
        for batch in encode_records(
            keys,
            values,
            timestamps=timestamps,
            headers=headers,
            producer=ProducerState(lent.producer_id, lent.epoch, sequence),
            transactional=True,
            compression=self._compression,
            max_batch_bytes=min(_BATCH_BYTES, self._producer.max_request_size),
        ):
            self._producer.send(partition, batch.data, transactional_id=lent.transactional_id)
            fault_points.reach("publish-after-send")
            sequence = next_sequence(sequence, batch.record_count)
        self.next_sequences[partition] = sequence


def publish_leg(spec: PublishSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a leg to its sink topic; yield one report a task."""
    tasks = leg_tasks(spec)
    rows = collect_rows(tasks, batches)
    release_unused_memory()
    connections.close_unused()

    def publish(task: TaskCommand, transaction: _Transaction) -> LegReport:
        parts = rows.pop(task.task.partition)
        for part in parts:
            _send_rows(transaction, spec, task, part)
        count = sum(part.num_rows for part in parts)
        return LegReport(
            spec.leg,
            task.task,
            task.batch,
            rows_in=count,
            rows_out=0 if spec.topic is None else count,
            oldest_out=transaction.oldest,
            next_sequences=transaction.next_sequences,
        )

    yield _publish(spec, ((task, functools.partial(publish, task)) for task in tasks))


def state_and_publish_leg(
    state: StateSpec, spec: PublishSpec, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Aggregate, then write changelog and updates in one Python stage; yield one report a task."""

    def publish(outcome: TaskOutcome, transaction: _Transaction) -> LegReport:
        applied = outcome.result()
        _send_changelog(transaction, state, outcome.command, applied)
        _send_rows(transaction, spec, outcome.command, applied.emitted)
        return LegReport(
            spec.leg,
            outcome.command.task,
            outcome.command.batch,
            rows_in=outcome.rows_in,
            rows_out=0 if spec.topic is None else applied.emitted.num_rows,
            oldest_out=transaction.oldest,
            keys_changed=len(applied.keys),
            next_sequences=transaction.next_sequences,
            seconds={"state": outcome.seconds},
        )

    outcomes = apply_leg(state, batches)
    yield _publish(spec, ((outcome.command, functools.partial(publish, outcome)) for outcome in outcomes))


def state_leg(state: StateSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Aggregate and write the changelog; yield the updates for the steps that follow."""
    outcomes = list(apply_leg(state, batches))
    for outcome in outcomes:
        if outcome.error is not None:
            raise WorkerFailure(outcome.error, state.failure_key, outcome.command.task) from None
    try:
        producer = connections.producer(state.client)
        for outcome in outcomes:
            transaction = _Transaction(producer, outcome.command, state.compression)
            _send_changelog(transaction, state, outcome.command, outcome.result())
        fault_points.reach("changelog-before-flush")
        failed = producer.flush_each(state.flush_seconds).failed
        if failed:
            raise next(iter(failed.values()))
        fault_points.reach("changelog-after-flush")
    except SparkRelayError as error:
        connections.forget_producer(state.client)
        raise WorkerFailure(error, state.failure_key) from None
    for outcome in outcomes:
        yield outcome.result().emitted


def _publish(
    spec: PublishSpec, work: Iterable[tuple[TaskCommand, Callable[[_Transaction], LegReport]]]
) -> pa.RecordBatch:
    """Send every task's records, wait for all answers, and return all reports as one row."""
    reports: list[LegReport] = []
    started = time.perf_counter()
    try:
        producer = connections.producer(spec.client)
    except SparkRelayError as error:
        reports = [LegReport(spec.leg, task.task, task.batch, error=error) for task, _ in work]
        return report_row(reports)
    transactional_ids: dict[str, int] = {}
    for task, publish in work:
        try:
            report = publish(_Transaction(producer, task, spec.compression))
        except SparkRelayError as error:
            report = LegReport(spec.leg, task.task, task.batch, error=error)
        transactional_ids[task.transaction.transactional_id] = len(reports)
        reports.append(report)
    fault_points.reach("publish-before-flush")
    try:
        failed = producer.flush_each(spec.flush_seconds).failed
    except SparkRelayError as error:
        failed = {transactional_id: error for transactional_id in transactional_ids}  # noqa: C420 - typed so
    fault_points.reach("publish-after-flush")
    for transactional_id, reason in failed.items():
        index = transactional_ids[str(transactional_id)]
        if reports[index].error is None:
            reports[index] = dataclasses.replace(reports[index], error=reason)
    if any(report.error is not None for report in reports):
        connections.forget_producer(spec.client)
    seconds = time.perf_counter() - started
    return report_row([dataclasses.replace(r, seconds={**r.seconds, "publish": seconds}) for r in reports])


def _send_changelog(transaction: _Transaction, state: StateSpec, command: TaskCommand, applied: Applied) -> None:
    """Send the changed state, closed by a marker that says which input it has seen."""
    if state.changelog is None:
        return
    partition = TopicPartition(state.changelog, command.task.partition)
    now_ms = int(time.time() * 1000)
    if len(applied.keys):
        transaction.send(partition, *encode_changelog(applied.keys, applied.values), now_ms)
    key, value = encode_marker(Marker(command.batch, command.positions_after, state.contents))
    transaction.send(partition, pa.array([key], pa.binary()), pa.array([value], pa.binary()), now_ms)


def _send_rows(transaction: _Transaction, spec: PublishSpec, command: TaskCommand, rows: pa.RecordBatch) -> None:
    if spec.topic is None or not rows.num_rows:
        return
    keys, values = sink_keys(spec, rows), sink_values(spec, rows)
    timestamps = rows.column(hidden_columns.TIMESTAMP)
    if spec.value is not None:
        # Without a timestamp, a record is as old as its segment's file.
        oldest = pc.min(timestamps.filter(pc.not_equal(timestamps, NO_TIMESTAMP))).as_py()
        if oldest is not None:
            transaction.oldest[spec.topic] = min(oldest, transaction.oldest.get(spec.topic, oldest))
    headers = rows.column("headers") if spec.headers else None
    count = current_command(BatchCommand).partitions[spec.topic]
    targets = murmur2_partitions(keys, count)
    if keys.null_count:
        # Records without a key go where their task's number points: deterministic, and spread over the tasks.
        targets = np.where(targets < 0, command.task.partition % count, targets).astype(np.int32)
    for number, indices in enumerate(split_by_partition(targets, count)):
        if len(indices):
            chosen = pa.array(indices)
            partition = TopicPartition(spec.topic, number)
            transaction.send(
                partition,
                keys.take(chosen),
                values.take(chosen),
                timestamps.take(chosen),
                None if headers is None else headers.take(chosen),
            )
