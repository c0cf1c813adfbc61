"""The join of a stream with a collected DataFrame in workers: Spark's semantics, on Arrow columns.

Rows keep the order of the stream, and matches the order of the DataFrame. A null in a key matches nothing (SQL);
``-0.0`` equals ``0.0`` and NaN equals NaN (Spark), as in the encoding of keys (``records/keys.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.worker.context import laid_out, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark import Broadcast

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

#: Limits of an output batch: an Arrow column holds at most 2 GiB, and a key may match many rows.
_MOST_BYTES: Final = 64 << 20
_MOST_ROWS: Final = 1 << 20
#: Number of DataFrames that a worker caches. It may serve several pipelines in turn.
_MOST_FRAMES: Final = 16
#: murmur2 modulo this keeps all of its 31 bits.
_HASHES: Final = (1 << 31) - 1

#: Number of a DataFrame -> its cached version and index.
_indexes: OrderedDict[int, tuple[bytes, CollectedIndex]] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedJoinRunner:
    """Joins rows of a leg with a collected DataFrame.

    Attributes:
        frame: number of the DataFrame; a worker caches one version of it.
        version: digest of its rows.
        rows: its rows as an Arrow IPC stream, key columns first.
        keys: names of the stream's key columns, in order.
        given: names of the DataFrame's other columns.
        how: ``inner`` or ``left``.
        tombstones_pass: True upstream of a table of newest rows: tombstones pass without a match.
        output: Arrow schema of the output rows.
    """

    frame: int
    version: bytes
    rows: Broadcast[bytes]
    keys: tuple[str, ...]
    given: tuple[str, ...]
    how: str
    tombstones_pass: bool
    output: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield each row once for every matching row of the DataFrame, with its columns appended."""
        # Before the first row: a prewarm has no rows.
        index = _index(self)
        for rows in batches:
            yield from join_rows(self, index, rows)


def _index(spec: CollectedJoinRunner) -> CollectedIndex:
    version, index = _indexes.pop(spec.frame, (b"", None))
    if index is None or version != spec.version:
        index = CollectedIndex(pa.ipc.open_stream(spec.rows.value).read_all(), len(spec.keys))
    _indexes[spec.frame] = spec.version, index
    while len(_indexes) > _MOST_FRAMES:
        _indexes.popitem(last=False)
    return index


class CollectedIndex:
    """Index of a DataFrame's rows by key: a binary search over sorted hashes.

    It takes the keys and some 40 bytes a row. Rejected: a dict of keys (more than 100 bytes a row), and Arrow's
    ``index_in``, which builds its hash table for each batch.

    Attributes:
        columns: the DataFrame's columns without the key.
        rows: row numbers sorted by key, then -1.
        counts: number of rows of each key, then 0 for rows without a match.
        starts: first index into ``rows`` of each key, then that of the -1.
        sizes: approximate size of each row in bytes, then 0.
    """

    def __init__(self, table: pa.Table, keys: int) -> None:
        """Index a table whose first ``keys`` columns are the key."""
        columns = [whole(table.column(index)) for index in range(table.num_columns)]
        own = np.flatnonzero(_without_null(columns[:keys]))
        encoded = _bytes([column.take(pa.array(own)) for column in columns[:keys]]).dictionary_encode()
        hashes = murmur2_partitions(encoded.dictionary, _HASHES)
        order = np.argsort(hashes, kind="stable")
        places = np.empty(len(order), np.int64)
        places[order] = np.arange(len(order))
        of_rows = places[encoded.indices.to_numpy(zero_copy_only=False)]
        counts = np.bincount(of_rows, minlength=len(order))
        self._keys = encoded.dictionary.take(pa.array(order))
        self._hashes = hashes[order]
        self.columns = columns[keys:]
        self.rows = np.append(own[np.argsort(of_rows, kind="stable")], -1)
        self.counts = np.append(counts, 0)
        self.starts = np.append(np.cumsum(counts) - counts, len(own))
        self.sizes = np.append(_sizes(self.columns, table.num_rows), 0)

    def find(self, columns: Sequence[pa.Array]) -> Numbers:
        """Return the index of each row's key, or -1."""
        keys = _bytes(columns)
        hashes = murmur2_partitions(keys, _HASHES)
        at = np.searchsorted(self._hashes, hashes)
        found = np.full(len(keys), -1, np.int64)
        left = np.flatnonzero(_without_null(columns))
        while len(left):
            # Keys with equal hashes are adjacent.
            left = left[at[left] < len(self._hashes)]
            left = left[self._hashes[at[left]] == hashes[left]]
            same = pc.equal(keys.take(pa.array(left)), self._keys.take(pa.array(at[left])))
            equal = same.to_numpy(zero_copy_only=False).astype(bool)
            found[left[equal]] = at[left[equal]]
            left = left[~equal]
            at[left] += 1
        return found


def join_rows(spec: CollectedJoinRunner, index: CollectedIndex, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the joined rows of a batch, in batches of bounded size."""
    found = index.find([rows.column(name) for name in spec.keys])
    repeats = index.counts[found]
    if spec.how == "left":
        repeats = np.maximum(repeats, 1)
    elif spec.tombstones_pass:
        deletes = pc.fill_null(rows.column(hidden_columns.TOMBSTONE), False).to_numpy(zero_copy_only=False)
        repeats = np.where(deletes, np.maximum(repeats, 1), repeats)
    size = rows.nbytes / max(1, rows.num_rows)
    for start, end in spans(repeats, _MOST_ROWS):
        times = repeats[start:end]
        own = np.repeat(np.arange(start, end), times)
        behind = np.arange(len(own)) - np.repeat(np.cumsum(times) - times, times)
        taken = index.rows[index.starts[found[own]] + behind]
        for first, last in spans(index.sizes[taken] + size + 1, _MOST_BYTES):
            yield _beside(spec, index, rows, own[first:last], taken[first:last])


def _beside(
    spec: CollectedJoinRunner, index: CollectedIndex, rows: pa.RecordBatch, own: Numbers, taken: Numbers
) -> pa.RecordBatch:
    """Return output rows: ``own`` rows of the stream with ``taken`` rows of the DataFrame, -1 for nulls."""
    if len(own) != rows.num_rows or np.any(np.diff(own) != 1):
        rows = rows.take(pa.array(own))
    at = pa.array(taken, mask=taken < 0)
    given = {name: column.take(at) for name, column in zip(spec.given, index.columns, strict=True)}
    return laid_out((given[f.name] if f.name in given else rows.column(f.name) for f in spec.output), spec.output)


def _bytes(columns: Sequence[pa.Array]) -> pa.Array:
    return key_bytes(columns).cast(pa.large_binary())


def _without_null(columns: Sequence[pa.Array]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    valid = [column.is_valid().to_numpy(zero_copy_only=False) for column in columns]
    both: np.ndarray[Any, np.dtype[np.bool_]] = np.logical_and.reduce(valid)
    return both


def _sizes(columns: Sequence[pa.Array], rows: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the size of each row in bytes; nested columns count with their mean."""
    sizes = np.zeros(rows)
    for column in columns:
        if any(test(column.type) for test in (pa.types.is_string, pa.types.is_binary)):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        else:
            sizes += column.nbytes / max(1, rows)
    return sizes
