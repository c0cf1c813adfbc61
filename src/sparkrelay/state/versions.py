"""The store of a table with a history: for each key the rows that it had, by the times from which on they were valid.

::

    00                                            ->   stream time, 8 | what it was before, 8 | batch, 8
    01 | due, 8 | length, 2 | key                 ->   nothing
    02 | length, 2 | key | time, inverted, 8      ->   the row; nothing where it was deleted

So the rows of a key lie together with the newest one first, and what was valid at some time is the first one from there
on: one seek, as is the newest row. The stream time is the newest timestamp that the table has had, but for those far
ahead of the clock; what was valid before the history, counted back from there, nobody finds any more (KIP-889), but for
the newest row of a key, which stays for ever.

What is to be removed is found by the second kind. Whoever gives a key a further row notes when all rows before it, and
all before the newest one, are out of the history. Notes are put off to the ends of equal spans of time, so a key that
changes all the time has one note for each, and each row of it is removed some time between one and two histories after
it has had a successor. All are plain entries: journals, changelogs, restores and standbys know nothing of them.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.state.byte_arrays import big_endian, buffers, drop_first, read_big_endian, side_by_side
from sparkrelay.state.join_rows import LONGEST_KEY
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = [
    "CLOCK",
    "DELETED",
    "NEVER",
    "VERSIONS",
    "as_of",
    "clock",
    "clock_value",
    "deletable",
    "due_keys",
    "key_part",
    "newest",
    "plain_keys",
    "version_keys",
]

#: Where the stream time stands.
CLOCK: Final = b"\x00"
#: What stands for a row that was deleted.
DELETED: Final = b""
#: What the keys of rows begin with, and those behind all of them.
VERSIONS: Final = (b"\x02", b"\x03")
#: Before every time of a row: that of a key which has none.
NEVER: Final = np.iinfo(np.int64).min
_DUE: Final = b"\x01"
_TIME: Final = 8
#: Behind all times of a key.
_BEHIND: Final = b"\xff" * (_TIME + 1)
_CLOCK: Final = struct.Struct("<qqq")
_SHORTEST_SPAN_MS: Final = 1000
#: Keys and times that are looked for at once: all may find the same row, which may be large.
_AT_A_TIME: Final = 2_000


def clock(view: StoreView, batch: int | None = None) -> int:
    """Return the stream time; ``NO_TIME`` where there is none yet.

    Args:
        view: of the store.
        batch: number of a micro-batch, to have what it was before that one, which is the latest; None for now.
    """
    (value,) = view.get(pa.array([CLOCK], pa.binary())).to_pylist()
    if value is None:
        return NO_TIME
    now, before, moved = _CLOCK.unpack(value)
    return int(before if moved == batch else now)


def clock_value(now_ms: int, before_ms: int, batch: int) -> bytes:
    """Return how the stream time is written, with what it was before the micro-batch that has moved it."""
    return _CLOCK.pack(now_ms, before_ms, batch)


def version_keys(parts: pa.Array, times: Numbers) -> pa.Array:
    """Return where rows stand: of keys as ``key_parts`` has them, valid from these times on, ms since 1970."""
    return side_by_side(pa.scalar(VERSIONS[0], pa.binary()), parts, big_endian(-1 - times))


def newest(view: StoreView, parts: pa.Array) -> tuple[Numbers, pa.Array]:
    """Return since when the newest row of each key is valid, and the row; ``NEVER`` and null where there is none.

    A deleted row is one here, ``DELETED``.
    """
    starts = side_by_side(pa.scalar(VERSIONS[0], pa.binary()), parts)
    order = pc.array_sort_indices(starts)
    keys, values = view.firsts(starts.take(order).to_pylist(), _stops(parts.take(order)))
    back = np.empty(len(order), dtype=np.int64)
    back[order.to_numpy(zero_copy_only=False).astype(np.int64)] = np.arange(len(order))
    times = np.full(len(order), NEVER, dtype=np.int64)
    times[keys.is_valid().to_numpy(zero_copy_only=False)] = _times(keys.drop_null())
    return times[back], values.take(pa.array(back))


def as_of(view: StoreView, parts: pa.Array, times: Numbers, history_ms: int, batch: int) -> pa.DictionaryArray:
    """Return the row of each key that was valid at a time; null where there was none, or it is too long ago.

    A row that is found at several times stands in the dictionary once, or a few times.

    Of a time that the history does not reach any more the row is known only if it is the newest. How far it reaches is
    counted from before the micro-batch: one that brings a large part of a topic does not hide from the rows that came
    with it what they would have found one by one.

    Args:
        view: of the store.
        parts: keys, as ``key_parts`` has them; one may come several times.
        times: milliseconds since 1970.
        history_ms: how long the history is.
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
    """Return the notes that rows of keys are to be looked at when all but the newest are out of the history."""
    span = max(history_ms, _SHORTEST_SPAN_MS)
    due = -(-(newest_times + history_ms) // span) * span
    return side_by_side(pa.scalar(_DUE, pa.binary()), big_endian(due), parts)


def deletable(view: StoreView, now_ms: int, history_ms: int, most: int) -> tuple[pa.Array, pa.Array]:
    """Return the notes that are due, and where the rows stand that go with them.

    Args:
        view: of the store.
        now_ms: the stream time. No later row may be older than the history from here.
        history_ms: how long that is.
        most: how many notes at once.
    """
    stop = _DUE + big_endian(np.array([now_ms + 1]))[0].as_py()
    notes = view.between(_DUE, stop, most).column("key")
    parts = pc.unique(drop_first(notes, 1 + _TIME)).sort()
    starts = version_keys(parts, np.full(len(parts), now_ms - history_ms, dtype=np.int64))
    # A key may have had more of them than fits into memory.
    which, keys, lengths, _ = view.found_in(starts.to_pylist(), _stops(parts), most_bytes=0)
    # The first one is still valid when the history begins. If it says that there is none, nothing says the same.
    first = np.r_[True, np.diff(which) != 0][: len(which)]
    gone = ~first | (lengths == len(DELETED))
    return notes, keys.filter(pa.array(gone))


def key_part(key: bytes) -> bytes:
    """Return which key a row stands under."""
    return key[1:-_TIME]


def plain_keys(keys: pa.Array) -> pa.Array:
    """Return the keys as they are, of the keys under which rows stand; null for those that stand there as a digest."""
    plain = []
    for key in keys.to_pylist():
        length = int.from_bytes(key[1:3], "big")
        plain.append(key[3:-_TIME] if length <= LONGEST_KEY else None)
    return pa.array(plain, pa.binary())


def _times(keys: pa.Array) -> Numbers:
    """Return since when the rows that stand under these keys are valid."""
    offsets, data = buffers(keys)
    return -1 - read_big_endian(data, offsets[1:] - _TIME)


def _stops(parts: pa.Array) -> list[bytes]:
    stops: list[bytes] = side_by_side(
        pa.scalar(VERSIONS[0], pa.binary()), parts, pa.scalar(_BEHIND, pa.binary())
    ).to_pylist()
    return stops
