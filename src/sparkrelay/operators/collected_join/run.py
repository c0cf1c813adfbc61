"""The join of a stream's rows with what was collected of a DataFrame: PySpark's, on Arrow's columns.

A row finds the DataFrame's rows of its key, in their order there, and stays where it is among the stream's. As in SQL a
null in a key is equal to nothing; as in Spark ``-0.0`` is ``0.0`` and every NaN the same one, which is how keys are
written (``records/keys.py``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out, spans, whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark import Broadcast

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

__all__ = ["CollectedIndex", "CollectedJoinRunner", "join_rows"]

#: Of one batch of rows that go on. A column of one array holds 2 GiB at most, and a key may find many rows.
_MOST_BYTES: Final = 64 << 20
_MOST_ROWS: Final = 1 << 20
#: DataFrames whose rows a worker keeps. It may serve several pipelines one after the other.
_MOST_FRAMES: Final = 16
#: murmur2 is cut to the number of partitions: this leaves all of its 31 bits.
_HASHES: Final = (1 << 31) - 1

#: Number of a DataFrame -> its newest version here, and the index of that.
_indexes: OrderedDict[int, tuple[bytes, CollectedIndex]] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedJoinRunner:
    """How a leg's rows are joined with what was collected of a DataFrame.

    Attributes:
        frame: number of the DataFrame, of which a worker keeps one version.
        version: digest of its rows.
        rows: the rows as an Arrow IPC stream: the key's columns, then those that it gives.
        keys: names of the stream's columns that make the key, in order.
        given: names of the DataFrame's columns behind its key.
        how: ``inner`` leaves rows out that find nothing, ``left`` gives them nulls.
        tombstones_pass: True in front of a table of newest rows: a deletion goes on whatever it finds.
        output: Arrow schema of the rows that leave the step.
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
        """Yield the rows with the DataFrame's columns behind theirs, once for each of its rows that has their key."""
        # Before there are rows: a prewarm has none.
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
    """The rows of a DataFrame by their keys, which are found by their hashes among sorted ones.

    It costs some 40 bytes a row and its key beside the rows. Refused: a dict of keys, which costs more than 100; and
    Arrow's own ``index_in``, which makes its table of hashes anew for each batch.

    Attributes:
        columns: what the DataFrame gives.
        rows: its rows, key by key, each key's in their order, and behind them -1.
        counts: how many rows each key has, and behind them 0, for rows that find none.
        starts: the first place in ``rows`` of each key, and behind them that of the -1.
        sizes: bytes of a row of each, about, and behind them 0.
    """

    def __init__(self, table: pa.Table, keys: int) -> None:
        """Take a table of which the first ``keys`` columns are the key."""
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
        """Return which key each row of key columns has, as its place here; -1 for none."""
        keys = _bytes(columns)
        hashes = murmur2_partitions(keys, _HASHES)
        at = np.searchsorted(self._hashes, hashes)
        found = np.full(len(keys), -1, np.int64)
        left = np.flatnonzero(_without_null(columns))
        while len(left):
            # Those whose hash is there; another key may have it too, which then stands beside.
            left = left[at[left] < len(self._hashes)]
            left = left[self._hashes[at[left]] == hashes[left]]
            same = pc.equal(keys.take(pa.array(left)), self._keys.take(pa.array(at[left])))
            equal = same.to_numpy(zero_copy_only=False).astype(bool)
            found[left[equal]] = at[left[equal]]
            left = left[~equal]
            at[left] += 1
        return found


def join_rows(spec: CollectedJoinRunner, index: CollectedIndex, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield what becomes of a batch of the stream's rows; batches are bounded in size."""
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
    """Lay rows and what they have found out as they leave the step; -1 stands for nothing."""
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
    """Return the bytes of each row, of columns that nest others their mean."""
    sizes = np.zeros(rows)
    for column in columns:
        if any(test(column.type) for test in (pa.types.is_string, pa.types.is_binary)):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        else:
            sizes += column.nbytes / max(1, rows)
    return sizes
