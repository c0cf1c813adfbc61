"""Stateful steps that emit a stream, in workers: they process tasks one by one, and share rules for watermarks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.lateness import warn_of_late
from sparkrelay.operators.watermarks import Sources, newest_times, with_silence
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.specs import StoreSpec
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.changelogs import write_changelogs
from sparkrelay.runtime.worker.context import clock_ms, leg_tasks
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.runtime.worker.task_steps import batch_stamp, store_after, task_failure, task_store
from sparkrelay.state import Watermark
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import Applied
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import Changes, StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]


class TaskStep(Protocol):
    """The work of one task: it turns its rows into changes of its store and output rows."""

    @property
    def task(self) -> TaskCommand:
        """The task's command."""

    def operate(self, view: StoreView) -> Changes:
        """Return the changes of the store. Called again if the LMDB map had to grow."""

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the output rows, after the store was changed."""


@dataclass(frozen=True, slots=True)
class TimedSource:
    """A source topic with its own watermark.

    Attributes:
        name: its name in the store.
        topic: Kafka's name.
        delay_ms: its watermark's delay.
    """

    name: str
    topic: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittingRunner(StoreSpec):
    """A step that emits a stream. Its watermark is the least of its source topics' watermarks.

    Attributes:
        late: when dropped rows arrived, for the log.
        output: Arrow schema of output rows.
        delay_ms: the watermark's delay.
        ahead_ms: event times further ahead of the machine's clock than this do not advance the watermark.
        sources: source topics of all legs that share the store; empty without a watermark.
        own_sources: names of the leg's source topics, in order.
    """

    output: pa.Schema
    delay_ms: int
    ahead_ms: int
    sources: tuple[TimedSource, ...]
    own_sources: tuple[str, ...]

    late: ClassVar[str] = ""

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return the work of one task with these rows."""
        raise NotImplementedError

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Change each task's store and write the changelog; yield the output rows."""
        shares = share_out(leg_tasks(self), batches)
        connections.begin_step()
        done: list[tuple[TaskStep, Applied]] = []
        for share in shares:
            for task in share.tasks:
                own = self.begin(task, share.rows_of(task))
                fault_points.reach("state-before-apply")
                with task_failure(self, task):
                    done.append((own, applied(self, own)))
                fault_points.reach("state-after-apply")
        warn_of_late(self.store, sum(result.entry.rows_late for _, result in done), self.late)
        write_changelogs(self, ((own.task, result) for own, result in done))
        for own, result in done:
            with task_failure(self, own.task):
                yield from own.emitted(store_after(self, own.task, result))


def applied(spec: EmittingRunner, own: TaskStep) -> Applied:
    """Change the store of a task."""
    store = task_store(spec, own.task)
    return store.change_batch(spec.leg, spec.store, batch=batch_stamp(spec, own.task), operate=own.operate)


def event_times(rows: pa.Table) -> tuple[Numbers, Flags]:
    """Return the event times of rows, in µs since 1970, and which rows have one."""
    micros = whole(rows.column(hidden_columns.EVENT_MICROS))
    return pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), micros.is_valid().to_numpy(zero_copy_only=False)


def watermark_with(spec: EmittingRunner, view: StoreView, task: TaskCommand, rows: pa.Table, late: int) -> Watermark:
    """Return the watermark after a leg's rows of the batch.

    Args:
        spec: the step.
        view: the store before them.
        task: their task.
        rows: all rows, late ones included.
        late: number of late rows.
    """
    newest = _newest(rows, clock_ms(task) + spec.ahead_ms)
    read = view.sources_read | {spec.topics[number] for number in newest}
    holding = task.behind | task.awaited.get(spec.store, frozenset()) | read
    names = [source.name for source in spec.sources]
    held = frozenset(source.name for source in spec.sources if source.topic in holding)
    own = {names.index(spec.own_sources[number]): ms for number, ms in newest.items()}
    limits = {
        source.name: task.event_time_limits[source.topic] - source.delay_ms
        for source in spec.sources
        if source.topic in task.event_time_limits
    }
    mark = Sources(names, view.sources, held, limits).after(Watermark(view.watermark, late), own, spec.delay_ms)
    ms = with_silence(mark.ms, task, {source.topic for source in spec.sources})
    return replace(mark, ms=ms, sources_read=read)


def _newest(rows: pa.Table, latest_ms: int) -> dict[int, int]:
    """Return source topic -> newest event time of its rows, in ms since 1970."""
    times_us, timed = event_times(rows)
    moving = timed & (times_us <= latest_ms * 1000)
    sources = None
    if hidden_columns.SOURCE in rows.column_names:
        sources = whole(rows.column(hidden_columns.SOURCE)).to_numpy()
    return newest_times(np.where(moving, times_us // 1000, NO_TIME), sources)
