"""Calls of the user's stateful processor in workers: with each group's rows, then with due timers.

As in Structured Streaming, a micro-batch processes all groups' rows first, then the due timers. An event time timer is
due when the watermark *after* the micro-batch has passed it; Structured Streaming fires it in the next micro-batch,
which it runs without rows if necessary.

Timers and expiries use the store's watermark. For processing time it is the driver's clock when the micro-batch was
chosen; like every watermark it never decreases, on whatever machine.

Each task and micro-batch uses a fresh copy of the processor and calls ``init``: attributes do not survive. It may see
the same rows again, as a failed micro-batch is repeated.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues

from sparkrelay import hidden_columns
from sparkrelay.errors import SparkRelayError
from sparkrelay.operators.emitting.run import EmittingRunner, event_times, watermark_with
from sparkrelay.operators.lateness import too_late
from sparkrelay.operators.process.handle import Handle
from sparkrelay.operators.process.rows import Verifier, rows_of, table_of
from sparkrelay.operators.process.step import Transformation
from sparkrelay.operators.process.ticks import Ticks
from sparkrelay.operators.process.variables import Group, VariableSpec, Work, remove_expired
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.worker.context import clock_ms, laid_out
from sparkrelay.state import Watermark
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from sparkrelay.operators.emitting.run import TaskStep
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView

#: Limit of an output batch.
_MOST_ROWS: Final = 16_000
#: Number of groups whose state is read ahead for a tick.
_GROUPS: Final = 1_000
#: Our part of a traceback.
_OURS: Final = str(Path(__file__).parent)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProcessor(EmittingRunner):
    """Calls a stateful processor with the rows of each group.

    Attributes:
        keys: Arrow schema of the grouping columns, under hidden names.
        key: the grouping columns for the processor.
        row: its input columns.
        result: its output columns; ``output`` has only those that are read downstream.
        processor: the user's processor.
        variables: its variables.
        time_mode: ``none``, ``processingtime`` or ``eventtime``.
        in_pandas: True if it takes and returns pandas DataFrames.
        tick_ms: the interval of ``handleTick``, in ms; None: it is not called.
    """

    keys: pa.Schema
    key: StructType
    row: StructType
    result: StructType
    processor: StatefulProcessor
    variables: tuple[VariableSpec, ...]
    time_mode: str
    in_pandas: bool
    tick_ms: int | None

    holds: ClassVar[str] = Transformation.holds
    late: ClassVar[str] = "after the watermark had passed their event time"

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return the work of one task."""
        return _TaskTransformation(self, task, batches)


@dataclass(frozen=True, slots=True)
class _Result:
    """An output row: the user's columns, the group's encoded key, and a timestamp in ms since 1970."""

    row: tuple[Any, ...]
    key: bytes
    timestamp: int


