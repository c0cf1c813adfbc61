"""Rows that need not go through a repartition topic: others of their micro-batch have beaten them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.ranking.row_order import RowOrder
from sparkrelay.operators.row_numbers import numbered_by_key
from sparkrelay.operators.watermarks import event_times_ms
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import whole

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.runtime.contract.specs import PublishSpec

__all__ = ["without_beaten"]


def without_beaten(spec: PublishSpec, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return those of one task's rows that may be among the first ones behind a repartition topic.

    What is beaten by as many rows of its own micro-batch as are kept need not go there, but for the newest row of each
    key where a watermark goes by it: the clock there is to see it. Tombstones are no rows.
    """
    assert spec.ranking is not None, "nothing is ranked behind the topic"
    alive = np.arange(rows.num_rows)
    if hidden_columns.TOMBSTONE in rows.schema.names:
        dead = pc.fill_null(rows.column(hidden_columns.TOMBSTONE), False).to_numpy(zero_copy_only=False)
        alive = np.flatnonzero(~dead)
    if len(alive) < 2:
        return rows
    columns = pa.table({name: rows.column(name) for name in {*spec.ranked_by, *(n for n, *_ in spec.ranking.order)}})
    some = columns.take(pa.array(alive)) if len(alive) < rows.num_rows else columns
    _, which = numbered_by_key([whole(some.column(name)) for name in spec.ranked_by])
    kept = np.ones(rows.num_rows, dtype=np.bool_)
    kept[alive] = False
    kept[alive[RowOrder(spec.ranking).best(some, which)]] = True
    if spec.event_time is not None:
        newest = _newest(rows.column(spec.event_time).take(pa.array(alive)), which, spec.ahead_ms)
        kept[alive[newest]] = True
    return rows if kept.all() else rows.filter(pa.array(kept))


def _newest(column: pa.Array, which: NDArray[np.int64], ahead_ms: int) -> NDArray[np.int64]:
    """Return the rows with the newest event time of each key that moves a watermark."""
    there = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
    times = event_times_ms(column)
    counts = times <= time.time() * 1000 + ahead_ms
    there, times = there[counts], times[counts]
    if not len(there):
        return there
    newest = np.full(int(which.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(newest, which[there], times)
    at = there[times == newest[which[there]]]
    # Of those that are equally new one does.
    _, firsts = np.unique(which[at], return_index=True)
    found: NDArray[np.int64] = at[firsts]
    return found
