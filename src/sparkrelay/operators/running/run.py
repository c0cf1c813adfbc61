"""Running aggregates in workers; the package says what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.emitting.run import EmittingRunner, event_times, watermark_with
from sparkrelay.operators.lateness import too_late
from sparkrelay.operators.running.frames import Sequences, frame_groups
from sparkrelay.operators.running.step import Running
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.state.byte_arrays import big_endian, buffers, cut, fixed, read_big_endian, side_by_side
from sparkrelay.state.key_parts import key_parts
from sparkrelay.state.view import Changes
from sparkrelay.state.window_keys import ENDLESS, over, window_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from sparkrelay.operators.emitting.run import TaskStep
    from sparkrelay.operators.running.frames import FrameAggregates
    from sparkrelay.operators.running.step import RunningColumn
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import Watermark
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_WAITING: Final = b"\x00"
_CARRIED: Final = b"\x00"
_ROW: Final = b"\x01"
_BEHIND: Final = b"\x02"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningRunner(EmittingRunner):
    """Emits rows with aggregates of the rows around them.

    Attributes:
        keys: names of the key columns.
        input: Arrow schema of input rows.
        row: Arrow schema of what is kept of a row that is not emitted yet.
        reached: Arrow schema of what is kept of rows for the frames of later ones.
        calls: the columns to make.
        ahead: how many successors a row waits for.
    """

    keys: tuple[str, ...]
    input: pa.Schema
    row: pa.Schema
    reached: pa.Schema
    calls: tuple[RunningColumn, ...]
    ahead: int

    holds: ClassVar[str] = Running.holds
    late: ClassVar[str] = "after rows that were ordered behind them"

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return the work of one task."""
        return _TaskRunning(self, task, batches)


@dataclass(slots=True)
class _Stored:
    """What the store has of some keys.

    Attributes:
        carried: for each key, what was added up of rows that are not stored any more: a state for each frame that
            begins with the first row.
        keys: the store's keys of the stored rows.
        which: the number of each one's key.
        numbers: the number of each row among those of its key.
        rows: their columns.
    """

    carried: list[pa.Array]
    keys: pa.Array
    which: Numbers
    numbers: Numbers
    rows: pa.Table


