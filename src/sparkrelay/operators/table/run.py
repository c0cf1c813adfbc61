"""Steps that keep a table, in workers: they change each task's store in one LMDB write transaction."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.errors import SparkRelayError, StateStoreException
from sparkrelay.operators.lateness import warn_of_late, without_late
from sparkrelay.operators.watermarks import Sources, WindowWatermark, with_silence
from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import LegReport
from sparkrelay.runtime.contract.failure_marks import WorkerFailure
from sparkrelay.runtime.contract.specs import StoreSpec
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.changelogs import send_changelogs, write_changelogs
from sparkrelay.runtime.worker.context import clock_ms, laid_out, leg_tasks, report_row
from sparkrelay.runtime.worker.publish import publish, send_rows
from sparkrelay.runtime.worker.shares import partitions_of, share_out
from sparkrelay.runtime.worker.state_reports import state_report
from sparkrelay.runtime.worker.task_steps import batch_stamp, look_up, store_after, task_store
from sparkrelay.state.space import disk_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sparkrelay.operators.table.layout import TableLayout
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import PublishSpec, StepSpec
    from sparkrelay.runtime.worker.lent_transaction import LentTransaction
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Applied, LookedUp, Watermark
    from sparkrelay.state.view import Changes, StoreView

    Operate = Callable[[StoreView], Changes]

#: Largest size of closed windows in bytes: the limit of an Arrow column.
_MOST_OVER: Final = (1 << 31) - 1
_WINDOWS: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


class Work(Protocol):
    """Rows of some tasks, to be applied to their stores."""

    def together(self, outcomes: Sequence[TaskOutcome]) -> pa.RecordBatch | None:
        """Change the stores of all tasks at once and return the output rows; None if it must be done one by one."""

    def operator(self, task: TaskCommand) -> Operate:
        """Return a function that changes one task's store. It is called again if the LMDB map had to grow."""


