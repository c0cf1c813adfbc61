"""The store of a table with a history: each key's rows by the start of their validity.

::

    00                                            ->   stream time, 8 | the stream time before, 8 | batch, 8
    01 | due, 8 | key                             ->   empty
    02 | key | time, inverted, 8                  ->   the row; empty where it was deleted

Keys are written as ``key_parts``.

The rows of a key are adjacent, newest first, so finding the row that was valid at a time, or the newest one, is one
seek. The stream time is the table's newest timestamp, ignoring those far ahead of the clock. Rows that ended before the
history, counted back from there, are not found any more (KIP-889); the newest row of a key stays for ever.

The second kind schedules removal. A new row of a key adds a note of the time at which its predecessors are out of the
history. These times are rounded up to equal spans, so a frequently changed key has one note per span, and a row is
removed between one and two histories after it has had a successor. All are plain entries for journals, changelogs,
restores and standbys.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.state.byte_arrays import big_endian, buffers, drop_first, read_big_endian, side_by_side
from sparkrelay.state.key_parts import plain_key
from sparkrelay.state.lmdb.rows import way_back
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

#: Key of the stream time.
CLOCK: Final = b"\x00"
#: The value of a deleted row.
DELETED: Final = b""
#: The range of the keys of rows.
VERSIONS: Final = (b"\x02", b"\x03")
#: Earlier than any row; the time of a key without rows.
NEVER: Final = np.iinfo(np.int64).min
_DUE: Final = b"\x01"
_TIME: Final = 8
#: After all times of a key.
_BEHIND: Final = b"\xff" * (_TIME + 1)
_CLOCK: Final = struct.Struct("<qqq")
_SHORTEST_SPAN_MS: Final = 1000
#: Keys and times looked up at once: all may find the same row, which may be large.
_AT_A_TIME: Final = 2_000


def clock(view: StoreView, batch: int | None = None) -> int:
    """Return the stream time, or, with the number of the latest micro-batch, that before it; ``NO_TIME`` if none."""
    (value,) = view.get(pa.array([CLOCK], pa.binary())).to_pylist()
    if value is None:
        return NO_TIME
    now, before, moved = _CLOCK.unpack(value)
    return int(before if moved == batch else now)


def clock_value(now_ms: int, before_ms: int, batch: int) -> bytes:
    """Return the value of the stream time, with the one before the micro-batch that advanced it."""
    return _CLOCK.pack(now_ms, before_ms, batch)


def version_keys(parts: pa.Array, times: Numbers) -> pa.Array:
    """Return the keys of rows, of ``key_parts`` and the starts of their validity, ms since 1970."""
    return side_by_side(VERSIONS[0], parts, big_endian(-1 - times))


def newest(view: StoreView, parts: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return the start and the value (possibly ``DELETED``) of each key's newest row; ``NEVER`` and null if none."""
    starts = side_by_side(VERSIONS[0], parts)
    order = pc.array_sort_indices(starts)
    keys, values = view.firsts(starts.take(order).to_pylist(), _stops(parts.take(order)))
    back = way_back(order)
    times = np.full(len(order), NEVER, dtype=np.int64)
    times[keys.is_valid().to_numpy(zero_copy_only=False)] = _times(keys.drop_null())
    return times[back.to_numpy()], values.take(back)


def as_of(view: StoreView, parts: pa.Array, times: Numbers, history_ms: int, batch: int) -> pa.DictionaryArray:
    """Return the row of each key that was valid at a time; null where there was none, or it is too long ago.

    A row that is found repeatedly is in the dictionary once, or a few times.

    Before the history, only a newest row is found. The history is counted back from the stream time before the
    micro-batch, so that a large micro-batch finds what its rows would have found one by one.

    Args:
        view: of the store.
        parts: ``key_parts``, possibly repeated.
        times: milliseconds since 1970.
        history_ms: the length of the history.
        batch: number of the micro-batch.
    """
    gone = times < clock(view, batch) - history_ms
    latest = np.where(gone, np.iinfo(np.int64).max, times)
    starts = version_keys(parts, latest)
    order = pc.array_sort_indices(starts)
    at = order.to_numpy(zero_copy_only=False).astype(np.int64)
    begins, stops = starts.take(order).to_pylist(), _stops(parts.take(order))
    rows, count = [pa.array([], pa.binary())], 0
    which = np.full(len(at), -1, dtype=np.int32)
    for first in range(0, len(at), _AT_A_TIME):
        keys, values = view.firsts(begins[first : first + _AT_A_TIME], stops[first : first + _AT_A_TIME])
        encoded = keys.dictionary_encode()
        numbers = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
        distinct = values.take(pc.index_in(encoded.dictionary, value_set=keys))
        since = np.append(_times(encoded.dictionary), NEVER)[numbers]
        distinct = pc.if_else(pc.equal(distinct, DELETED), pa.scalar(None, pa.binary()), distinct)
        known = np.append(distinct.is_valid().to_numpy(zero_copy_only=False), False)[numbers]
        here = at[first : first + _AT_A_TIME]
        which[here] = np.where(known & (since <= times[here]), numbers + count, -1)
        rows.append(distinct)
        count += len(distinct)
    return pa.DictionaryArray.from_arrays(pa.array(which, mask=which < 0), pa.concat_arrays(rows))


def due_keys(parts: pa.Array, newest_times: Numbers, history_ms: int) -> pa.Array:
    """Return the keys of notes for the time at which all but the newest rows are out of the history."""
    span = max(history_ms, _SHORTEST_SPAN_MS)
    due = -(-(newest_times + history_ms) // span) * span
    return side_by_side(_DUE, big_endian(due), parts)


def deletable(view: StoreView, now_ms: int, history_ms: int, most: int) -> tuple[pa.Array, pa.Array]:
    """Return the keys of due notes, at most ``most``, and of the rows that can be removed with them.

    No row that is added later may be older than ``now_ms``, the stream time, minus ``history_ms``.
    """
    stop = _DUE + big_endian(np.array([now_ms + 1]))[0].as_py()
    notes = view.between(_DUE, stop, most).column("key")
    parts = pc.unique(drop_first(notes, 1 + _TIME)).sort()
    starts = version_keys(parts, np.full(len(parts), now_ms - history_ms, dtype=np.int64))
    # Without values: a key may have more rows than fit into memory.
    which, keys, lengths, _ = view.found_in(starts.to_pylist(), _stops(parts), most_bytes=0)
    # The first one is still valid when the history begins, but a deletion is as good as no row.
    first = np.r_[True, np.diff(which) != 0][: len(which)]
    gone = ~first | (lengths == len(DELETED))
    return notes, keys.filter(pa.array(gone))


def key_part(key: bytes) -> bytes:
    """Return the part of a row's key, as of ``key_parts``."""
    return key[1:-_TIME]


def plain_keys(keys: pa.Array) -> pa.Array:
    """Return the original keys of rows; null for digests."""
    return pa.array([plain_key(key_part(key)) for key in keys.to_pylist()], pa.binary())


def _times(keys: pa.Array) -> Numbers:
    """Return the starts of validity in the keys of rows."""
    offsets, data = buffers(keys)
    return -1 - read_big_endian(data, offsets[1:] - _TIME)


def _stops(parts: pa.Array) -> list[bytes]:
    stops: list[bytes] = side_by_side(VERSIONS[0], parts, _BEHIND).to_pylist()
    return stops
