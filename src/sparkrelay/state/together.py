"""Merging a micro-batch into the stores of many tasks at once.

Each Arrow call has a fixed cost of some microseconds, which dominates micro-batches with few rows per task. So the old
values of all tasks are read first, each in its own store's write transaction, then merged at once, and written. Unusual
cases (a closed store, a repeated batch, a full map, damage, a batch that does not fit) are left to
:meth:`TaskStore.change_batch`, store by store.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SparkRelayError
from sparkrelay.records.arrow_buffers import offsets_of
from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.environment import UnfinishedError
from sparkrelay.state.lmdb.rows import SortedKeys
from sparkrelay.state.lmdb.running_sum import Change
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.batch import Applied, BatchStamp, Watermark
    from sparkrelay.state.lmdb.table import Table
    from sparkrelay.state.store import TaskStore, Turn

#: Larger batches are merged store by store, which frees memory in between.
_MOST_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class TaskShare:
    """A leg's share of one task's batch.

    Attributes:
        store: the task's state.
        batch: the driver's stamp.
        keys: distinct keys in LMDB's order, bytes.
        watermark: with the batch, of a store whose windows end.
    """

    store: TaskStore
    batch: BatchStamp
    keys: pa.Array
    watermark: Watermark | None


def merge_together(
    leg: str, name: str, shares: Sequence[TaskShare], merge: Callable[[pa.Array], pa.Array]
) -> list[Applied | None] | None:
    """Merge a leg's shares of several tasks' batches into their stores of one name.

    Args:
        leg: the leg's id.
        name: the stores' name.
        shares: of the tasks, in the same order in every process, which prevents deadlocks.
        merge: old values of all keys, null where missing -> new ones in the same order; null deletes.

    Returns:
        The effect on each store, None where there was none, or None for all: those stores must be changed one by one.
    """
    keys = pa.concat_arrays([share.keys for share in shares])
    if rows.may_be_spelt(keys) or any(share.batch.tries > 1 for share in shares) or keys.nbytes > _MOST_BYTES:
        return None
    names, ends = keys.to_pylist(), np.cumsum([len(share.keys) for share in shares]).tolist()
    spans = list(zip([0, *ends], ends, strict=False))
    with ExitStack() as open_:
        try:
            turns = []
            for share in shares:
                turn = share.store.turn(open_, leg, name, share.batch)
                if turn is None:
                    return None
                turns.append(turn)
            table = turns[0].table
            sealed = pa.array(
                [value for turn, span in zip(turns, spans, strict=True) for value in _read(turn, names[slice(*span)])],
                pa.binary(),
            )
            old = table.unseal_all(keys, sealed)
            new = rows.as_binary(merge(old))
        except (UnfinishedError, SparkRelayError):
            # Changing them one by one shows which store it is.
            return None
        written = _Written.of(table, keys, names, sealed, old, new)
        return [_finished(turn, share, written, *span) for turn, share, span in zip(turns, shares, spans, strict=True)]


def _read(turn: Turn, names: list[bytes]) -> list[bytes | None]:
    with turn.begun as transaction, transaction.cursor(db=turn.table.handle) as cursor:
        return rows.stored(cursor, names)


def _finished(turn: Turn, share: TaskShare, written: _Written, first: int, end: int) -> Applied | None:
    """Write one store's part and commit; return None if LMDB cannot."""
    keys, old, new = (column.slice(first, end - first) for column in (written.keys, written.old, written.new))

    def put(transaction: Any) -> Change:
        with transaction.cursor(db=turn.table.handle) as cursor:
            rows.write(transaction, turn.table, cursor, written.names[first:end], written.sealed[first:end])
        return written.change(first, end, turn.passed)

    try:
        return turn.finish(Changes(keys, old, new, share.watermark, ordered=SortedKeys(keys)), put)
    except UnfinishedError:
        return None


@dataclass(frozen=True, slots=True)
class _Written:
    """The writes to all stores, in sequence."""

    keys: pa.Array
    names: list[bytes]
    old: pa.Array
    new: pa.Array
    sealed: list[bytes | None]
    #: Cumulative changes of the row count and of the running sum, before each key and after the last.
    counts: NDArray[np.int64]
    sums: NDArray[np.int64]

    @classmethod
    def of(  # noqa: PLR0917 - all of one batch
        cls, table: Table, keys: pa.Array, names: list[bytes], before: pa.Array, old: pa.Array, new: pa.Array
    ) -> _Written:
        sealed, sums = table.seal_all(keys, new)
        added = sums.astype(np.int64)
        there = before.is_valid().to_numpy(zero_copy_only=False)
        if before.null_count < len(before):
            added[there] -= table.checksums_behind(before.drop_null())
        counts = new.is_valid().to_numpy(zero_copy_only=False).astype(np.int64) - there
        return cls(keys, names, old, new, sealed.to_pylist(), offsets_of(counts), offsets_of(added))

    def change(self, first: int, end: int, passed: bytes) -> Change:
        """Return the effect on one store; ``passed`` is the last key that a scrub has passed."""
        at = bisect_right(self.names, passed, first, end) if passed else first
        return Change(
            int(self.counts[end] - self.counts[first]),
            int(self.sums[end] - self.sums[first]),
            int(self.sums[at] - self.sums[first]),
        )
