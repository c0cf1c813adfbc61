"""The last step of a leg: outputs, repartition records and changelogs, produced under a lent transaction.

What several tasks of a small micro-batch write is looked at, encoded and sent together.

Every response is awaited before the report is written. Whether the records become visible is the driver's to decide:
it ends the transaction once all legs of the batch are back.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SparkRelayError
from sparkrelay.operators.ranking.beaten_rows import without_beaten
from sparkrelay.operators.table.run import (
    Merged,
    apply_leg,
    next_in_changelog,
    state_before,
    state_report,
)
from sparkrelay.operators.watermarks import event_times_ms
from sparkrelay.records.encode import NO_TIMESTAMP
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.contract import fault_points, hidden_columns
from sparkrelay.runtime.contract.commands import BatchCommand, LegReport, TaskCommand
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.contract.store_descriptions import describe_store
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, drain, leg_tasks, pieces, report_row
from sparkrelay.runtime.worker.encoding import sink_keys, sink_values
from sparkrelay.runtime.worker.lent_transaction import LentTransaction, Part, await_answers
from sparkrelay.runtime.worker.memory import freeze_loaded_objects
from sparkrelay.runtime.worker.shares import Share, partitions_of, share_out
from sparkrelay.state.changelog import SCHEMA_KEY, Marker, encode_changelog, encode_marker
from sparkrelay.state.space import disk_bytes
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.specs import PublishSpec, StateSpec, StoreSpec
    from sparkrelay.state import Applied

__all__ = ["publish_leg", "state_and_publish_leg", "state_leg", "write_changelogs"]

#: Bytes of rows that are written together. All of a micro-batch need not fit into memory: a hot key of a join makes
#: millions.
_PIECE_BYTES: Final = 32 << 20
#: Bytes of changed state that are written together.
_CHANGED_BYTES: Final = 1 << 20


def publish_leg(spec: PublishSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a leg to its sink topic, piece by piece as they come; yield one report a task."""
    tasks = leg_tasks(spec)
    freeze_loaded_objects()
    connections.close_unused()
    reports = {task.task: LegReport(spec.leg, task.task, task.batch) for task in tasks}
    written: dict[TopicPartition, int] = {}

    def publish(share: Share, transaction: LentTransaction) -> list[LegReport]:
        sent = _send_share(spec, transaction, share)
        return [
            LegReport(
                spec.leg,
                task.task,
                task.batch,
                rows_in=share.rows_in(task),
                rows_out=its.rows,
                oldest_out=its.oldest,
                newest_out=its.newest,
            )
            for task, its in zip(share.tasks, sent, strict=True)
        ]

    # Rows are only beaten by what they are looked at with.
    for piece in _pieces(batches) if spec.ranking is None else [batches]:
        work = ((share.tasks, functools.partial(publish, share)) for share in share_out(tasks, piece))
        # A piece's records follow those of the one before it.
        for report in _publish(spec, work, written):
            reports[report.task] = _of_both(reports[report.task], report)
        # They would live until the next ones are there.
        del work, piece
        if any(report.error is not None for report in reports.values()):
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
    return report._replace(
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
        return report._replace(error=error)
    sequences = {**report.next_sequences, **next_in_changelog(task, spec.changelog, state)}
    return report._replace(state=state, next_sequences=sequences)


def state_and_publish_leg(
    state: StateSpec, spec: PublishSpec, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Aggregate, then write changelog and updates in one Python stage; yield one report a task."""

    def publish(merged: Merged, transaction: LentTransaction) -> list[LegReport]:
        if any(outcome.error is not None for outcome in merged.outcomes):
            # The driver takes all back.
            return [
                LegReport(spec.leg, outcome.command.task, outcome.command.batch, error=outcome.error)
                for outcome in merged.outcomes
            ]
        results = [outcome.result() for outcome in merged.outcomes]
        tasks = [outcome.command for outcome in merged.outcomes]
        _send_changelogs(transaction, state, list(zip(tasks, results, strict=True)))
        sent = _send_rows(spec, transaction, merged.emitted, tasks, [outcome.rows_out for outcome in merged.outcomes])
        reports = []
        for outcome, applied, its in zip(merged.outcomes, results, sent, strict=True):
            command = outcome.command
            assert command.directory is not None, "a stateful task has a directory"
            reports.append(
                LegReport(
                    spec.leg,
                    command.task,
                    command.batch,
                    rows_in=outcome.rows_in,
                    rows_out=its.rows,
                    oldest_out=its.oldest,
                    newest_out=its.newest,
                    state=state_report(applied.entry, disk_bytes(command.directory)),
                    seconds={"state": outcome.seconds},
                )
            )
        return reports

    work = (
        ([outcome.command for outcome in merged.outcomes], functools.partial(publish, merged))
        for merged in apply_leg(state, batches)
    )
    yield report_row(_publish(spec, work, {}))


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
        producer = connections.producer(state.client)
        transaction: LentTransaction | None = None
        for some in _gathered(changed):
            transaction = transaction or LentTransaction(producer, some[0][0], state.compression)
            _send_changelogs(transaction, state, some)
        fault_points.reach("changelog-before-flush")
        failed = producer.flush_each(state.flush_seconds).failed
        if failed:
            raise next(iter(failed.values()))
        fault_points.reach("changelog-after-flush")
    except SparkRelayError as error:
        connections.forget_producer(state.client)
        raise WorkerFailure(error, state.failure_key) from None


def _gathered(changed: Iterable[tuple[TaskCommand, Applied]]) -> Iterator[list[tuple[TaskCommand, Applied]]]:
    """Yield tasks with little to write together; all of what many have to write need not be in memory twice."""
    some: list[tuple[TaskCommand, Applied]] = []
    size = 0
    for task, applied in changed:
        takes = applied.keys.nbytes + applied.values.nbytes
        if some and size + takes > _CHANGED_BYTES:
            yield some
            some, size = [], 0
        some.append((task, applied))
        size += takes
    if some:
        yield some


def _publish(
    spec: PublishSpec,
    work: Iterable[tuple[Sequence[TaskCommand], Callable[[LentTransaction], list[LegReport]]]],
    written: dict[TopicPartition, int],
) -> list[LegReport]:
    """Send the records of tasks that are worked on together, one lot after the other; wait for all answers.

    Args:
        spec: the step.
        work: tasks, and what sends their records and returns a report for each.
        written: next sequences of what was written before; they go on.

    Returns:
        The reports of all. The first one also has what the next leg's sequences are.
    """
    reports: list[LegReport] = []
    started = time.perf_counter()
    try:
        producer = connections.producer(spec.client)
    except SparkRelayError as error:
        return [LegReport(spec.leg, task.task, task.batch, error=error) for tasks, _ in work for task in tasks]
    sent: dict[int, TaskCommand] = {}
    transaction: LentTransaction | None = None
    for tasks, publish in work:
        transaction = transaction or LentTransaction(producer, tasks[0], spec.compression, written)
        try:
            made = publish(transaction)
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
        # What it holds is not needed while the next rows come.
        del publish
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


def _send_changelogs(
    transaction: LentTransaction, state: StoreSpec, changed: Sequence[tuple[TaskCommand, Applied]]
) -> None:
    """Send the changed state of tasks, each closed by a marker that says which input it has seen.

    Where a task's command says so, what the store holds stands in front of that.
    """
    if state.changelog is None:
        return
    ends = [_ends(state, command, applied) for command, applied in changed]
    keys, values = encode_changelog(
        pa.concat_arrays([applied.keys for _, applied in changed]),
        pa.concat_arrays([applied.values for _, applied in changed]),
    )
    rows = len(keys)
    keys, values = (
        pa.concat_arrays([column, pa.array([end[place] for some in ends for end in some], pa.binary())])
        for place, column in enumerate((keys, values))
    )
    parts, order, row, end, stop = [], [], 0, rows, 0
    for (command, applied), its_ends in zip(changed, ends, strict=True):
        order += [np.arange(row, row + len(applied.keys)), np.arange(end, end + len(its_ends))]
        row, end = row + len(applied.keys), end + len(its_ends)
        start, stop = stop, stop + len(applied.keys) + len(its_ends)
        partition = TopicPartition(state.changelog, command.task.partition)
        parts.append(Part(partition, start, stop, command.task, command.changelog_ids.get(state.changelog)))
    if len(changed) > 1:
        chosen = pa.array(np.concatenate(order))
        keys, values = keys.take(chosen), values.take(chosen)
    transaction.send(parts, keys, values, int(time.time() * 1000))


def _ends(state: StoreSpec, command: TaskCommand, applied: Applied) -> list[tuple[bytes, bytes]]:
    """Return the records that stand behind a task's rows in its changelog."""
    entry = applied.entry
    marker = encode_marker(
        Marker(
            *(command.batch, command.positions_after, state.contents, entry.watermark, entry.expired, entry.sources),
            topics=command.topic_ids_of(command.positions),
        )
    )
    return [(SCHEMA_KEY, describe_store(state)), marker] if state.changelog in command.describe else [marker]


@dataclass(slots=True)
class _Sent:
    """What a task has sent to the sink topic.

    Attributes:
        rows: how many.
        oldest: sink topic of the user's -> the oldest timestamp written to it.
        newest: repartition topic -> the newest event time written to it, where that is gone by behind it.
    """

    rows: int = 0
    oldest: dict[str, int] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)

    def add(self, more: _Sent) -> None:
        """Add what it has sent behind that."""
        self.rows += more.rows
        for topic, time_ms in more.oldest.items():
            self.oldest[topic] = min(time_ms, self.oldest.get(topic, time_ms))
        for topic, time_ms in more.newest.items():
            self.newest[topic] = max(time_ms, self.newest.get(topic, time_ms))


def _send_share(spec: PublishSpec, transaction: LentTransaction, share: Share) -> list[_Sent]:
    """Send the rows of tasks that are worked on together; those of one alone batch by batch, however many there are."""
    if len(share.tasks) > 1:
        if not share.batches:
            return [_Sent() for _ in share.tasks]
        rows = pa.concat_batches(share.batches)
        by_task = rows.take(pa.array(np.argsort(partitions_of(rows), kind="stable")))
        return _send_rows(spec, transaction, by_task, share.tasks, [share.rows_in(task) for task in share.tasks])
    sent = _Sent()
    # Rows are only beaten by what they are looked at with.
    for rows in [pa.concat_batches(share.batches)] if spec.ranking and share.batches else share.batches:
        (some,) = _send_rows(spec, transaction, rows, share.tasks, [rows.num_rows])
        sent.add(some)
    return [sent]


def _send_rows(
    spec: PublishSpec,
    transaction: LentTransaction,
    rows: pa.RecordBatch,
    tasks: Sequence[TaskCommand],
    counts: Sequence[int],
) -> list[_Sent]:
    """Send rows to the sink topic.

    Args:
        spec: the step.
        transaction: to write in.
        rows: task by task.
        tasks: whose they are.
        counts: how many each has.
    """
    topic, sent = spec.topic, [_Sent() for _ in tasks]
    if topic is None or not rows.num_rows:
        return sent
    if spec.event_time is not None:
        column = rows.column(spec.event_time)
        times, whose = event_times_ms(column), _whose(counts, column)
        # Those far ahead of the clock do not count.
        on_time = times <= int(time.time() * 1000) + spec.ahead_ms
        for index, newest in _of_each(np.maximum, times[on_time], whose[on_time], len(tasks)):
            sent[index].newest[topic] = newest
    if spec.ranking is not None:
        firsts = np.cumsum([0, *counts[:-1]]).tolist()
        best = [without_beaten(spec, rows.slice(*span)) for span in zip(firsts, counts, strict=True)]
        rows, counts = pa.concat_batches(best), [some.num_rows for some in best]
    keys, values, timestamps = (
        sink_keys(spec, rows), sink_values(spec, rows), rows.column(hidden_columns.TIMESTAMP)
    )  # fmt: skip
    if spec.value is not None:
        numbers, whose = timestamps.drop_null().to_numpy(), _whose(counts, timestamps)
        # Without a timestamp, a record is as old as its segment's file.
        known = numbers != NO_TIMESTAMP
        for index, oldest in _of_each(np.minimum, numbers[known], whose[known], len(tasks)):
            sent[index].oldest[topic] = oldest
    count = current_command(BatchCommand).partitions[topic]
    targets = murmur2_partitions(keys, count)
    if (targets < 0).any():
        # Records without a key go where their task's number points: deterministic, and spread over the tasks.
        own = np.repeat(np.array([task.task.partition % count for task in tasks], np.int32), counts)
        targets = np.where(targets < 0, own, targets)
    headers = None if spec.headers is None else rows.column(spec.headers)
    task = tasks[0].task if len(tasks) == 1 else None
    transaction.send_by_partition(topic, targets, task, keys, values, timestamps, headers)
    for its, number in zip(sent, counts, strict=True):
        its.rows = number
    return sent


def _whose(counts: Sequence[int], column: pa.Array) -> NDArray[np.int64]:
    """Return whose each row is that has a value in a column: the index of the task."""
    whose = np.repeat(np.arange(len(counts)), counts)
    return whose[column.is_valid().to_numpy(zero_copy_only=False)] if column.null_count else whose


def _of_each(
    best: np.ufunc, numbers: NDArray[np.int64], whose: NDArray[np.int64], tasks: int
) -> Iterator[tuple[int, int]]:
    """Yield the largest or smallest number of each task that has one."""
    if not len(numbers):
        return
    if tasks == 1:
        yield 0, int(best.reduce(numbers))
        return
    # Rows stand task by task.
    firsts = np.flatnonzero(np.diff(whose, prepend=-1))
    yield from zip(whose[firsts].tolist(), best.reduceat(numbers, firsts).tolist(), strict=True)
