"""Joins of two streams in workers: rows probe the stored rows of the other side, and are stored.

Each side is a leg. The legs of a join run in sequence, left before right, so every pair is found exactly once, by its
second row, however the input is cut into micro-batches.

The watermark of a join is the least of its source topics' watermarks (``operators.watermarks``). The last leg with
input in a micro-batch advances it, and emits the rows that can no longer be matched (KIP-633: never too early). Rows
older than the watermark before the micro-batch are late: their matches may have expired.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.emitting.run import EmittingRunner, event_times, watermark_with
from sparkrelay.operators.lateness import too_late
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.operators.stream_join.step import LEFT_ONLY, StreamJoin
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.worker.context import laid_out, spans
from sparkrelay.state.join_rows import (
    FIRST_NOTE,
    Buckets,
    StoredRows,
    bounds,
    note_keys,
    noted_rows,
    notes_of,
    row_keys,
)
from sparkrelay.state.key_parts import key_parts
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from sparkrelay.operators.emitting.run import TaskStep
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import Watermark
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

#: Limits of an output batch: pairs, and bytes of their rows. A key may have millions of pairs.
_MOST_PAIRS: Final = 64_000
_PIECE_BYTES: Final = 32 << 20
#: Stored rows up to this size stay in memory until the pairs are emitted; beyond it only their keys do.
_KEPT_BYTES: Final = 64 << 20
#: Limit of a leg's rows in one micro-batch and task: the range of row numbers of a leg in the store's keys.
_MOST_ROWS: Final = 1 << 26
#: Join type -> sides whose unmatched rows are emitted.
_ALONE: Final = {"left": {"left"}, "right": {"right"}, "full": {"left", "right"}, "left_anti": {"left"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinStreams(EmittingRunner):
    """Joins the rows of one stream with those of another.

    Attributes:
        side: ``left`` or ``right``: the stream that the leg reads.
        how: ``inner``, ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``.
        keys: Arrow schema of the key columns.
        rows: side -> Arrow schema of the stored columns without the key.
        earlier_us: how much earlier than the left row the right one may be, in µs.
        later_us: how much later it may be.
        later: topics of the join's legs that run after this one.
        number: the leg's number in the join, part of the store's keys.
    """

    side: str
    how: str
    keys: pa.Schema
    rows: Mapping[str, pa.Schema]
    earlier_us: int
    later_us: int
    later: frozenset[str]
    number: int

    holds: ClassVar[str] = StreamJoin.holds
    late: ClassVar[str] = "too late to be joined"

    @property
    def other(self) -> str:
        """The other side."""
        return "right" if self.side == "left" else "left"

    @property
    def partners_us(self) -> tuple[int, int]:
        """How much earlier and later than a row of this side its matches may be, in µs."""
        both = self.earlier_us, self.later_us
        return both if self.side == "left" else both[::-1]

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return the work of one task."""
        return _TaskJoin(self, task, batches)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a task.

    Attributes:
        table: their columns.
        keys: encoded keys; null if a key column is.
        times_us: event times.
        whole: which rows have a key and an event time; the others match nothing.
    """

    table: pa.Table
    keys: pa.Array
    times_us: Numbers
    whole: Flags

    def filter(self, kept: Flags) -> _Rows:
        if kept.all():
            return self
        some = pa.array(kept)
        return _Rows(
            self.table.filter(some).combine_chunks(), self.keys.filter(some), self.times_us[kept], self.whole[kept]
        )


@dataclass(frozen=True, slots=True)
class _Found:
    """Matches of a task's rows.

    Attributes:
        rows: rows with a key and a time.
        parts: their keys as parts of the store's keys.
        alone: rows without; they are unmatched.
        stored: candidates of the other side.
        same_key: index of a row with the key of each candidate.
        first: index of each row's first match.
        counts: number of its matches, which are consecutive.
        matched: candidates that match any row.
    """

    rows: _Rows
    parts: pa.Array
    alone: _Rows
    stored: StoredRows
    same_key: Numbers
    first: Numbers
    counts: Numbers
    matched: Numbers

    @classmethod
    def none(cls, rows: _Rows, parts: pa.Array, alone: _Rows) -> _Found:
        """Return that no row has a match."""
        nothing = np.zeros(len(rows.times_us), dtype=np.int64)
        return cls(rows, parts, alone, StoredRows.none(), nothing[:0], nothing, nothing, nothing[:0])


class _TaskJoin:
    """The work of one task."""

    def __init__(self, spec: JoinStreams, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        self._batches = batches
        reach_us = spec.earlier_us + spec.later_us
        kept_us = {"left": spec.later_us, "right": spec.earlier_us}
        self._buckets = {side: Buckets(kept, reach_us) for side, kept in kept_us.items()}
        self._columns = {side: StoredColumns(row) for side, row in spec.rows.items()}
        self._found: _Found | None = None
        self._lengths = np.empty(0, dtype=np.int64)

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the output rows: pairs and unmatched rows."""
        spec, found = self._spec, self._found
        assert found is not None, "operate() was called"
        if spec.how == "left_semi":
            if spec.side == "left":
                yield self._alone(found.rows.filter(found.counts > 0))
            else:
                # The matching right row has the same key.
                yield from self._stored_left(found, store)
        elif spec.how not in LEFT_ONLY:
            yield from self._pairs(found, store)
        if spec.side in _ALONE.get(spec.how, ()):
            yield self._alone(found.alone)
        for over in store.over(FIRST_NOTE):
            for side in sorted(_ALONE.get(spec.how, ())):
                yield from self._over(side, notes_of(side, over), store)

    # -- within the store's transaction ---------------------------------------------------------------------------

    def operate(self, view: StoreView) -> Changes:
        """Match the rows with stored ones of the other side, and store them."""
        rows = self._read()
        late = rows.whole & too_late(rows.times_us, view.watermark)
        watermark = self._watermark(view, rows, int(late.sum()))
        rows = rows.filter(~late)
        found = self._found = self._probe(view, rows.filter(rows.whole), rows.filter(~rows.whole))
        keys, values = self._changes(found)
        return Changes.of(view, keys, values, watermark)

    def _read(self) -> _Rows:
        spec = self._spec
        times = [(name, pa.int64()) for name in (hidden_columns.TIMESTAMP, hidden_columns.EVENT_MICROS)]
        table = pa.schema([*spec.keys, *spec.rows[spec.side], *times]).empty_table()
        if self._batches:
            table = pa.Table.from_batches(self._batches).combine_chunks()
        columns = [whole(table.column(name)) for name in spec.keys.names]
        times_us, timed = event_times(table)
        there = np.logical_and.reduce([timed, *(c.is_valid().to_numpy(zero_copy_only=False) for c in columns)])
        return _Rows(table, key_bytes(columns).cast(pa.binary()), times_us, there)

    def _watermark(self, view: StoreView, rows: _Rows, late: int) -> Watermark:
        """Return the watermark after the batch. Only the last leg with input advances it."""
        spec, task = self._spec, self.task
        mark = watermark_with(spec, view, task, rows.table, late)
        last = spec.later.isdisjoint(partition.topic for partition in task.ranges)
        return replace(mark, ms=mark.ms if last else view.watermark, final=last and spec.how in _ALONE)

    def _probe(self, view: StoreView, rows: _Rows, alone: _Rows) -> _Found:
        """Find the stored matches of each row."""
        encoded = pc.dictionary_encode(rows.keys)
        distinct = key_parts(encoded.dictionary)
        # Numbered in the order of bytes, so that ranges are in the order of the store.
        by_bytes = pc.array_sort_indices(distinct)
        distinct = distinct.take(by_bytes)
        ranks = np.argsort(by_bytes.to_numpy(zero_copy_only=False))
        numbers = ranks[encoded.indices.to_numpy(zero_copy_only=False)]
        parts = distinct.take(pa.array(numbers))
        # The range of times that each row needs, by key and bucket.
        earlier, later = self._spec.partners_us
        low, high = rows.times_us - earlier, rows.times_us + later
        others = self._buckets[self._spec.other]
        first, last = others.numbers(low), others.numbers(high)
        asked: list[tuple[Numbers, ...]] = []
        for step in range(int((last - first).max()) + 1 if len(first) else 0):
            there = np.flatnonzero(first + step <= last)
            asked.append((first[there] + step, numbers[there], low[there], high[there], there))
        if not asked:
            return _Found.none(rows, parts, alone)
        buckets, keys, lows, highs, askers = (np.concatenate(column) for column in zip(*asked, strict=True))
        order = np.lexsort((lows, keys, buckets))
        buckets, keys, lows, highs, askers = (some[order] for some in (buckets, keys, lows, highs, askers))

        def ranges() -> tuple[list[bytes], list[bytes]]:
            fronts, own = others.fronts(buckets), distinct.take(pa.array(keys))
            first, stop = bounds(self._spec.other, fronts, own, lows, highs)
            return first.to_pylist(), stop.to_pylist()

        if self._spec.how in LEFT_ONLY and self._spec.side == "left":
            # Any match is enough.
            counts = np.zeros(len(rows.times_us), dtype=np.int64)
            counts[askers[view.any_in(*ranges())]] = 1
            return replace(_Found.none(rows, parts, alone), counts=counts)
        starts = np.flatnonzero(np.r_[True, (np.diff(buckets) != 0) | (np.diff(keys) != 0)])
        buckets, keys = buckets[starts], keys[starts]
        lows, highs = np.minimum.reduceat(lows, starts), np.maximum.reduceat(highs, starts)
        kept_bytes = 0 if self._spec.how in LEFT_ONLY else _KEPT_BYTES
        which, *found = view.found_in(*ranges(), most_bytes=kept_bytes)
        stored = StoredRows.of(*found)
        stored_numbers = keys[which]
        order = np.lexsort((stored.times_us, stored_numbers))
        stored, stored_numbers = stored.take(order), stored_numbers[order]
        begin = np.searchsorted(stored_numbers, numbers, "left")
        end = np.searchsorted(stored_numbers, numbers, "right")
        lowest = _bisect(stored.times_us, begin, end, low, after=False)
        beyond = _bisect(stored.times_us, begin, end, high, after=True)
        matched = _covered(lowest, beyond, len(stored.times_us))
        with_key = np.unique(numbers, return_index=True)[1]
        return _Found(rows, parts, alone, stored, with_key[stored_numbers], lowest, beyond - lowest, matched)

    def _changes(self, found: _Found) -> tuple[pa.Array, pa.Array]:
        """Return the store's changed keys and new values; null removes."""
        spec = self._spec
        rows, parts, matched = found.rows, found.parts, found.counts > 0
        if spec.side == "left" and spec.how in LEFT_ONLY:
            # A matched left row is done.
            rows, parts, matched = rows.filter(~matched), parts.filter(pa.array(~matched)), matched[~matched]
        keys = self._keys(rows, parts)
        values = self._columns[spec.side].values(rows.table)
        self._lengths = pc.binary_length(values).to_numpy(zero_copy_only=False)
        changed, new = [keys], [values]
        if spec.side in _ALONE.get(spec.how, ()) and not matched.all():
            some = pa.array(~matched)
            waiting = rows.filter(~matched)
            changed.append(note_keys(spec.side, self._buckets[spec.side].ends_ms(waiting.times_us), keys.filter(some)))
            new.append(key_bytes([whole(waiting.table.column(name)) for name in spec.keys.names], normal=False))
        gone = found.stored.take(found.matched)
        if len(gone.keys) and spec.other in _ALONE.get(spec.how, ()):
            changed.append(note_keys(spec.other, self._buckets[spec.other].ends_ms(gone.times_us), gone.keys))
        if len(gone.keys) and spec.side == "right" and spec.how in LEFT_ONLY:
            changed.append(gone.keys)
        removed = sum(map(len, changed)) - sum(map(len, new))
        return pa.concat_arrays(changed), pa.concat_arrays([*new, pa.nulls(removed, pa.binary())])

    def _keys(self, rows: _Rows, parts: pa.Array) -> pa.Array:
        assert len(rows.times_us) < _MOST_ROWS, "too many rows for a micro-batch"
        own = self._buckets[self._spec.side]
        fronts = own.fronts(own.numbers(rows.times_us))
        first = self._spec.number * _MOST_ROWS
        return row_keys(self._spec.side, fronts, parts, rows.times_us, self.task.batch, first)

    # -- output rows ----------------------------------------------------------------------------------------------

    def _pairs(self, found: _Found, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        spec, counts, stored = self._spec, found.counts, found.stored
        if not counts.any():
            return
        kept = None if stored.values is None else self._columns[spec.other].read(stored.values)
        names = (*spec.keys.names, *spec.rows[spec.side].names)
        own = {name: whole(found.rows.table.column(name)) for name in names if name in spec.output.names}
        lengths = self._lengths + _key_bytes(found.rows)
        times = whole(found.rows.table.column(hidden_columns.TIMESTAMP))
        behind = np.cumsum(counts)
        for begin in range(0, int(behind[-1]), _MOST_PAIRS):
            pairs = np.arange(begin, min(begin + _MOST_PAIRS, int(behind[-1])))
            row = np.searchsorted(behind, pairs, "right")
            other = found.first[row] + pairs - (behind[row] - counts[row])
            for start, end in spans(lengths[row] + stored.lengths[other], _PIECE_BYTES):
                taken, which = pa.array(row[start:end]), other[start:end]
                others = kept
                if others is None:
                    places, which = np.unique(which, return_inverse=True)
                    others = self._columns[spec.other].read(store.get(stored.keys.take(pa.array(places))))
                taken_other = pa.array(which)
                newest = pc.max_element_wise(times.take(taken), others[hidden_columns.TIMESTAMP].take(taken_other))
                columns = {name: column.take(taken) for name, column in own.items()}
                columns |= {name: others[name].take(taken_other) for name in spec.rows[spec.other].names}
                yield self._laid_out(columns, found.rows.keys.take(taken), newest)

    def _alone(self, rows: _Rows) -> pa.RecordBatch:
        """Return unmatched rows of this side."""
        names = (*self._spec.keys.names, *self._spec.rows[self._spec.side].names)
        columns = {name: whole(rows.table.column(name)) for name in names}
        return self._laid_out(columns, rows.keys, whole(rows.table.column(hidden_columns.TIMESTAMP)))

    def _stored_left(self, found: _Found, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the matched stored rows of the left side; their key columns come from a row with the same key.

        They were deleted with the match, so the journal has them, in the order of their keys, and nothing else.
        """
        spec, lengths = self._spec, _key_bytes(found.rows)
        if not len(found.matched):
            return
        order = pc.array_sort_indices(found.stored.keys.take(pa.array(found.matched)))
        same_key, first = found.same_key[found.matched][order.to_numpy(zero_copy_only=False)], 0
        for before in store.before():
            gone = before.column("old").drop_null()
            row = same_key[first : first + len(gone)]
            first += len(gone)
            sizes = lengths[row] + pc.binary_length(gone).to_numpy(zero_copy_only=False)
            for start, end in spans(sizes, _PIECE_BYTES):
                taken, others = pa.array(row[start:end]), self._columns["left"].read(gone[start:end])
                columns = {name: whole(found.rows.table.column(name)).take(taken) for name in spec.keys.names}
                columns |= {name: others[name] for name in spec.rows["left"].names}
                yield self._laid_out(columns, found.rows.keys.take(taken), others[hidden_columns.TIMESTAMP])
        assert first == len(found.matched), "every matched row is deleted"

    def _over(self, side: str, notes: pa.RecordBatch, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a side that can no longer be matched."""
        first, spec = 0, self._spec
        for values in store.get_pieces(noted_rows(side, notes.column("key"), self._buckets[side])):
            own = key_columns(notes.column("value").slice(first, len(values)), spec.keys)
            columns = {**dict(zip(spec.keys.names, own, strict=True)), **self._columns[side].read(values)}
            yield self._laid_out(columns, key_bytes(own), columns[hidden_columns.TIMESTAMP])
            first += len(values)

    def _laid_out(self, columns: Mapping[str, pa.Array], keys: pa.Array, timestamps: pa.Array) -> pa.RecordBatch:
        count = len(timestamps)
        hidden: dict[str, Any] = {
            hidden_columns.PARTITION: pa.array(np.full(count, self.task.task.partition, dtype=np.int32)),
            hidden_columns.TIMESTAMP: timestamps,
            hidden_columns.KEY: keys,
        }
        there = {**columns, **hidden}
        return laid_out((there.get(f.name, pa.nulls(count, f.type)) for f in self._spec.output), self._spec.output)


def _bisect(times: Numbers, first: Numbers, end: Numbers, wanted: Numbers, *, after: bool) -> Numbers:
    """Return the insertion point of each wanted time in its span ``[first, end)`` of sorted times.

    Args:
        times: times of all spans.
        first: start of each span.
        end: end of each span.
        wanted: one time for each span.
        after: True to insert after equal times, False before them.
    """
    first, end = first.copy(), end.copy()
    open_ = np.flatnonzero(first < end)
    while len(open_):
        middle = (first[open_] + end[open_]) // 2
        here = times[middle]
        before = here <= wanted[open_] if after else here < wanted[open_]
        first[open_[before]] = middle[before] + 1
        end[open_[~before]] = middle[~before]
        open_ = open_[first[open_] < end[open_]]
    return first


def _key_bytes(rows: _Rows) -> Numbers:
    """Return the size of each row's key in output rows, as message key and as columns."""
    lengths: Numbers = 2 * pc.binary_length(rows.keys).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _covered(first: Numbers, end: Numbers, count: int) -> Numbers:
    """Return which of ``count`` places are in one of the spans."""
    edges = np.zeros(count + 1, dtype=np.int64)
    np.add.at(edges, first, 1)
    np.add.at(edges, end, -1)
    return np.flatnonzero(np.cumsum(edges[:-1]) > 0)
