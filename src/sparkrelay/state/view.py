"""What an operator sees of a store within a batch's transaction, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StateStoreException
from sparkrelay.state.byte_arrays import equal
from sparkrelay.state.lmdb import ranges, rows
from sparkrelay.state.lmdb.rows import SortedKeys
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from sparkrelay.state.batch import MergeResult, Watermark
    from sparkrelay.state.header import TaskHeader
    from sparkrelay.state.lmdb.table import Table

__all__ = ["Changes", "StoreView", "merging"]

#: Bytes of old values that are in memory at a time.
_UNDO_BYTES: Final = 32 << 20


class StoreView:
    """A store as it is when a leg's turn in a batch has come; not to be used when the transaction is over."""

    def __init__(self, transaction: Any, table: Table, header: TaskHeader, store: str) -> None:
        self._transaction = transaction
        self._table = table
        # What is journalled by now is of this batch and this try.
        beside = [entry for entry in header.journals if entry.store == store]
        #: The store's watermark before the batch, in milliseconds since 1970.
        self.watermark = header.watermarks.get(store, NO_TIME)
        #: Source -> its watermark, with what earlier legs of the batch have read.
        self.sources: Mapping[str, int] = beside[-1].sources if beside else header.sources.get(store, {})
        #: The source topics of which earlier legs of the batch had rows.
        self.sources_read = frozenset[str]().union(*(entry.sources_read for entry in beside))

    def get(self, keys: pa.Array) -> pa.Array:
        """Return the value of each key, null where there is none."""
        return rows.get(self._transaction, self._table, keys)

    def has(self, keys: pa.Array) -> pa.Array:
        """Return whether each key has a value."""
        return rows.has(self._transaction, self._table, keys)

    def between(self, first: bytes, stop: bytes, most: int | None = None) -> pa.RecordBatch:
        """Return ``key, value`` of the keys in ``[first, stop)``, bounds with which keys begin; the first ``most``."""
        return ranges.between(self._transaction, self._table, first, stop, most)

    def ends(self) -> list[int]:
        """Return the ends that keys begin with, of a store whose rows end, each once; but for those that are over."""
        return list(ranges.ends(self._transaction, self._table, self.watermark))

    def firsts(self, starts: Iterable[bytes], stops: Iterable[bytes]) -> tuple[pa.Array, pa.Array]:
        """Return the first key of each range ``[start, stop)`` and its value, null where nothing lies in it.

        Neither empty nor long keys (``long_keys``) may lie there.
        """
        return ranges.firsts(self._transaction, self._table, starts, stops)

    def ranges(self, starts: Iterable[bytes], stops: Iterable[bytes]) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
        """Return what lies in ranges of keys ``[start, stop)``: the number of each key's range, the keys, the values.

        Fastest where ranges come in the order of bytes. None of the keys may be empty, none of the bounds a long one
        (``long_keys``); long keys that begin with the same bytes come in no order.
        """
        return ranges.ranges(self._transaction, self._table, starts, stops)

    def any_in(self, starts: Iterable[bytes], stops: Iterable[bytes]) -> NDArray[np.bool_]:
        """Return whether anything lies in each range of keys ``[start, stop)``; else as :meth:`firsts`."""
        return ranges.any_in(self._transaction, self._table, starts, stops)

    def found_in(
        self, starts: Iterable[bytes], stops: Iterable[bytes], most_bytes: int
    ) -> tuple[NDArray[np.int64], pa.Array, NDArray[np.int64], pa.Array | None]:
        """Return what lies in ranges of keys, without the values if these come to more than that.

        The number of each key's range, the keys, how long their values are, and these; else as :meth:`ranges`.
        """
        return ranges.found_in(self._transaction, self._table, starts, stops, most_bytes)


@dataclass(frozen=True, slots=True)
class Changes:
    """What an operator makes of a store.

    Attributes:
        keys: distinct keys.
        old: the value that each of them has, null where it has none; None if nobody has read them, who may be many.
        new: the one that it is to have; null deletes.
        watermark: of a store whose rows end: what it is with the batch.
        emitted: rows to send on, if they are to be found in :class:`~sparkrelay.state.batch.Applied`.
        beside: by name, rows for other legs of the batch, which find them in the journal.
        ordered: the keys in LMDB's order.
        rows_late: of a store without a watermark: how many rows of the batch came too late for it.
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
        """Yield ``key, old``, some at a time; to be taken before the store is changed."""
        keys, old = (self.keys, self.old) if self.old is not None else (self.ordered.keys, None)
        start = 0
        while start < len(keys) or not start:
            some = rows.get_some(transaction, table, keys[start:], _UNDO_BYTES) if old is None else old
            yield pa.record_batch([keys[start : start + len(some)], some], ["key", "old"])
            start += max(1, len(some))

    def parts(self, most_keys: int, most_bytes: int) -> list[Changes]:
        """Return the changes in the order of the store, in parts; all that is beside them is with the last one."""
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
        """Return the changes that put values under keys, whatever there is; a key that has none is not deleted."""
        if new.null_count:
            kept = new.is_valid().to_numpy(zero_copy_only=False).copy()
            kept[~kept] = view.has(keys.filter(pa.array(~kept))).to_numpy(zero_copy_only=False)
            if not kept.all():
                keys, new = keys.filter(pa.array(kept)), new.filter(pa.array(kept))
        return cls(keys, None, new, watermark, ordered=SortedKeys.of(keys))

    @classmethod
    def moved(cls, view: StoreView, keys: pa.Array, new: pa.Array, watermark: Watermark | None) -> Changes:
        """Return the changes that put values under keys; what is there as it is to be is left out."""
        old = view.get(keys)
        real = pc.invert(equal(old, new))
        keys, old, new = keys.filter(real), old.filter(real), new.filter(real)
        return cls(keys, old, new, watermark, ordered=SortedKeys.of(keys))


def merging(
    store: str, keys: pa.Array, merge: Callable[[pa.Array], MergeResult], watermark: Watermark | None
) -> Callable[[StoreView], Changes]:
    """Return the operator that merges something into the values of distinct keys.

    Args:
        store: the store's name, for errors.
        keys: which.
        merge: old values, null where missing, in the order of ``keys`` -> new ones, and rows to send on.
        watermark: of the store with the batch.

    Raises:
        StateStoreException: a key is null, or comes twice.
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