class _TaskRunning:
    """The work of one task."""

    def __init__(self, spec: RunningRunner, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        rows = pa.Table.from_batches(batches, spec.input if not batches else None).combine_chunks()
        keys = key_bytes([whole(rows.column(name)) for name in spec.keys])
        self._rows = rows.filter(keys.is_valid())
        self._waiting, self._reached = StoredColumns(spec.row), StoredColumns(spec.reached)
        self._frames = frame_groups(spec.calls)
        self._sums = [frame for frame, _ in self._frames if frame.frame.from_first]
        self._emitted: pa.RecordBatch | None = None

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the output rows, in their order."""
        del store
        if self._emitted is not None:
            yield self._emitted

    def operate(self, view: StoreView) -> Changes:
        """Store rows that have to wait, and compute the others."""
        self._emitted = None
        keys, values, watermark, due = pa.array([], pa.binary()), pa.array([], pa.binary()), None, self._rows
        if self._spec.sources:
            keys, values, watermark, due = self._ordered(view)
        if due.num_rows:
            more, new = self._computed(view, due)
            keys, values = pa.concat_arrays([keys, more]), pa.concat_arrays([values, new])
        return Changes.of(view, keys, values, watermark)

    def _ordered(self, view: StoreView) -> tuple[pa.Array, pa.Array, Watermark, pa.Table]:
        """Return the entries of rows that wait, the watermark, and the rows that it has passed, in order."""
        rows, spec = self._rows, self._spec
        times_us, timed = event_times(rows)
        late = timed & too_late(times_us, view.watermark)
        watermark = watermark_with(spec, view, self.task, rows, int(late.sum()))
        kept = timed & ~late
        rows, times_us = rows.filter(pa.array(kept)), times_us[kept]
        ends = times_us // 1000 + 1
        now = ends <= watermark.ms
        waiting = rows.filter(pa.array(~now))
        numbers = np.zeros(waiting.num_rows, dtype=[("us", ">u2"), ("batch", ">u8"), ("index", ">u4")])
        numbers["us"], numbers["batch"] = times_us[~now] % 1000, self.task.batch
        numbers["index"] = np.arange(waiting.num_rows)
        keys = window_keys(ends[~now], side_by_side(_WAITING, fixed(numbers, 14)))
        _, _, stored = view.ranges([over(view.watermark)], [over(watermark.ms)])
        waited = pa.table(self._waiting.read(stored))
        due = pa.concat_tables([waited, rows.filter(pa.array(now)).select(waited.column_names).cast(waited.schema)])
        order = np.argsort(due.column(hidden_columns.EVENT_MICROS).to_numpy(), kind="stable")
        return keys, self._waiting.values(waiting), watermark, due.take(pa.array(order)).combine_chunks()

    def _stored(self, view: StoreView, fronts: pa.Array) -> _Stored:
        """Return what is stored of keys, given what their entries begin with."""
        starts = fronts.to_pylist()
        which, keys, values = view.ranges(starts, (front + _BEHIND for front in starts))
        lengths = pc.binary_length(fronts).to_numpy().astype(np.int64)[which]
        suffixes = cut(*buffers(keys), [lengths]).take(pa.array(np.arange(1, 2 * len(keys), 2)))
        is_row = pc.equal(pc.binary_slice(suffixes, 0, 1), pa.scalar(_ROW, pa.binary()))
        own = is_row.to_numpy(zero_copy_only=False)
        sums = np.full(len(starts), -1)
        sums[which[~own]] = np.flatnonzero(~own)
        states = values.take(pa.array(sums, mask=sums < 0))
        offsets, data = buffers(suffixes.filter(is_row))
        return _Stored(
            key_columns(states, self._states)[1:],
            keys.filter(is_row),
            which[own],
            read_big_endian(data, offsets[:-1] + 1),
            pa.table(self._reached.read(values.filter(is_row))),
        )

    @property
    def _states(self) -> pa.Schema:
        """The columns of carried states. The first one forces the encoding of several columns."""
        return pa.schema([("", pa.bool_()), *((str(place), pa.binary()) for place in range(len(self._sums)))])

    def _computed(self, view: StoreView, due: pa.Table) -> tuple[pa.Array, pa.Array]:
        """Compute rows in their order; return the changes of the store."""
        spec = self._spec
        encoded = key_bytes([whole(due.column(name)) for name in spec.keys]).cast(pa.binary()).dictionary_encode()
        fronts = key_parts(encoded.dictionary)
        if spec.sources:
            fronts = side_by_side(ENDLESS, fronts)
        numbers = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        work = _Computation(spec, self._frames, self._stored(view, fronts), due, numbers)
        self._emitted = work.emitted(self.task.task.partition)
        gone, new = work.gone(), work.new()
        keys = [gone, side_by_side(fronts.take(pa.array(new.which)), _ROW, big_endian(new.numbers))]
        values = [pa.nulls(len(gone), pa.binary()), self._reached.values(new.rows)]
        if self._sums:
            states = [pa.nulls(len(fronts), pa.bool_()), *work.carried()]
            keys.append(side_by_side(fronts, _CARRIED))
            values.append(key_bytes(states, normal=False).cast(pa.binary()))
        return pa.concat_arrays(keys), pa.concat_arrays(values)


class _Computation:
    """The stored and the new rows of some keys, key by key, each key's in order."""

    def __init__(
        self,
        spec: RunningRunner,
        frames: list[tuple[FrameAggregates, list[int]]],
        stored: _Stored,
        due: pa.Table,
        numbers: Numbers,
    ) -> None:
        """Take rows.

        Args:
            spec: the step.
            frames: its aggregates by frame.
            stored: of the keys.
            due: new rows, in order.
            numbers: the number of each one's key.
        """
        self._spec, self._frames, self._stored, self._due = spec, frames, stored, due
        held, keys = len(stored.which), int(numbers.max()) + 1
        # The stored rows of a key stand before its new ones.
        self._order = np.argsort(np.r_[stored.which, numbers], kind="stable")
        which = np.r_[stored.which, numbers][self._order]
        reached = self._select(spec.reached.names)
        times = whole(reached.column(hidden_columns.EVENT_MICROS)).to_numpy() if spec.sources else None
        self._sequences = sequences = Sequences(which, times)
        self._arguments = reached
        self._new = self._order >= held
        self._of_key = np.bincount(stored.which, minlength=keys)
        at, ahead = np.arange(len(which)), spec.ahead
        # Of stored rows the last ones had not all of their successors yet.
        pending = ~self._new & (at + ahead >= sequences.firsts + self._of_key[which])
        self._now = np.flatnonzero((self._new | pending) & (at + ahead <= sequences.lasts))
        self._first = np.searchsorted(which, np.arange(keys))
        self._kept = self._first_kept(np.searchsorted(which, np.arange(keys), side="right") - 1)
        self._states = [frame.states(reached) for frame, _ in frames]

    def _select(self, names: Sequence[str]) -> pa.Table:
        """Return columns of all rows."""
        stored = self._stored.rows.select(names)
        both = pa.concat_tables([stored, self._due.select(names).cast(stored.schema)])
        return both.take(pa.array(self._order)).combine_chunks()

    def _first_kept(self, last: Numbers) -> Numbers:
        """Return the index of the first row of each key that a later frame reaches, given that of its last row."""
        frames = [frame.frame for frame, _ in self._frames]
        waiting = np.maximum(self._first, last - self._spec.ahead + 1)
        kept: Numbers = waiting - max(frame.rows_before for frame in frames)
        reach = max((frame.reach_us for frame in frames if frame.reach_us is not None), default=-1)
        if reach >= 0:
            kept = np.minimum(kept, self._sequences.first_since(np.minimum(waiting, last), reach))
        return np.maximum(kept, self._first)

    def emitted(self, partition: int) -> pa.RecordBatch | None:
        """Return the rows whose frames are complete, in the order in which they came."""
        spec, now = self._spec, self._now
        if not len(now):
            return None
        names = [name for name in spec.output.names if name in spec.row.names or name == hidden_columns.TIMESTAMP]
        if spec.ahead:
            rows = self._select(names).take(pa.array(now))
        else:
            rows = self._due.select(names).take(pa.array(self._order[now] - len(self._stored.which)))
        columns: dict[str, Any] = {name: whole(rows.column(name)) for name in names} | self._columns()
        columns[hidden_columns.PARTITION] = pa.array(np.full(len(now), partition, dtype=np.int32))
        given = (as_type(columns[field.name], field.type) for field in spec.output)
        return laid_out(given, spec.output).take(pa.array(np.argsort(self._order[now])))

    def _columns(self) -> dict[str, pa.Array]:
        """Return the columns that are made, of the rows whose frames are complete."""
        now, which = self._now, self._sequences.which[self._now]
        made: dict[str, pa.Array] = {}
        carried = iter(self._stored.carried)
        for (frame, indices), states in zip(self._frames, self._states, strict=True):
            first, last = (bounds[now] for bounds in self._sequences.bounds(frame.frame))
            before = next(carried).take(pa.array(which)) if frame.frame.from_first else None
            results = frame.results(frame.combined(states, self._sequences.lasts, first, last, before))
            empty = pa.array(last < first)
            for index, result in zip(indices, results, strict=True):
                call = self._spec.calls[index]
                made[call.name] = result
                if call.default is not None:
                    default = as_type(whole(self._arguments.column(call.default)).take(pa.array(now)), result.type)
                    made[call.name] = pc.if_else(empty, default, result)
        return made

    def carried(self) -> list[pa.Array]:
        """Return the new states of the rows that are not stored any more, for each frame from the first row."""
        found = []
        before = iter(self._stored.carried)
        for (frame, _), states in zip(self._frames, self._states, strict=True):
            if frame.frame.from_first:
                ranges = self._first, self._kept - 1
                found.append(frame.combined(states, self._sequences.lasts, *ranges, next(before)))
        return found

    def gone(self) -> pa.Array:
        """Return the store's keys of rows that no frame reaches any more."""
        over = ~self._new & (np.arange(len(self._new)) < self._kept[self._sequences.which])
        return self._stored.keys.take(pa.array(self._order[over]))

    def new(self) -> _New:
        """Return the new rows that later frames reach."""
        which, at = self._sequences.which, np.arange(len(self._new))
        chosen = self._new & (at >= self._kept[which])
        numbers = np.zeros(len(self._first), dtype=np.int64)
        np.maximum.at(numbers, self._stored.which, self._stored.numbers + 1)
        numbers = numbers[which] + at - self._sequences.firsts - self._of_key[which]
        rows = self._due.take(pa.array(self._order[chosen] - len(self._stored.which)))
        return _New(which[chosen], numbers[chosen], rows)


class _New(NamedTuple):
    """Rows to store: the number of each one's key, its number among those of its key, and the columns."""

    which: Numbers
    numbers: Numbers
    rows: pa.Table
