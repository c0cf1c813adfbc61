"""Aggregates by session windows in workers: windows of a group that touch are merged.

Catalyst gives each row the window that it would make alone, from its time to the end of its gap. Windows that touch are
one session, even if one begins exactly when the other ends (Spark's rule).

A session is stored like any other window: by its end, its grouping columns and the window itself. So final rows,
retention, expiry, restores and cuts of the changelog work as for windows. An index lists each group's open sessions,
under a key without an end; it is removed with the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.row_numbers import by_number, places
from sparkrelay.operators.table.changed_rows import Groups, changed_rows
from sparkrelay.operators.table.run import TableRunner, Taskwise
from sparkrelay.records.arrow_buffers import as_type, whole
from sparkrelay.records.keys import key_bytes, key_columns
from sparkrelay.runtime.worker.event_times import window_ends
from sparkrelay.state.aggregate import AggregateCodec
from sparkrelay.state.byte_arrays import equal, side_by_side
from sparkrelay.state.lmdb.rows import SortedKeys
from sparkrelay.state.view import Changes
from sparkrelay.state.window_keys import ENDLESS, message_keys, over, window_keys

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from sparkrelay.operators.aggregate.layout import AggregateLayout
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.worker.shares import Share
    from sparkrelay.state import Watermark
    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_SESSION: Final = f"{hidden_columns.PREFIX}session"
#: Start and end of an open session, in microseconds since 1970.
_SPAN: Final = np.dtype(("<i8", 2))


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsRunner(TableRunner):
    """Runs a step that keeps aggregates by session windows."""

    layout: AggregateLayout

    def begin(self, share: Share, rows: pa.Table, watermarks: Mapping[int, Watermark]) -> Taskwise:
        """Return the work on the tasks' rows."""
        del share
        return Taskwise(rows, lambda task, own: TaskSessions(self, task, own, watermarks[task.task.partition]).operate)


