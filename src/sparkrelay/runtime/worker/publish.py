"""The last step of a leg: outputs, repartition records and changelog, produced under the task's lent transaction.

Every response is awaited before the report is written. Whether the records become visible is the driver's to decide:
it ends the transaction once all legs of the batch are back.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.partition import murmur2_partitions, split_by_partition
from sparkrelay.runtime.contract import fault_points, hidden_columns
from sparkrelay.runtime.contract.commands import BatchCommand, LegReport, TaskCommand
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.contract.store_descriptions import describe_store
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, drain, leg_tasks, pieces, report_row
from sparkrelay.runtime.worker.encoding import sink_keys, sink_values
from sparkrelay.runtime.worker.lent_transaction import LentTransaction, await_answers
from sparkrelay.runtime.worker.memory import freeze_loaded_objects
from sparkrelay.runtime.worker.operators.beaten_rows import without_beaten
from sparkrelay.runtime.worker.operators.state import (
    TaskOutcome,
    apply_leg,
    next_in_changelog,
    state_before,
    state_report,
)
from sparkrelay.runtime.worker.operators.watermarks import event_times_ms
from sparkrelay.runtime.worker.shares import Share, partitions_of, share_out
from sparkrelay.state.changelog import SCHEMA_KEY, Marker, encode_changelog, encode_marker
from sparkrelay.state.space import disk_bytes
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sparkrelay.runtime.contract.specs import PublishSpec, StateSpec, StoreSpec
    from sparkrelay.state import Applied

__all__ = ["publish_leg", "state_and_publish_leg", "state_leg", "write_changelogs"]

#: Bytes of rows that are written together. All of a micro-batch need not fit into memory: a hot key of a join makes
#: millions.
_PIECE_BYTES: Final = 32 << 20


def publish_leg(spec: PublishSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a leg to its sink topic, piece by piece as they come; yield one report a task."""
    tasks = leg_tasks(spec)
    freeze_loaded_objects()
    connections.close_unused()
    reports = {task.task: LegReport(spec.leg, task.task, task.batch) for task in tasks}
    # A piece's records follow those of the one before it.
    sequences: dict[TopicPartition, int] = {}

    def publish(task: TaskCommand, rows: list[tuple[_SinkRows, int, int]], transaction: LentTransaction) -> LegReport:
        sent = sum(some.send(transaction, task, first, number) for some, first, number in rows)
        return LegReport(
            spec.leg,
            task.task,
            task.batch,
            rows_in=sum(number for *_, number in rows),
            rows_out=sent,
            oldest_out=transaction.oldest,
            newest_out=transaction.newest,
            next_sequences=transaction.next_sequences,
        )

    # Rows are only beaten by what they are looked at with.
    for piece in _pieces(batches) if spec.ranking is None else [batches]:
        work = (
            (task, functools.partial(publish, task, rows))
            for share in share_out(tasks, piece)
            for task, rows in _by_task(spec, share)
            if reports[task.task].error is None
        )
        for report in _publish(spec, work, sequences):
            reports[report.task] = _of_both(reports[report.task], report)
        # They would live until the next ones are there.
        del work, piece
        if all(report.error is not None for report in reports.values()):
            drain(batches)
            break
    yield report_row([_with_state(spec, task, reports[task.task]) for task in tasks])


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield all rows, by what is written together; a piece is let go before more is read."""
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for some in pieces(batch, _PIECE_BYTES):
            if size >= _PIECE_BYTES:
                yield piece
                piece, size = [], 0
            piece.append(some)
            size += some.nbytes
            # It would live until the next one is there.
            del some
        del batch
    yield piece


def _of_both(before: LegReport, report: LegReport) -> LegReport:
    """Return what a task's pieces so far and the next one come to."""
    oldest = (before.oldest_out, report.oldest_out)
    newest = (before.newest_out, report.newest_out)
    return dataclasses.replace(
        report,
        rows_in=before.rows_in + report.rows_in,
        rows_out=before.rows_out + report.rows_out,
        oldest_out={topic: min(one[topic] for one in oldest if topic in one) for topic in {**oldest[0], **oldest[1]}},
        newest_out={topic: max(one[topic] for one in newest if topic in one) for topic in {**newest[0], **newest[1]}},
        next_sequences={**before.next_sequences, **report.next_sequences},
        seconds={name: seconds + before.seconds.get(name, 0.0) for name, seconds in report.seconds.items()},
    )