@dataclass(slots=True)
class TaskOutcome:
    """Outcome of the stateful step for one task: its changed state, or the error.

    Attributes:
        rows_in: number of input rows.
        seconds: duration; work for several tasks is divided equally.
        rows_out: number of its output rows.
        applied: the change of the store.
        over: ``key, value`` of closed windows, if they are emitted.
        error: the failure, if any.
    """

    command: TaskCommand
    rows_in: int
    seconds: float = 0.0
    rows_out: int = 0
    applied: Applied | None = None
    over: pa.RecordBatch | None = None
    error: SparkRelayError | None = None

    @property
    def directory(self) -> str:
        """The directory of the task's state."""
        assert self.command.directory is not None, "a stateful task has a directory"
        return self.command.directory

    def result(self) -> Applied:
        """Return the change of the store, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.applied is not None
        return self.applied

    def emitted(self) -> pa.RecordBatch:
        """Return the changed rows, or raise the error."""
        emitted = self.result().emitted
        assert emitted is not None, "a merge has output rows"
        return emitted


@dataclass(frozen=True, slots=True)
class Merged:
    """Tasks that were merged together.

    Attributes:
        outcomes: one a task.
        emitted: the output rows, sorted by task. Empty if a task failed: the driver rolls back the whole batch.
    """

    outcomes: list[TaskOutcome]
    emitted: pa.RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRunner(StoreSpec):
    """Runs a step that keeps a table.

    Attributes:
        layout: the table's layout in its store.
        input: Arrow schema of input rows: keys, arguments, hidden columns.
        output: Arrow schema of output rows: keys, results, hidden columns.
        watermark: when windows close; None: never.
        looked_up_by: source topics (Kafka's names) of legs that look up the table. If a micro-batch has input of them,
            every version of a row is kept for them in the journal.
        kept: Arrow schema of the changes kept in the journal for legs that continue from them; None without such legs.
        joined: True if a join of tables reads it and needs the times of deletions.
    """

    layout: TableLayout
    input: pa.Schema
    output: pa.Schema
    watermark: WindowWatermark | None = None
    looked_up_by: frozenset[str] = frozenset()
    kept: pa.Schema | None = None
    joined: bool = False

    @property
    def changes(self) -> bool:
        """Whether the old version of a changed row is emitted, too (``hidden_columns.CHANGE``)."""
        return hidden_columns.CHANGE in self.output.names

    @property
    def says_more(self) -> bool:
        """Whether it emits, or keeps for other legs, more than the new rows."""
        return self.changes or self.joined or self.kept is not None

    @property
    def deletes(self) -> bool:
        """Whether rows can be deleted or stay unchanged; the codec returns which."""
        return True

    @property
    def answers_deletions(self) -> bool:
        """Whether the deletion of a row that did not exist is emitted, too (joins by a foreign key)."""
        return False

    @property
    def history_ms(self) -> int | None:
        """How long the table keeps older versions of rows, in ms; None: not at all."""
        return None

    def said(self) -> dict[str, Any]:
        """Return the store's description for the changelog, besides its name and contents."""
        return self.layout.described()

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Work:
        """Return the work on some tasks' rows.

        Args:
            share: the tasks.
            rows: their rows, without late ones.
            watermarks: partition -> the store's watermark after the batch, if it has one.
        """
        raise NotImplementedError

    def found(self, spec: StepSpec, task: TaskCommand, keys: pa.Array) -> LookedUp:
        """Look up encoded keys in a task's table, with the micro-batch's changes; ``spec`` is the step that asks."""
        return look_up(spec, task, self.store, self.contents, keys)

    def shown(self, stored: pa.RecordBatch) -> tuple[pa.Array, list[pa.Array]]:
        """Return the message keys and the columns, timestamps last, of closed windows (``key, value`` of the store)."""
        groups = self.layout.groups(stored)
        return groups.column("key"), self.layout.results(groups, stored)

    # -- as a step of a leg ---------------------------------------------------------------------------------------

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change the stores and write the changelog; yield the output rows."""
        shares = list(self.apply(batches))
        outcomes = [outcome for merged in shares for outcome in merged.outcomes]
        for outcome in outcomes:
            if outcome.error is not None:
                raise WorkerFailure(outcome.error, self.failure_key, outcome.command.task) from None
        write_changelogs(self, [(outcome.command, outcome.result()) for outcome in outcomes])
        for merged in shares:
            yield merged.emitted

    def published(self, spec: PublishSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change the stores, write the changelog, and write the rows to their topic; yield one report a task."""

        def send(merged: Merged, transaction: LentTransaction) -> list[LegReport]:
            if any(outcome.error is not None for outcome in merged.outcomes):
                # The driver rolls back the batch.
                return [
                    LegReport(spec.leg, outcome.command.task, outcome.command.batch, error=outcome.error)
                    for outcome in merged.outcomes
                ]
            results = [outcome.result() for outcome in merged.outcomes]
            tasks = [outcome.command for outcome in merged.outcomes]
            send_changelogs(transaction, self, list(zip(tasks, results, strict=True)))
            sent = send_rows(spec, transaction, merged.emitted, tasks, [one.rows_out for one in merged.outcomes])
            return [
                report._replace(
                    rows_in=outcome.rows_in,
                    state=state_report(applied.entry, disk_bytes(outcome.directory)),
                    seconds={"state": outcome.seconds},
                )
                for outcome, applied, report in zip(merged.outcomes, results, sent, strict=True)
            ]

        work = (
            ([outcome.command for outcome in merged.outcomes], functools.partial(send, merged))
            for merged in self.apply(batches)
        )
        yield report_row(publish(spec, work, {}))

    def apply(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Merged]:
        """Apply the rows of each task of this Spark partition to its store, even if all rows were filtered away.

        Every store advances with every batch, so that its position matches the next batch.
        """
        shares = share_out(leg_tasks(self), batches)
        connections.begin_step()
        for share in shares:
            yield self.merge(share)

    def merge(self, share: Share) -> Merged:
        """Apply the rows of some tasks to their stores."""
        outcomes = [TaskOutcome(task, share.rows_in(task)) for task in share.tasks]
        started = time.perf_counter()
        rows = pa.Table.from_batches(share.batches) if share.batches else self.input.empty_table()
        watermarks: Mapping[int, Watermark] = {}
        try:
            if self.watermark is not None:
                rows, watermarks = _on_time(self, self.watermark, outcomes, rows)
            work = self.begin(share, rows, watermarks)
        except SparkRelayError as error:
            for outcome in outcomes:
                outcome.error = outcome.error or error
            return Merged(outcomes, _no_rows(self.output))
        together = work.together(outcomes)
        seconds = time.perf_counter() - started
        for outcome in outcomes:
            outcome.seconds = seconds / len(outcomes)
            if outcome.applied is None:
                _apply(self, outcome, work.operator(outcome.command))
        if any(outcome.error is not None for outcome in outcomes):
            return Merged(outcomes, _no_rows(self.output))
        if self.watermark is not None and self.watermark.final:
            return Merged(outcomes, _final_rows(self, outcomes))
        if together is not None:
            counts = np.bincount(partitions_of(together), minlength=outcomes[-1].command.task.partition + 1)
            sizes = [int(counts[outcome.command.task.partition]) for outcome in outcomes]
        else:
            sizes = [outcome.emitted().num_rows for outcome in outcomes]
            together = pa.concat_batches([outcome.emitted() for outcome in outcomes])
        for outcome, size in zip(outcomes, sizes, strict=True):
            outcome.rows_out = size
        return Merged(outcomes, together)


class Taskwise:
    """Work on tasks whose stores are changed one by one.

    Args:
        rows: the tasks' rows.
        begin: given a task and its rows, returns the function that changes its store.
    """

    def __init__(self, rows: pa.Table, begin: Callable[[TaskCommand, pa.Table], Operate]) -> None:
        self._rows, self._begin = rows, begin

    def together(self, outcomes: Sequence[TaskOutcome]) -> None:
        """Return None: the stores are changed one by one."""

    def operator(self, task: TaskCommand) -> Operate:
        """Return the function that changes one task's store."""
        own = pc.equal(self._rows.column(hidden_columns.PARTITION), task.task.partition)
        return self._begin(task, self._rows.filter(own))


def note(runner: TableRunner, outcome: TaskOutcome, applied: Applied) -> None:
    """Record the change of a task's store, and read the windows that it closed."""
    outcome.applied = applied
    if applied.over is not None:
        outcome.over = _in_one_piece(runner, store_after(runner, outcome.command, applied).over())


def _on_time(
    runner: TableRunner, watermark: WindowWatermark, outcomes: list[TaskOutcome], rows: pa.Table
) -> tuple[pa.Table, dict[int, Watermark]]:
    """Return the rows that are not late, and partition -> the watermark after the batch."""
    before: dict[int, int] = {}
    behind: dict[int, list[int]] = {}
    sources: dict[int, Sources] = {}
    for outcome in outcomes:
        task = outcome.command
        behind[task.task.partition] = [index for index, topic in enumerate(runner.topics) if topic in task.behind]
        try:
            store, stamp = task_store(runner, task), batch_stamp(runner, task)
            header = store.header_before(stamp)
            before[task.task.partition] = header.watermark(runner.store, stamp.committed)
            if watermark.by_source:
                known = header.sources_of(runner.store, stamp.committed)
                holding = task.behind | task.awaited.get(runner.store, frozenset())
                limits = {topic: ms - watermark.delay_ms for topic, ms in task.event_time_limits.items()}
                sources[task.task.partition] = Sources(runner.topics, known, holding, limits)
        except SparkRelayError as error:
            connections.forget_store(outcome.directory)
            outcome.error = error
            raise
    now_ms = {outcome.command.task.partition: clock_ms(outcome.command) for outcome in outcomes}
    rows, after = without_late(watermark, rows, before, now_ms, behind, sources)
    for outcome in outcomes:
        mark = after[outcome.command.task.partition]
        after[outcome.command.task.partition] = replace(mark, ms=with_silence(mark.ms, outcome.command, runner.topics))
    warn_of_late(runner.store, sum(ms.rows_late for ms in after.values()), "after their window was over")
    return rows, after


def _apply(runner: TableRunner, outcome: TaskOutcome, operate: Operate) -> None:
    """Change one task's store."""
    task = outcome.command
    started = time.perf_counter()
    fault_points.reach("state-before-apply")
    try:
        store = task_store(runner, task)
        stamp = batch_stamp(runner, task)
        note(runner, outcome, store.change_batch(runner.leg, runner.store, batch=stamp, operate=operate))
    except SparkRelayError as error:
        connections.forget_store(outcome.directory)
        outcome.error = error
    fault_points.reach("state-after-apply")
    outcome.seconds += time.perf_counter() - started


def _in_one_piece(runner: TableRunner, windows: Iterator[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the closed windows as one batch."""
    found, size = [_no_rows(_WINDOWS)], 0
    for some in windows:
        found.append(some)
        size += some.nbytes
        if size > _MOST_OVER:
            raise StateStoreException(
                f"store {runner.store!r}: windows of more than {_MOST_OVER} bytes close in one task at once, which is "
                "the limit of a micro-batch. Make their results smaller (fewer columns, fewer collected values), or "
                "start over with more tasks: repartition(..., partitions=N) before the step, and sparkrelay reset"
            )
    return pa.concat_batches(found)


def _final_rows(runner: TableRunner, outcomes: list[TaskOutcome]) -> pa.RecordBatch:
    """Return closed windows as output rows, and record each task's part in its outcome."""
    windows, partitions = [], []
    results: list[list[pa.Array]] = []
    for outcome in outcomes:
        assert outcome.over is not None, "closed windows were read"
        keys, columns = runner.shown(outcome.over)
        results.append(columns)
        outcome.rows_out = len(keys)
        windows.append(keys)
        partitions.append(np.full(len(keys), outcome.command.task.partition, dtype=np.int32))
    encoded = pa.concat_arrays(windows)
    *values, timestamps = (pa.concat_arrays(columns) for columns in zip(*results, strict=True))
    groups = key_columns(encoded, runner.layout.keys)
    return laid_out([*groups, *values, pa.array(np.concatenate(partitions)), timestamps, encoded], runner.output)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