class TaskSessions:
    """The work of one task."""

    def __init__(self, runner: SessionsRunner, task: TaskCommand, rows: pa.Table, watermark: Watermark) -> None:
        """Take the task's rows that are not late, and the store's watermark after the batch."""
        layout = runner.layout
        assert layout.window is not None, "sessions need a watermark"
        assert isinstance(layout.codec, AggregateCodec), "sessions of a stream"
        self._runner = runner
        self._codec = layout.codec
        self._partition = task.task.partition
        self._watermark = watermark
        self._keys_schema = layout.keys
        self._window = layout.window
        self._group = pa.schema([field for field in layout.keys if field.name != self._window])
        keys = self._group_keys([as_type(whole(rows.column(f.name)), f.type) for f in self._group], rows.num_rows)
        if keys.null_count:
            # As in Kafka Streams, records without a key are dropped.
            rows, keys = rows.filter(keys.is_valid()), keys.drop_null()
        self._rows, self._keys = rows.combine_chunks(), keys

    def operate(self, view: StoreView) -> Changes:
        """Return the changes of the store."""
        now_ms = max(self._watermark.ms, view.watermark)
        ending = self._ending(view, now_ms)
        both = pc.dictionary_encode(pa.concat_arrays([self._keys, ending]))
        groups = both.dictionary
        index_keys = side_by_side(ENDLESS, groups)
        index = view.get(index_keys)
        open_ = _Open.of(index).filter_ends_after(view.watermark)
        merged = _Merged.of(open_, self._spans(), both.indices.to_numpy()[: len(self._keys)].astype(np.int64))
        index_after = merged.index(len(groups), now_ms)
        moved = pc.invert(equal(index, index_after))
        keys, old, new, emitted, beside = self._merge(view, groups, merged)
        keys = pa.concat_arrays([keys, index_keys.filter(moved)])
        return Changes(
            keys,
            pa.concat_arrays([old, index.filter(moved)]),
            pa.concat_arrays([new, index_after.filter(moved)]),
            self._watermark,
            emitted,
            beside,
            SortedKeys.of(keys),
        )

    def _group_keys(self, columns: list[pa.Array], count: int) -> pa.Array:
        if not columns:
            return pa.repeat(pa.scalar(b"", pa.binary()), count)
        return key_bytes(columns).cast(pa.binary())

    def _spans(self) -> Numbers:
        """Return start and end of each row's own session."""
        column = self._rows.column(self._window)
        return np.column_stack([_micros(pc.struct_field(column, name)) for name in ("start", "end")])

    def _ending(self, view: StoreView, now_ms: int) -> pa.Array:
        """Return the groups of stored sessions that close with the batch."""
        over_now = view.between(over(view.watermark), over(now_ms)).column("key")
        kinds = self._keys_schema
        columns = dict(zip(kinds.names, key_columns(message_keys(over_now), kinds), strict=True))
        return self._group_keys([columns[name] for name in self._group.names], len(over_now))

    def _merge(
        self, view: StoreView, groups: pa.Array, merged: _Merged
    ) -> tuple[pa.Array, pa.Array, pa.Array, pa.RecordBatch, Any]:
        """Return the sessions' keys in the store, old and new values, output rows, and batches for the journal.

        Sessions that became part of a larger one come first; they are deleted.
        """
        codec = self._codec
        stored_columns, stored_encoded, stored_at = self._laid_out(groups, merged.stored_groups, merged.stored_spans)
        states = view.get(stored_at)
        rows = self._rows.append_column(_SESSION, pa.array(merged.row_sessions))
        partial = codec.partial(rows, [_SESSION])
        new = by_number(codec.states(partial), whole(partial.column(_SESSION)).to_numpy(), len(merged.spans))
        new = codec.combine(self._folded(states, merged), new)
        columns, encoded, at = self._laid_out(groups, merged.groups, merged.spans)
        gone = pa.array(~merged.kept)
        old = by_number(states.filter(pa.array(merged.kept)), merged.stored_sessions[merged.kept], len(merged.spans))
        gone_states = states.filter(gone)
        all_keys = [
            pa.concat_arrays([before.filter(gone), now]) for before, now in zip(stored_columns, columns, strict=True)
        ]
        all_encoded = pa.concat_arrays([stored_encoded.filter(gone), encoded])
        stored = pa.concat_arrays([stored_at.filter(gone), at])
        task = Groups.of_one(self._partition, partial, all_keys, all_encoded, stored)
        shown = pa.concat_arrays([gone_states, new])
        deletes = pa.array(np.arange(len(shown)) < len(gone_states))
        before = pa.concat_arrays([gone_states, old])
        results = [*codec.results(shown), deletes, pa.repeat(pa.scalar(True), len(shown))]
        emitted, beside = changed_rows(self._runner, codec, task, before, results)
        return stored, before, pc.if_else(deletes, pa.scalar(None, pa.binary()), shown), emitted, beside

    def _folded(self, states: pa.Array, merged: _Merged) -> pa.Array:
        """Return the combined states of the stored sessions in each session, or null."""
        sessions = merged.stored_sessions
        # They are sorted by session. Neighbours are combined in order until every session has one state.
        while (sessions[1:] == sessions[:-1]).any():
            right = places(sessions) % 2 == 1
            left = np.flatnonzero(right) - 1
            both = self._codec.combine(states.take(pa.array(left)), states.filter(pa.array(right)))
            at = np.arange(len(states))
            at[left] = len(states) + np.arange(len(left))
            states = pa.concat_arrays([states, both]).take(pa.array(at[~right]))
            sessions = sessions[~right]
        return by_number(states, sessions, len(merged.spans))

    def _laid_out(self, groups: pa.Array, which: Numbers, spans: Numbers) -> tuple[list[pa.Array], pa.Array, pa.Array]:
        """Return the grouping columns of sessions, their message keys, and their keys in the store."""
        own = groups.take(pa.array(which))
        columns = dict(zip(self._group.names, key_columns(own, self._group) if self._group else [], strict=True))
        kind = self._keys_schema.field(self._window).type
        times = [pa.array(spans[:, place]).cast(field.type) for place, field in enumerate(kind)]
        columns[self._window] = pa.StructArray.from_arrays(times, fields=list(kind))
        keys = [columns[name] for name in self._keys_schema.names]
        encoded = key_bytes(keys).cast(pa.binary())
        return keys, encoded, window_keys(window_ends(columns[self._window]), encoded)


