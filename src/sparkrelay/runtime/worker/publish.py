"""The last step of a leg: outputs, repartition records and changelogs, produced in a lent transaction.

Records of several tasks of a small micro-batch are encoded and sent together. Every response is awaited before the
report is written. The driver decides whether the records become visible: it ends the transaction once all legs of the
batch have reported.
"""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay import hidden_columns
from sparkrelay.errors import SparkRelayError
from sparkrelay.records.batches.encode import NO_TIMESTAMP
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import BatchCommand, LegReport, TaskCommand
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, drain, leg_tasks, pieces, report_row
from sparkrelay.runtime.worker.encoding import sink_keys, sink_values
from sparkrelay.runtime.worker.event_times import event_times_ms
from sparkrelay.runtime.worker.lent_transaction import LentTransaction, await_answers
from sparkrelay.runtime.worker.shares import Share, partitions_of, share_out
from sparkrelay.runtime.worker.state_reports import next_in_changelog, state_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.specs import PublishSpec
    from sparkrelay.types import TopicPartition

#: Bytes of rows that are written together. A micro-batch may not fit into memory: a hot key of a join makes millions.
_PIECE_BYTES: Final = 32 << 20


def publish_leg(spec: PublishSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a leg to its sink topic, piece by piece; yield one report per task."""
    tasks = leg_tasks(spec)
    connections.begin_step()
    reports = {task.task: LegReport(spec.leg, task.task, task.batch) for task in tasks}
    written: dict[TopicPartition, int] = {}

    # The best rows are chosen among all rows of a task.
    for piece in _pieces(batches) if spec.best is None else [batches]:
        work = ((share.tasks, functools.partial(_send_share, spec, share)) for share in share_out(tasks, piece))
        # A piece's records follow those of the one before it.
        for report in publish(spec, work, written):
            reports[report.task] = _sum(reports[report.task], report)
        # Otherwise they would live until the next ones are read.
        del work, piece
        if any(report.error is not None for report in reports.values()):
            drain(batches)
            break
    yield report_row([_with_state(spec, task, reports[task.task]) for task in tasks])


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Yield all rows in pieces that are written together; a piece is released before more is read."""
    piece: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for some in pieces(batch, _PIECE_BYTES):
            if size >= _PIECE_BYTES:
                yield piece
                piece, size = [], 0
            piece.append(some)
            size += some.nbytes
            # Otherwise it would live until the next one is read.
            del some
        del batch
    yield piece


def _sum(before: LegReport, report: LegReport) -> LegReport:
    """Return a task's report of some rows and of those before them."""
    oldest = (before.oldest_out, report.oldest_out)
    newest = (before.newest_out, report.newest_out)
    return report._replace(
        rows_in=before.rows_in + report.rows_in,
        rows_out=before.rows_out + report.rows_out,
        oldest_out={topic: min(one[topic] for one in oldest if topic in one) for topic in {**oldest[0], **oldest[1]}},
        newest_out={topic: max(one[topic] for one in newest if topic in one) for topic in {**newest[0], **newest[1]}},
        next_sequences={**before.next_sequences, **report.next_sequences},
        seconds={name: seconds + before.seconds.get(name, 0.0) for name, seconds in report.seconds.items()},
    )


def _with_state(spec: PublishSpec, task: TaskCommand, report: LegReport) -> LegReport:
    """Return a task's report with that of the stateful step before this one."""
    if not spec.behind_state or report.error is not None:
        return report
    try:
        state = state_before(spec, task)
    except SparkRelayError as error:
        return report._replace(error=error)
    sequences = {**report.next_sequences, **next_in_changelog(task, spec.changelog, state)}
    return report._replace(state=state, next_sequences=sequences)


def publish(
    spec: PublishSpec,
    work: Iterable[tuple[Sequence[TaskCommand], Callable[[LentTransaction], list[LegReport]]]],
    written: dict[TopicPartition, int],
) -> list[LegReport]:
    """Send the records of groups of tasks, one after the other; wait for all responses.

    ``work`` has each group with the function that sends its records and returns a report per task; ``written`` the next
    sequence numbers, to be updated. Returns all reports; the first one has the sequence numbers for the next leg.
    """
    reports: list[LegReport] = []
    started = time.perf_counter()
    try:
        producer = connections.producer(spec.client)
    except SparkRelayError as error:
        return [LegReport(spec.leg, task.task, task.batch, error=error) for tasks, _ in work for task in tasks]
    sent: dict[int, TaskCommand] = {}
    transaction: LentTransaction | None = None
    for tasks, send in work:
        transaction = transaction or LentTransaction(producer, tasks[0], spec.compression, written)
        try:
            made = send(transaction)
        except SparkRelayError as error:
            made = [
                LegReport(
                    spec.leg,
                    task.task,
                    task.batch,
                    error=error if transaction.blamed in {None, task.task} else None,
                )
                for task in tasks
            ]
        sent |= dict(enumerate(tasks, len(reports)))
        reports += made
        # Release its rows before the next ones are read.
        del send
    fault_points.reach("publish-before-flush")
    await_answers(producer, reports, sent, spec.flush_seconds)
    fault_points.reach("publish-after-flush")
    if any(report.error is not None for report in reports):
        connections.forget_producer(spec.client)
    if transaction is not None:
        written |= transaction.next_sequences
        reports[0] = reports[0]._replace(next_sequences=dict(written))
    seconds = time.perf_counter() - started
    return [report._replace(seconds={**report.seconds, "publish": seconds}) for report in reports]


def _send_share(spec: PublishSpec, share: Share, transaction: LentTransaction) -> list[LegReport]:
    """Send the rows of tasks that are worked on together; those of a single task batch by batch."""
    counts = [share.rows_in(task) for task in share.tasks]
    reports = [LegReport(spec.leg, task.task, task.batch) for task in share.tasks]
    if len(reports) > 1 and share.batches:
        rows = pa.concat_batches(share.batches)
        by_task = rows.take(pa.array(np.argsort(partitions_of(rows), kind="stable")))
        reports = send_rows(spec, transaction, by_task, share.tasks, counts)
    elif share.batches:
        # The best rows are chosen among all rows of a task.
        for rows in [pa.concat_batches(share.batches)] if spec.best else share.batches:
            (report,) = send_rows(spec, transaction, rows, share.tasks, [rows.num_rows])
            reports = [_sum(reports[0], report)]
    return [report._replace(rows_in=count) for report, count in zip(reports, counts, strict=True)]


def send_rows(
    spec: PublishSpec,
    transaction: LentTransaction,
    rows: pa.RecordBatch,
    tasks: Sequence[TaskCommand],
    counts: Sequence[int],
) -> list[LegReport]:
    """Send rows that are ordered by task, ``counts`` of each, to the sink topic; return what each task has sent."""
    topic = spec.topic
    if topic is None or not rows.num_rows:
        return [LegReport(spec.leg, task.task, task.batch) for task in tasks]
    oldest: dict[int, int] = {}
    newest: dict[int, int] = {}
    if spec.event_time is not None:
        column = rows.column(spec.event_time)
        times, whose = event_times_ms(column), _whose(counts, column)
        # Times far ahead of the clock do not count.
        on_time = times <= int(time.time() * 1000) + spec.ahead_ms
        newest = _of_each(np.maximum, times[on_time], whose[on_time], len(tasks))
    if spec.best is not None:
        firsts = np.cumsum([0, *counts[:-1]]).tolist()
        best = [spec.best(rows.slice(*span)) for span in zip(firsts, counts, strict=True)]
        rows, counts = pa.concat_batches(best), [some.num_rows for some in best]
    keys, values, timestamps = (
        sink_keys(spec, rows), sink_values(spec, rows), rows.column(hidden_columns.TIMESTAMP)
    )  # fmt: skip
    if spec.value is not None:
        numbers, whose = timestamps.drop_null().to_numpy(), _whose(counts, timestamps)
        # Without a timestamp, a record is as old as its segment's file.
        known = numbers != NO_TIMESTAMP
        oldest = _of_each(np.minimum, numbers[known], whose[known], len(tasks))
    count = current_command(BatchCommand).partitions[topic]
    copies = count if spec.to_all else 1
    if spec.to_all:
        again = pa.array(np.tile(np.arange(len(keys)), count))
        targets = np.repeat(np.arange(count, dtype=np.int32), len(keys))
        keys, values, timestamps = (column.take(again) for column in (keys, values, timestamps))
    else:
        targets = murmur2_partitions(keys, count)
    if (targets < 0).any():
        # Records without a key go to a partition chosen by the task: deterministic, and spread over the tasks.
        own = np.repeat(np.array([task.task.partition % count for task in tasks], np.int32), counts)
        targets = np.where(targets < 0, own, targets)
    headers = None if spec.headers is None else rows.column(spec.headers)
    task = tasks[0].task if len(tasks) == 1 else None
    transaction.send_by_partition(topic, targets, task, keys, values, timestamps, headers)
    return [
        LegReport(
            spec.leg,
            its.task,
            its.batch,
            rows_out=number * copies,
            oldest_out={topic: oldest[index]} if index in oldest else {},
            newest_out={topic: newest[index]} if index in newest else {},
        )
        for index, (its, number) in enumerate(zip(tasks, counts, strict=True))
    ]


def _whose(counts: Sequence[int], column: pa.Array) -> NDArray[np.int64]:
    """Return the index of the task of each row with a value in a column."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else whose


def _of_each(best: np.ufunc, numbers: NDArray[np.int64], whose: NDArray[np.int64], tasks: int) -> dict[int, int]:
    """Return the largest or smallest number of each task that has one, by the task's index."""
    if not len(numbers):
        return {}
    if tasks == 1:
        return {0: int(best.reduce(numbers))}
    # Rows stand task by task.
    firsts = np.flatnonzero(np.diff(whose, prepend=-1))
    return dict(zip(whose[firsts].tolist(), best.reduceat(numbers, firsts).tolist(), strict=True))