class _TaskTransformation:
    """The work of one task."""

    def __init__(self, spec: CallProcessor, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        self._rows = pa.Table.from_batches(batches).combine_chunks() if batches else None
        self._results: list[_Result] = []

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the output rows, in their order."""
        del store
        output = self._spec.output
        for begin in range(0, len(self._results), _MOST_ROWS):
            some = self._results[begin : begin + _MOST_ROWS]
            columns: dict[str, Any] = {
                hidden_columns.PARTITION: pa.repeat(pa.scalar(self.task.task.partition, pa.int32()), len(some)),
                hidden_columns.TIMESTAMP: pa.array([one.timestamp for one in some], pa.int64()),
                hidden_columns.KEY: pa.array([one.key for one in some], pa.binary()),
            }
            table = table_of([one.row for one in some], self._spec.result)
            columns |= {name: whole(table.column(name)) for name in output.names if name not in columns}
            yield laid_out((columns[name] for name in output.names), output)

    def operate(self, view: StoreView) -> Changes:
        """Call the processor, and return the changes of its variables and timers."""
        spec = self._spec
        rows, watermark, before_ms = self._timely(view)
        work = Work(
            view, watermark.ms if watermark is not None and spec.time_mode == "processingtime" else self._now_ms
        )
        turns = _Turns(spec, work, before_ms if spec.time_mode == "eventtime" else None)
        if rows is not None and rows.num_rows:
            turns.give(rows)
        if watermark is not None:
            turns.fire(watermark.ms)
            turns.tick(watermark.ms)
        turns.close()
        self._results = turns.results
        if spec.time_mode == "processingtime":
            remove_expired(work)
        turns.handle.write()
        return changes_of(work, watermark)

    @property
    def _now_ms(self) -> int:
        return clock_ms(self.task) if self.task.now_ms is None else self.task.now_ms

    def _timely(self, view: StoreView) -> tuple[pa.Table | None, Watermark | None, int]:
        """Return the rows that are not late, the watermark after them, and the watermark before."""
        spec, rows, before_ms = self._spec, self._rows, view.watermark
        if spec.time_mode == "none":
            return rows, None, before_ms
        if spec.time_mode == "processingtime":
            return rows, Watermark(max(self._now_ms, before_ms)), before_ms
        if rows is None:
            nothing = pa.schema([(hidden_columns.EVENT_MICROS, pa.int64())]).empty_table()
            mark = watermark_with(spec, view, self.task, nothing, 0)
        else:
            times_us, timed = event_times(rows)
            late = timed & too_late(times_us, before_ms)
            mark = watermark_with(spec, view, self.task, rows, int(late.sum()))
            rows = rows.filter(pa.array(~late)) if late.any() else rows
        return rows, mark, before_ms


class _Turns:
    """The processor's calls for one task in one micro-batch."""

    def __init__(self, spec: CallProcessor, work: Work, watermark_ms: int | None) -> None:
        """Call ``init``; ``watermark_ms`` is the watermark before the micro-batch, None without event time."""
        self.results: list[_Result] = []
        self.handle = Handle(work, spec.variables, spec.time_mode)
        self._spec = spec
        self._work = work
        self._ticks = None if spec.tick_ms is None else Ticks(work, spec.tick_ms)
        self._processor = copy.deepcopy(spec.processor)
        self._verified = Verifier(spec.result, "outputStructType")
        self._watermark_ms = watermark_ms
        self._now_at(watermark_ms)
        self._call("init", lambda: self._processor.init(self.handle))

    def give(self, rows: pa.Table) -> None:
        """Pass each group's rows to the processor, in the order of the groups' first rows."""
        spec = self._spec
        keys = key_bytes([whole(rows.column(name)) for name in spec.keys.names]).cast(pa.binary())
        wanted = pc.is_valid(keys)
        if not pc.all(wanted).as_py():
            rows, keys = rows.filter(wanted), keys.filter(wanted)
        if not len(keys):
            return
        encoded = pc.dictionary_encode(keys)
        numbers = encoded.indices.to_numpy(zero_copy_only=False)
        groups = [Group.of(key) for key in encoded.dictionary.to_pylist()]
        order = np.argsort(numbers, kind="stable")
        bounds = np.searchsorted(numbers[order], np.arange(len(groups) + 1))
        rows = rows.take(pa.array(order)).combine_chunks()
        timestamps = np.maximum.reduceat(rows.column(hidden_columns.TIMESTAMP).to_numpy(), bounds[:-1])
        self.handle.load(groups)
        if self._ticks is not None:
            self._ticks.note(groups)
        inputs = self._inputs(rows, bounds)
        for group, key, own, timestamp in zip(groups, self._keys(groups), inputs, timestamps.tolist(), strict=True):
            times = self._timer_values()
            self._turn(
                group,
                key,
                timestamp,
                "handleInputRows",
                lambda: self._processor.handleInputRows(key, own, times),  # noqa: B023
            )

    def fire(self, by_ms: int) -> None:
        """Fire the timers that are due, in order."""
        if self._spec.time_mode == "eventtime":
            self._now_at(by_ms)
        else:
            # A timer that is registered for now fires in the next micro-batch.
            self.handle.earliest_ms = by_ms + 1
        due = self.handle.timers.due(by_ms)
        groups = list({group.key: group for _, group in due}.values())
        self.handle.load(groups)
        keys = dict(zip((group.key for group in groups), self._keys(groups), strict=True))
        times = self._timer_values()
        for due_ms, group in due:
            self._work.group = group
            if self.handle.timers.is_deleted(due_ms):
                continue
            key, info = keys[group.key], ExpiredTimerInfo(due_ms)
            self._turn(
                group,
                key,
                due_ms,
                "handleExpiredTimer",
                lambda: self._processor.handleExpiredTimer(key, times, info),  # noqa: B023
            )
            self._work.group = group
            self.handle.timers.delete(due_ms)
        self._work.group = None

    def tick(self, now_ms: int) -> None:
        """Call ``handleTick`` if the task's tick is due."""
        due = None if self._ticks is None else self._ticks.take_due(now_ms)
        if self._ticks is None or due is None:
            return
        keys, times = self._each_group(self._ticks.groups()), self._timer_values()
        processor: Any = self._processor
        self._call("handleTick", lambda: self._take(processor.handleTick(keys, times), due))
        self._work.group = None

    def _each_group(self, groups: Sequence[Group]) -> Iterator[tuple[Any, ...]]:
        """Yield the keys of groups; the last one is the current group."""
        for begin in range(0, len(groups), _GROUPS):
            some = groups[begin : begin + _GROUPS]
            self.handle.load(some)
            for group, key in zip(some, self._keys(some), strict=True):
                self._work.group = group
                yield key

    def close(self) -> None:
        """Close the processor."""
        self._call("close", self._processor.close)

    def _now_at(self, watermark_ms: int | None) -> None:
        if watermark_ms is not None:
            # Structured Streaming's watermark starts at 0.
            self._watermark_ms = self.handle.passed_ms = max(watermark_ms, 0)

    def _timer_values(self) -> TimerValues:
        if self._spec.time_mode == "none":
            return TimerValues(-1, -1)
        return TimerValues(self._work.now_ms, -1 if self._watermark_ms is None else self._watermark_ms)

    def _turn(
        self,
        group: Group,
        key: tuple[Any, ...],
        timestamp: int,
        method: str,
        call: Callable[[], Iterable[Any] | None],
    ) -> None:
        """Call the processor for a group, and exhaust its result."""
        self._work.group = group
        self._call(method, lambda: self._take(call(), timestamp), key)
        self._work.group = None

    def _take(self, results: Iterable[Any] | None, timestamp: int) -> None:
        """Take the rows that the processor returns, each with the key of the group that is current then."""
        for made in results or ():
            rows: Iterable[Any] = _of_pandas(made, self._spec) if self._spec.in_pandas else (made,)
            self.results.extend(_Result(self._verified(row), self._work.turn.key, timestamp) for row in rows)

    def _call(self, method: str, call: Callable[[], Any], key: tuple[Any, ...] | None = None) -> None:
        """Call the processor; its errors get a note with its class, method and key."""
        try:
            call()
        except SparkRelayError:
            raise
        except Exception as error:
            of = "" if key is None else f" for key {key!r}"
            error.add_note(f"in {type(self._processor).__name__}.{method}(){of}")
            _end_at_the_user_s(error)
            raise

    def _keys(self, groups: Sequence[Group]) -> list[tuple[Any, ...]]:
        """Return the keys of groups for the processor."""
        columns = key_columns(pa.array([group.key for group in groups], pa.binary()), self._spec.keys)
        table = pa.Table.from_arrays(columns, names=self._spec.key.names)
        return [tuple(row) for row in rows_of(table, self._spec.key)]

    def _inputs(self, rows: pa.Table, bounds: NDArray[np.int64]) -> Iterator[Iterator[Any]]:
        """Yield the rows of each group for the processor."""
        names, schema = self._spec.row.names, self._spec.row
        if self._spec.in_pandas:
            for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
                yield iter([rows.select(names).slice(begin, end - begin).to_pandas()])
            return
        found = rows_of(rows.select(names), schema, rows.num_rows)
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            yield iter(found[begin:end])


def changes_of(work: Work, watermark: Watermark | None) -> Changes:
    """Return the changes of the store, without no-ops."""
    changed = dict(sorted(work.changed.items()))
    keys, new = pa.array(list(changed), pa.binary()), pa.array(list(changed.values()), pa.binary())
    return Changes.moved(work.view, keys, new, watermark)


def _end_at_the_user_s(error: Exception) -> None:
    """Truncate the traceback of an error after the last line of the user's."""
    at, last = error.__traceback__, None
    while at is not None:
        if not at.tb_frame.f_code.co_filename.startswith(_OURS):
            last = at
        at = at.tb_next
    if last is not None:
        last.tb_next = None


def _of_pandas(made: Any, spec: CallProcessor) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a DataFrame that the processor returned."""
    if not isinstance(made, pd.DataFrame):
        raise TypeError(f"transformWithStateInPandas takes pandas DataFrames, not {type(made).__name__}")
    names = spec.result.names
    if all(isinstance(name, str) for name in made.columns):
        if missing := [name for name in names if name not in made.columns]:
            raise TypeError(f"outputStructType has {missing[0]!r}, but the DataFrame has {', '.join(made.columns)}")
        made = made[names]
    made = made.astype(object).where(made.notna(), None)
    rows: Iterable[tuple[Any, ...]] = made.itertuples(index=False, name=None)
    return rows
