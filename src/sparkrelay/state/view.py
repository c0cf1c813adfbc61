"""An operator's view of a store within a batch's transaction, and its answer: the changes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.state.byte_arrays import equal
from sparkrelay.state.lmdb import rows
from sparkrelay.state.lmdb.ranges import TableView
from sparkrelay.state.lmdb.rows import SortedKeys
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sparkrelay.state.batch import MergeResult, Watermark
    from sparkrelay.state.header import TaskHeader
    from sparkrelay.state.lmdb.table import Table

#: Bytes of old values in memory at a time.
_UNDO_BYTES: Final = 32 << 20
#: Greater than any key that is stored.
_BEYOND: Final = b"\xff" * 512


class StoreView(TableView):
    """A store at a leg's turn in a batch; valid within the transaction.

    Attributes:
        watermark: the store's before the batch, in milliseconds since 1970.
        sources: source topic -> its watermark, including what earlier legs of the batch have read.
        sources_read: the source topics of which earlier legs of the batch had rows.
    """

    def __init__(self, transaction: Any, table: Table, header: TaskHeader, store: str) -> None:
        super().__init__(transaction, table)
        self.watermark = header.watermarks.get(store, NO_TIME)
        # All journals are of this batch and this attempt.
        self.sources = header.sources_of(store)
        self.sources_read = frozenset[str]().union(*(entry.sources_read for entry in header.shares(store)))

    def get(self, keys: pa.Array) -> pa.Array:
        """Return the value of each key, null where there is none."""
        return rows.get(self._transaction, self._table, rows.as_binary(keys))

    def all(self) -> pa.RecordBatch:
        """Return ``key, value`` of all rows."""
        return self.between(b"", _BEYOND)

    def has(self, keys: pa.Array) -> pa.Array:
        """Return whether each key has a value."""
        return rows.has(self._transaction, self._table, keys)

    def ends(self) -> list[int]:
        """Return the distinct ends of windows that keys begin with, without those that are over."""
        return list(self.ends_after(self.watermark))


@dataclass(frozen=True, slots=True)
class Changes:
    """An operator's changes to a store.

    Attributes:
        keys: distinct keys.
        old: their present values, null where there is none; None if unread, as where there may be many.
        new: their new values; null deletes.
        watermark: with the batch, of a store whose rows end.
        emitted: rows to emit, for :class:`~sparkrelay.state.batch.Applied`.
        beside: by name, rows for other legs of the batch, which find them in the journal.
        ordered: the keys in LMDB's order.
        rows_late: of a store without a watermark: the number of late rows in the batch.
    """

    keys: pa.Array
    old: pa.Array | None
    new: pa.Array
    watermark: Watermark | None
    emitted: pa.RecordBatch | None = None
    beside: Mapping[str, pa.RecordBatch] = field(default_factory=dict)
    ordered: SortedKeys = field(default_factory=lambda: SortedKeys(pa.array([], pa.binary())))
    rows_late: int = 0

    def undo(self, transaction: Any, table: Table) -> Iterator[pa.RecordBatch]:
        """Yield ``key, old``, some at a time; to be read before the store is changed."""
        keys, old = (self.keys, self.old) if self.old is not None else (self.ordered.keys, None)
        start = 0
        while start < len(keys) or not start:
            some = rows.get_some(transaction, table, keys[start:], _UNDO_BYTES) if old is None else old
            yield pa.record_batch([keys[start : start + len(some)], some], ["key", "old"])
            start += max(1, len(some))

    def parts(self, most_keys: int, most_bytes: int) -> list[Changes]:
        """Return the changes in the store's order, in parts; the last one has ``beside``."""
        ordered, size = self.ordered, self.new.nbytes + (0 if self.old is None else self.old.nbytes)
        step = max(1, min(most_keys, most_bytes * len(self.keys) // (size + 1)))
        keys, new = ordered.keys, ordered.as_stored(self.new)
        old = None if self.old is None else ordered.as_stored(self.old)
        parts = [
            Changes(
                some := keys[start : start + step],
                None if old is None else old[start : start + step],
                new[start : start + step],
                None,
                ordered=SortedKeys(some),
            )
            for start in range(0, max(1, len(keys)), step)
        ]
        parts[-1] = replace(parts[-1], beside=self.beside)
        return parts

    @classmethod
    def of(cls, view: StoreView, keys: pa.Array, new: pa.Array, watermark: Watermark | None) -> Changes:
        """Return the changes that put values under keys without reading the old ones; missing keys are not deleted."""
        if new.null_count:
            kept = new.is_valid().to_numpy(zero_copy_only=False).copy()
            kept[~kept] = view.has(keys.filter(pa.array(~kept))).to_numpy(zero_copy_only=False)
            if not kept.all():
                keys, new = keys.filter(pa.array(kept)), new.filter(pa.array(kept))
        return cls(keys, None, new, watermark, ordered=SortedKeys.of(keys))

    @classmethod
    def moved(cls, view: StoreView, keys: pa.Array, new: pa.Array, watermark: Watermark | None) -> Changes:
        """Return the changes that put values under keys, without those that are equal already."""
        old = view.get(keys)
        real = pc.invert(equal(old, new))
        keys, old, new = keys.filter(real), old.filter(real), new.filter(real)
        return cls(keys, old, new, watermark, ordered=SortedKeys.of(keys))


def merging(
    store: str, keys: pa.Array, merge: Callable[[pa.Array], MergeResult], watermark: Watermark | None = None
) -> Callable[[StoreView], Changes]:
    """Return the operator that merges a batch into the values of distinct keys, for :meth:`TaskStore.change_batch`.

    Args:
        store: the store's name.
        keys: distinct and not null; fastest in the order of bytes.
        merge: old values (null where missing, in the order of ``keys``) -> new values and rows to emit.
        watermark: with the batch, of a store whose windows end. Windows that expired before the batch, by a committed
            watermark, are removed gradually, and undoing does not restore them.

    Raises:
        StateStoreException: a key is null or repeated.
    """
    keys = rows.as_binary(keys)
    ordered = SortedKeys.of(keys)

    def merged(view: StoreView) -> Changes:
        old = ordered.as_given(view.get(ordered.keys))
        result = merge(old)
        new = rows.as_binary(result.new)
        if len(new) != len(keys):
            raise StateStoreException(f"merging {len(keys)} keys of store {store!r} gave {len(new)} values")
        return Changes(keys, old, new, watermark, result.emitted, result.beside, ordered)

    return merged