def _with_state(spec: PublishSpec, task: TaskCommand, report: LegReport) -> LegReport:
    """Return a task's report with what the stateful step in front of this one has done."""
    if not spec.behind_state or report.error is not None:
        return report
    try:
        state = state_before(spec, task)
    except SparkRelayError as error:
        return dataclasses.replace(report, error=error)
    sequences = {**report.next_sequences, **next_in_changelog(task, spec.changelog, state)}
    return dataclasses.replace(report, state=state, next_sequences=sequences)


def _by_task(spec: PublishSpec, share: Share) -> Iterator[tuple[TaskCommand, list[tuple[_SinkRows, int, int]]]]:
    """Yield each task of a share with its rows: some, the index of its first one among them, and how many they are."""
    if len(share.tasks) == 1:
        # Rows are only beaten by what they are looked at with.
        batches = [pa.concat_batches(share.batches)] if spec.ranking and share.batches else share.batches
        yield share.tasks[0], [(_SinkRows(spec, rows), 0, rows.num_rows) for rows in batches]
    elif not share.batches:
        yield from ((task, []) for task in share.tasks)
    else:
        rows = pa.concat_batches(share.batches)
        together, first = _SinkRows(spec, rows.take(pa.array(np.argsort(partitions_of(rows), kind="stable")))), 0
        for task in share.tasks:
            yield task, [(together, first, share.rows_in(task))]
            first += share.rows_in(task)