@dataclass(frozen=True, slots=True)
class _Open:
    """Open sessions, sorted.

    Attributes:
        groups: index of each session's group.
        spans: its start and end, in µs since 1970.
    """

    groups: Numbers
    spans: Numbers

    @classmethod
    def of(cls, index: pa.Array) -> _Open:
        """Decode the index of each group."""
        counts = pc.fill_null(pc.binary_length(index), 0).to_numpy(zero_copy_only=False) // _SPAN.itemsize
        data = b"".join(index.drop_null().to_pylist())
        return cls(np.repeat(np.arange(len(index)), counts), np.frombuffer(data, "<i8").reshape(-1, 2))

    def filter_ends_after(self, watermark_ms: int) -> _Open:
        """Return the sessions that a watermark leaves open."""
        left = _ends_ms(self.spans) > watermark_ms
        return _Open(self.groups[left], self.spans[left])


@dataclass(frozen=True, slots=True)
class _Merged:
    """Sessions after merging rows into open ones.

    Attributes:
        groups: index of the group of each session with new rows.
        spans: its start and end.
        row_sessions: the session of each row.
        stored_groups: the group of each stored session that is part of a session with new rows.
        stored_spans: its start and end.
        stored_sessions: the session that it is part of, ascending.
        kept: which of these keep their start and end.
        open: all sessions, including those without new rows.
    """

    groups: Numbers
    spans: Numbers
    row_sessions: Numbers
    stored_groups: Numbers
    stored_spans: Numbers
    stored_sessions: Numbers
    kept: Flags
    open: _Open

    @classmethod
    def of(cls, stored: _Open, rows: Numbers, row_groups: Numbers) -> _Merged:
        """Merge stored sessions and the rows' own sessions that touch."""
        groups = np.concatenate([stored.groups, row_groups])
        spans = np.concatenate([stored.spans, rows])
        # Ranks of times are small enough to be combined with the group's index.
        distinct, ranks = np.unique(spans, return_inverse=True)
        ranks = ranks.reshape(spans.shape) + groups[:, None] * (len(distinct) + 1)
        order = np.argsort(ranks[:, 0], kind="stable")
        reached = np.maximum.accumulate(ranks[order, 1])
        begins = np.r_[True, ranks[order, 0][1:] > reached[:-1]] if len(order) else np.zeros(0, dtype=np.bool_)
        sessions = np.empty(len(order), dtype=np.int64)
        sessions[order] = np.cumsum(begins) - 1
        firsts = np.flatnonzero(begins)
        ends = np.maximum.reduceat(spans[order, 1], firsts) if len(firsts) else spans[:0, 1]
        all_spans = np.column_stack([spans[order[firsts], 0], ends])
        all_groups = groups[order[firsts]]
        count = len(stored.groups)
        touched = np.zeros(len(firsts), dtype=np.bool_)
        touched[sessions[count:]] = True
        numbers = np.cumsum(touched) - 1
        # Both stored and merged sessions are sorted by group and start.
        part = touched[sessions[:count]]
        own = sessions[:count][part]
        return cls(
            all_groups[touched],
            all_spans[touched],
            numbers[sessions[count:]],
            stored.groups[part],
            stored.spans[part],
            numbers[own],
            (stored.spans[part] == all_spans[own]).all(axis=1),
            _Open(all_groups, all_spans),
        )

    def index(self, groups: int, watermark_ms: int) -> pa.Array:
        """Encode the index of each group: the sessions that a watermark leaves open; null without any."""
        left = self.open.filter_ends_after(watermark_ms)
        counts = np.bincount(left.groups, minlength=groups)
        offsets = np.r_[0, np.cumsum(counts * _SPAN.itemsize)].astype(np.int32)
        data = pa.py_buffer(np.ascontiguousarray(left.spans, dtype="<i8").tobytes())
        values = pa.Array.from_buffers(pa.binary(), groups, [None, pa.py_buffer(offsets), data])
        return pc.if_else(pa.array(counts > 0), values, pa.scalar(None, pa.binary()))


def _ends_ms(spans: Numbers) -> Numbers:
    ends: Numbers = -(-spans[:, 1] // 1000)
    return ends


def _micros(column: pa.ChunkedArray) -> Numbers:
    numbers: Numbers = whole(column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())).to_numpy(zero_copy_only=False)
    return numbers
