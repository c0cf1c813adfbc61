"""What stateful steps that emit a stream have in common: their tasks, one after the other, and their watermark."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.watermarks import Sources, newest_times, warn_of_late, with_silence
from sparkrelay.runtime.contract import fault_points, hidden_columns
from sparkrelay.runtime.contract.specs import StoreSpec
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.changelogs import write_changelogs
from sparkrelay.runtime.worker.context import clock_ms, leg_tasks, whole
from sparkrelay.runtime.worker.memory import freeze_loaded_objects
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.runtime.worker.task_steps import batch_stamp, store_after, task_failure, task_store
from sparkrelay.state import Watermark
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import Applied
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import Changes, StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["EmittingRunner", "TaskStep", "TimedSource", "applied", "event_times", "too_late", "watermark_with"]

#: Before any event time: those of a Spark timestamp begin with the year 1.
_EARLIEST_MS: Final = -(1 << 52)


class TaskStep(Protocol):
    """One task's share of a leg: from its rows to the changes of its store, and to the rows that go on."""

    @property
    def task(self) -> TaskCommand:
        """The task's share of the micro-batch."""

    def operate(self, view: StoreView) -> Changes:
        """Return what becomes of the store; called again if the map had to grow."""

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the rows that go on, once the store is changed."""


@dataclass(frozen=True, slots=True)
class TimedSource:
    """One source topic of a step whose source topics have watermarks of their own.

    Attributes:
        name: under which the store keeps it.
        topic: Kafka's name of it.
        delay_ms: how much later than the newest event time a row of it may come.
    """

    name: str
    topic: str
    delay_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EmittingRunner(StoreSpec):
    """A step that emits a stream, as workers run it. Its watermark is the least of its source topics' own.

    Attributes:
        late: how rows came that were left out, in words.
        output: Arrow schema of the rows that leave the step.
        delay_ms: how much later than the newest event time a row of the leg may come.
        ahead_ms: how far ahead of the machine's clock an event time may be to move the watermark.
        sources: the source topics of all the legs that keep the store; none where there is no watermark.
        own_sources: the names of those of the leg, in the order of its topics.
    """

    output: pa.Schema
    delay_ms: int
    ahead_ms: int
    sources: tuple[TimedSource, ...]
    own_sources: tuple[str, ...]

    late: ClassVar[str] = ""

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return a task's share of the leg; ``batches`` are its rows."""
        raise NotImplementedError

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Have each task's share change its store, write the changelog, and yield the rows that go on."""
        shares = share_out(leg_tasks(self), batches)
        freeze_loaded_objects()
        connections.close_unused()
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
    """Return the event times of rows, microseconds since 1970, and which of them have one."""
    micros = whole(rows.column(hidden_columns.EVENT_MICROS))
    return pc.fill_null(micros, 0).to_numpy(zero_copy_only=False), micros.is_valid().to_numpy(zero_copy_only=False)


def too_late(times_us: Numbers, watermark_ms: int) -> Flags:
    """Return which event times the watermark before the batch has passed."""
    return times_us < max(watermark_ms, _EARLIEST_MS) * 1000


def watermark_with(spec: EmittingRunner, view: StoreView, task: TaskCommand, rows: pa.Table, late: int) -> Watermark:
    """Return the watermark with a leg's share of the batch, which has moved on as far as what is read by now says.

    Args:
        spec: the step.
        view: the store before it.
        task: whose share it is.
        rows: all of it, late ones too.
        late: how many of them are.
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
    """Return the newest event time, in milliseconds since 1970, by number of each source topic that has rows."""
    times_us, timed = event_times(rows)
    moving = timed & (times_us <= latest_ms * 1000)
    sources = None
    if hidden_columns.SOURCE in rows.column_names:
        sources = whole(rows.column(hidden_columns.SOURCE)).to_numpy()
    return newest_times(np.where(moving, times_us // 1000, NO_TIME), sources)
