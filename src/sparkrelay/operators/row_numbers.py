"""Numbering of rows by the key, session or place that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.keys import key_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]


def numbered(keys: pa.Table) -> tuple[Numbers, Numbers]:
    """Return the number of each row's key, and the first row of each key."""
    indexed = keys.append_column("row", pa.array(np.arange(keys.num_rows)))
    grouped = indexed.group_by(keys.column_names, use_threads=False).aggregate([("row", "list")])
    rows = grouped.column("row_list").combine_chunks()
    rows = rows if isinstance(rows, pa.Array) else pa.concat_arrays(rows.chunks)
    which = np.empty(keys.num_rows, dtype=np.int64)
    members = rows.flatten().to_numpy()
    counts = np.diff(rows.offsets.to_numpy())
    which[members] = np.repeat(np.arange(len(counts)), counts)
    firsts = np.full(len(counts), keys.num_rows, dtype=np.int64)
    np.minimum.at(firsts, which, np.arange(keys.num_rows))
    return which, firsts


def numbered_by_key(columns: Sequence[pa.Array]) -> tuple[pa.Array, Numbers]:
    """Return the message keys of rows, and the number of each one's key. Null is numbered like any other key."""
    keys = key_bytes(columns).cast(pa.binary())
    encoded = pc.dictionary_encode(keys, null_encoding="encode")
    return keys, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def places(which: Numbers) -> Numbers:
    """Return the place of each row among the rows of its key, from 0. Rows must be sorted by key."""
    starts = np.flatnonzero(np.r_[True, which[1:] != which[:-1]]) if len(which) else np.zeros(0, dtype=np.int64)
    return np.arange(len(which)) - np.repeat(starts, np.diff(np.r_[starts, len(which)]))


def by_number(values: pa.Array, numbers: Numbers, count: int) -> pa.Array:
    """Return an array of ``count`` values, each at its number; null at unused numbers."""
    at = np.full(count, -1, dtype=np.int64)
    at[numbers] = np.arange(len(values))
    return values.take(pa.array(at, mask=at < 0))
