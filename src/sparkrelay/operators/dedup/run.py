"""Deduplication in workers: only the first row of each key is emitted; the store remembers the keys.

A key that includes the event time is remembered until the watermark has passed that time, as later rows of it are late.
*Within the watermark*, a key is remembered until the watermark has passed its first row's time plus the delay, as in
Structured Streaming; dropped rows do not extend that. Without a watermark, keys are remembered forever.

The watermark before the micro-batch decides which keys are remembered and which rows are late. If a key is not
remembered, only its first row in the micro-batch is emitted, whatever the rows' times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.dedup.keys import remembered, wide_ends
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.operators.emitting.run import EmittingRunner, event_times, watermark_with
from sparkrelay.operators.lateness import too_late
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.state.byte_arrays import big_endian
from sparkrelay.state.lmdb.rows import SortedKeys
from sparkrelay.state.view import Changes
from sparkrelay.state.window_keys import NEVER, NO_TIME, window_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from sparkrelay.operators.emitting.run import TaskStep
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state import Watermark
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_LATEST_US: Final = (1 << 63) - 1
_NOTHING: Final = pa.scalar(b"", pa.binary())


@dataclass(frozen=True, slots=True, kw_only=True)
class Deduplicate(EmittingRunner):
    """Emits the first row of each key.

    Attributes:
        keys: names of the key columns.
        input: Arrow schema of input rows.
        within: True to remember a key until its first row's event time plus the delay.
    """

    keys: tuple[str, ...]
    input: pa.Schema
    within: bool

    holds: ClassVar[str] = Deduplication.holds
    late: ClassVar[str] = "after their key may have expired"

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return the work of one task."""
        return _TaskDeduplication(self, task, batches)


@dataclass(frozen=True, slots=True)
class _Distinct:
    """The keys of some rows, each once, in the order of bytes.

    Attributes:
        keys: the keys.
        first: index of the first row that has each.
    """

    keys: pa.Array
    first: Numbers

    @classmethod
    def of(cls, keys: pa.Array, wanted: Flags) -> _Distinct:
        """Return the keys of the rows that are wanted; none of them is null."""
        rows = np.flatnonzero(wanted)
        encoded = pc.dictionary_encode(keys.take(pa.array(rows)))
        first = rows[np.unique(encoded.indices.to_numpy(zero_copy_only=False), return_index=True)[1]]
        order = pc.array_sort_indices(encoded.dictionary)
        return cls(encoded.dictionary.take(order), first[order.to_numpy(zero_copy_only=False)])

    def filter(self, kept: Flags) -> _Distinct:
        return _Distinct(self.keys.filter(pa.array(kept)), self.first[kept])


class _TaskDeduplication:
    """One task's share of a leg."""

    def __init__(self, spec: Deduplicate, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        self._rows = pa.Table.from_batches(batches, spec.input if not batches else None).combine_chunks()
        self._first = np.empty(0, dtype=np.int64)

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the output rows, in their order."""
        del store
        if len(self._first):
            chosen = pa.array(np.sort(self._first))
            columns = (whole(self._rows.column(name)).take(chosen) for name in self._spec.output.names)
            yield laid_out(columns, self._spec.output)

    def operate(self, view: StoreView) -> Changes:
        """Choose the output rows, and remember their keys."""
        spec, rows = self._spec, self._rows
        keys = key_bytes([whole(rows.column(name)) for name in spec.keys]).cast(pa.binary())
        wanted = keys.is_valid().to_numpy(zero_copy_only=False)
        if not spec.sources:
            return self._new_ones(view, _Distinct.of(keys, wanted))
        times_us, timed = event_times(rows)
        late = wanted & timed & too_late(times_us, view.watermark)
        watermark = watermark_with(spec, view, self.task, rows, int(late.sum()))
        wanted = wanted & ~late
        if spec.within:
            return self._within(view, _Distinct.of(keys, wanted & timed), times_us, wanted & ~timed, watermark)
        distinct = _Distinct.of(keys, wanted)
        ends = np.where(timed, times_us // 1000 + 1, NEVER)[distinct.first]
        return self._new_ones(view, distinct, ends, watermark)

    def _new_ones(
        self, view: StoreView, distinct: _Distinct, ends: Numbers | None = None, watermark: Watermark | None = None
    ) -> Changes:
        """Remember keys that are not in the store until ``ends``, or forever."""
        count = len(distinct.keys)
        stored = distinct.keys if ends is None else window_keys(ends, distinct.keys)
        values = pa.repeat(_NOTHING, count) if ends is None else big_endian(ends)
        ordered = SortedKeys.of(stored)
        new = ordered.as_given(view.get(ordered.keys)).is_null().to_numpy(zero_copy_only=False)
        self._first = distinct.first[new]
        if ends is not None and watermark is not None:
            new = new & (ends > watermark.ms)
        stored, values = stored.filter(pa.array(new)), values.filter(pa.array(new))
        return Changes(stored, pa.nulls(len(stored), pa.binary()), values, watermark, ordered=SortedKeys.of(stored))

    def _within(
        self, view: StoreView, distinct: _Distinct, times_us: Numbers, untimed: Flags, watermark: Watermark
    ) -> Changes:
        """Remember new keys, each until its first row's time plus the delay."""
        delay_ms = self._spec.delay_ms
        buckets = view.ends()
        new = distinct.filter(~remembered(view, distinct.keys, buckets))
        self._first = np.concatenate([new.first, np.flatnonzero(untimed)])
        ends = (np.minimum(times_us[new.first], _LATEST_US - delay_ms * 1000) + delay_ms * 1000) // 1000 + 1
        # Keys that expire with this batch would not be found in the next one.
        lasting = ends > watermark.ms
        new, ends = new.filter(lasting), ends[lasting]
        now_ms = watermark.ms
        if now_ms == NO_TIME:
            now_ms = min([*buckets[:1], *ends.tolist()], default=0) - delay_ms
        keys = window_keys(wide_ends(ends, now_ms, delay_ms), new.keys)
        return Changes.of(view, keys, big_endian(ends), watermark)
