"""The keys of a store that holds the rows of a join of two streams.

A row stands under the end of its *bucket*, its side, the join's key, its event time and its number::

    end of bucket, 8 bytes | side, 1 | length, 2 | key | event time, 8 | batch, 8 | index, 4

So what is over comes first, as in every store whose rows end (``state.watermarks``), and the rows of one side, key and
bucket lie together in the order of their times: a probe is one range a bucket. A bucket spans the join's reach, so that
there are two or three to be asked. For what has to go out alone unless something is found for it there is a *note*
with the columns of its key, under the end of its own time and its side: once that is over the row goes out, which is
still there then, and if a row is found for it before, the note is removed.

A key that is too long for LMDB is written as its digest (BLAKE2b, 32 bytes).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.state.byte_arrays import big_endian, buffers, drop_first, fixed, read_big_endian, side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = [
    "FIRST_NOTE",
    "LONGEST_KEY",
    "Buckets",
    "StoredRows",
    "bounds",
    "key_parts",
    "note_keys",
    "noted_rows",
    "notes_of",
    "row_keys",
]

#: Behind the end of a bucket: whose rows these are.
_ROWS: Final = {"left": b"\x01", "right": b"\x02"}
_NOTES: Final = {"left": b"\x11", "right": b"\x12"}
#: Notes come behind rows, under each end.
FIRST_NOTE: Final = min(_NOTES.values())
_END: Final = 8
#: Event time, batch, index.
_BEHIND_KEY: Final = 8 + 8 + 4
LONGEST_KEY: Final = 400
_DIGEST: Final = 32
_DIGESTED: Final = b"\xff\xff"
_SHORTEST_BUCKET_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Buckets:
    """How the rows of one side of a join are put into buckets.

    Attributes:
        kept_us: how much later than a row its youngest partner may be, in microseconds.
        reach_us: how far apart the oldest and the youngest partner of a row may be, in microseconds.
    """

    kept_us: int
    reach_us: int

    def ends_ms(self, times_us: Numbers) -> Numbers:
        """Return when rows are over: the first watermark at which nothing can go with them, ms since 1970."""
        return (times_us + self.kept_us) // 1000 + 1

    def numbers(self, times_us: Numbers) -> Numbers:
        """Return which bucket each row is in; a bucket is over with its last row."""
        return -(-self.ends_ms(times_us) // self._width_ms)

    def fronts(self, numbers: Numbers) -> pa.Array:
        """Return what the keys of buckets begin with."""
        return big_endian(numbers * self._width_ms)

    @property
    def _width_ms(self) -> int:
        return max(self.reach_us // 1000, _SHORTEST_BUCKET_MS)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows that were read from a store.

    Attributes:
        keys: where they stand.
        times_us: their event times, microseconds since 1970.
        lengths: bytes of each row.
        values: the rows; None if they were left where they are.
    """

    keys: pa.Array
    times_us: Numbers
    lengths: Numbers
    values: pa.Array | None

    @classmethod
    def of(cls, keys: pa.Array, lengths: Numbers, values: pa.Array | None) -> StoredRows:
        """Read the keys."""
        return cls(keys, _times_us(keys), lengths, values)

    @classmethod
    def none(cls) -> StoredRows:
        """Return no rows."""
        return cls.of(pa.array([], pa.binary()), np.empty(0, dtype=np.int64), None)

    def take(self, indices: Numbers) -> StoredRows:
        """Return some of them."""
        some = pa.array(indices)
        values = None if self.values is None else self.values.take(some)
        return StoredRows(self.keys.take(some), self.times_us[indices], self.lengths[indices], values)


def key_parts(keys: pa.Array) -> pa.Array:
    """Return distinct keys as they stand in the middle of a store's keys: their lengths first."""
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    if len(keys) and int(lengths.max()) > LONGEST_KEY:
        return pa.array([_part(key) for key in keys.to_pylist()], pa.binary())
    return side_by_side(fixed(lengths.astype(">u2"), 2), keys)


def row_keys(  # noqa: PLR0917 - what a key is made of
    side: str, fronts: pa.Array, parts: pa.Array, times_us: Numbers, batch: int, first: int
) -> pa.Array:
    """Return where rows are to stand.

    Args:
        side: ``left`` or ``right``.
        fronts: of their buckets.
        parts: of their keys.
        times_us: their event times.
        batch: number of the micro-batch that brings them.
        first: how many rows of that side it has brought before; the others follow one by one.
    """
    numbers = np.zeros(len(times_us), dtype=[("batch", ">u8"), ("index", ">u4")])
    numbers["batch"], numbers["index"] = batch, first + np.arange(len(times_us))
    side_bytes = pa.scalar(_ROWS[side], pa.binary())
    return side_by_side(fronts, side_bytes, parts, big_endian(times_us), fixed(numbers, 12))


def bounds(side: str, fronts: pa.Array, parts: pa.Array, first_us: Numbers, last_us: Numbers) -> tuple[pa.Array, ...]:
    """Return the ranges in which rows of a side stand, of a key and a bucket, with times from ``first`` to ``last``."""
    side_bytes = pa.scalar(_ROWS[side], pa.binary())
    return tuple(side_by_side(fronts, side_bytes, parts, big_endian(times)) for times in (first_us, last_us + 1))


def note_keys(side: str, ends_ms: Numbers, keys: pa.Array) -> pa.Array:
    """Return where the notes of rows stand that go out alone once they are over, by where they stand themselves."""
    return side_by_side(big_endian(ends_ms), pa.scalar(_NOTES[side], pa.binary()), drop_first(keys, _END + 1))


def notes_of(side: str, over: pa.RecordBatch) -> pa.RecordBatch:
    """Return the notes of a side's rows among those that are over."""
    sides = pc.binary_slice(over.column("key"), _END, _END + 1)
    return over.filter(pc.equal(sides, pa.scalar(_NOTES[side], pa.binary())))


def noted_rows(side: str, notes: pa.Array, buckets: Buckets) -> pa.Array:
    """Return where the rows stand whose notes have these keys."""
    fronts = buckets.fronts(buckets.numbers(_times_us(notes)))
    return side_by_side(fronts, pa.scalar(_ROWS[side], pa.binary()), drop_first(notes, _END + 1))


def _times_us(keys: pa.Array) -> Numbers:
    """Return the event times that stand in keys."""
    offsets, data = buffers(keys)
    return read_big_endian(data, offsets[1:] - _BEHIND_KEY)


def _part(key: bytes) -> bytes:
    if len(key) <= LONGEST_KEY:
        return len(key).to_bytes(2, "big") + key
    return _DIGESTED + hashlib.blake2b(key, digest_size=_DIGEST).digest()