def state_and_publish_leg(
    state: StateSpec, spec: PublishSpec, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Aggregate, then write changelog and updates in one Python stage; yield one report a task."""

    def publish(outcome: TaskOutcome, emitted: _SinkRows, transaction: LentTransaction) -> LegReport:
        _send_changelog(transaction, state, outcome.command, outcome.result())
        sent = emitted.send(transaction, outcome.command, outcome.first, outcome.rows_out)
        assert outcome.command.directory is not None, "a stateful task has a directory"
        return LegReport(
            spec.leg,
            outcome.command.task,
            outcome.command.batch,
            rows_in=outcome.rows_in,
            rows_out=sent,
            oldest_out=transaction.oldest,
            newest_out=transaction.newest,
            state=state_report(outcome.result().entry, disk_bytes(outcome.command.directory)),
            next_sequences=transaction.next_sequences,
            seconds={"state": outcome.seconds},
        )

    def work() -> Iterator[tuple[TaskCommand, Callable[[LentTransaction], LegReport]]]:
        for merged in apply_leg(state, batches):
            emitted = _SinkRows(spec, merged.emitted)
            for outcome in merged.outcomes:
                yield outcome.command, functools.partial(publish, outcome, emitted)

    yield report_row(_publish(spec, work(), {}))


def state_leg(state: StateSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Aggregate and write the changelog; yield the updates for the steps that follow."""
    shares = list(apply_leg(state, batches))
    outcomes = [outcome for merged in shares for outcome in merged.outcomes]
    for outcome in outcomes:
        if outcome.error is not None:
            raise WorkerFailure(outcome.error, state.failure_key, outcome.command.task) from None
    write_changelogs(state, [(outcome.command, outcome.result()) for outcome in outcomes])
    for merged in shares:
        yield merged.emitted


def write_changelogs(state: StoreSpec, changed: Iterable[tuple[TaskCommand, Applied]]) -> None:
    """Write the changed state of tasks, and wait for all answers.

    Raises:
        WorkerFailure: it could not be written.
    """
    try:
        producer, sequences = connections.producer(state.client), dict[TopicPartition, int]()
        for command, applied in changed:
            transaction = LentTransaction(producer, command, state.compression, sequences)
            _send_changelog(transaction, state, command, applied)
        fault_points.reach("changelog-before-flush")
        failed = producer.flush_each(state.flush_seconds).failed
        if failed:
            raise next(iter(failed.values()))
        fault_points.reach("changelog-after-flush")
    except SparkRelayError as error:
        connections.forget_producer(state.client)
        raise WorkerFailure(error, state.failure_key) from None


def _publish(
    spec: PublishSpec,
    work: Iterable[tuple[TaskCommand, Callable[[LentTransaction], LegReport]]],
    sequences: dict[TopicPartition, int],
) -> list[LegReport]:
    """Send every task's records, wait for all answers, and return all reports; ``sequences`` go on."""
    reports: list[LegReport] = []
    started = time.perf_counter()
    try:
        producer = connections.producer(spec.client)
    except SparkRelayError as error:
        return [LegReport(spec.leg, task.task, task.batch, error=error) for task, _ in work]
    sent: dict[int, TaskCommand] = {}
    for task, publish in work:
        try:
            report = publish(LentTransaction(producer, task, spec.compression, sequences))
        except SparkRelayError as error:
            report = LegReport(spec.leg, task.task, task.batch, error=error)
        sent[len(reports)] = task
        reports.append(report)
        # What it holds is not needed while the next rows come.
        del publish
    fault_points.reach("publish-before-flush")
    await_answers(producer, reports, sent, spec.flush_seconds)
    fault_points.reach("publish-after-flush")
    if any(report.error is not None for report in reports):
        connections.forget_producer(spec.client)
    seconds = time.perf_counter() - started
    return [dataclasses.replace(report, seconds={**report.seconds, "publish": seconds}) for report in reports]


def _send_changelog(transaction: LentTransaction, state: StoreSpec, command: TaskCommand, applied: Applied) -> None:
    """Send the changed state, closed by a marker that says which input it has seen.

    Where the command says so, what the store holds stands in front of that.
    """
    if state.changelog is None:
        return
    partition = TopicPartition(state.changelog, command.task.partition)
    now_ms = int(time.time() * 1000)
    entry = applied.entry
    marker = encode_marker(
        Marker(
            *(command.batch, command.positions_after, state.contents, entry.watermark, entry.expired, entry.sources),
            topics=command.topic_ids_of(command.positions),
        )
    )
    ends = [(SCHEMA_KEY, describe_store(state)), marker] if state.changelog in command.describe else [marker]
    keys, values = (
        pa.concat_arrays([column, pa.array(end, pa.binary())])
        for column, end in zip(encode_changelog(applied.keys, applied.values), zip(*ends, strict=True), strict=True)
    )
    transaction.send(partition, keys, values, now_ms)


class _SinkRows:
    """Rows of one or several tasks that go to the sink topic; made into records when the first of them is sent."""

    def __init__(self, spec: PublishSpec, rows: pa.RecordBatch) -> None:
        self._spec = spec
        self._rows = rows

    @functools.cached_property
    def _columns(self) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Keys, values and timestamps."""
        keys, values = sink_keys(self._spec, self._rows), sink_values(self._spec, self._rows)
        return keys, values, self._rows.column(hidden_columns.TIMESTAMP)

    @functools.cached_property
    def _targets(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Number of the sink's partition that each row goes to; -1 where there is no key."""
        return murmur2_partitions(self._columns[0], self._count)

    @property
    def _count(self) -> int:
        assert self._spec.topic is not None
        return current_command(BatchCommand).partitions[self._spec.topic]

    def send(self, transaction: LentTransaction, task: TaskCommand, first: int, count: int) -> int:
        """Send a task's rows, ``count`` from the one at ``first``; return how many records that is."""
        topic = self._spec.topic
        if topic is None or not count:
            return 0
        if self._spec.event_time is not None:
            times = event_times_ms(self._rows.column(self._spec.event_time).slice(first, count))
            transaction.note_event_times(topic, times, self._spec.ahead_ms)
        if self._spec.ranking is not None:
            best = without_beaten(self._spec, self._rows.slice(first, count))
            spec = dataclasses.replace(self._spec, ranking=None, event_time=None)
            return _SinkRows(spec, best).send(transaction, task, 0, best.num_rows)
        keys, values, timestamps = (column.slice(first, count) for column in self._columns)
        named = self._spec.headers
        headers = None if named is None else self._rows.column(named).slice(first, count)
        if self._spec.value is not None:
            transaction.note_times(topic, timestamps)
        targets = self._targets[first : first + count]
        # Records without a key go where their task's number points: deterministic, and spread over the tasks.
        targets = np.where(targets < 0, task.task.partition % self._count, targets).astype(np.int32)
        if (targets == targets[0]).all():
            # Usual where the sink is keyed and partitioned as the source is.
            transaction.send(TopicPartition(topic, int(targets[0])), keys, values, timestamps, headers)
            return count
        for number, indices in enumerate(split_by_partition(targets, self._count)):
            if len(indices):
                chosen = pa.array(indices)
                transaction.send(
                    TopicPartition(topic, number),
                    keys.take(chosen),
                    values.take(chosen),
                    timestamps.take(chosen),
                    None if headers is None else headers.take(chosen),
                )
        return count
