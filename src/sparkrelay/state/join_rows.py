"""The keys of a store with the rows of a stream-stream join.

A row's key::

    end of bucket, 8 bytes | side, 1 | key (``key_parts``) | event time, 8 | batch, 8 | index, 4

Rows that are over come first, as in every store whose rows end (``state.window_keys``), and the rows of one side, key
and bucket are adjacent, by time: a probe is one range per bucket. A bucket spans the join's reach, so two or three are
probed. A row that an outer join emits alone if it finds no partner has a *note*, whose key has the same columns after
the row's own end. When that is over, the row, which is still there, is emitted; if a partner is found before, the note
is removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.state.byte_arrays import big_endian, buffers, drop_first, fixed, read_big_endian, side_by_side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

#: The sides of rows and notes.
_ROWS: Final = {"left": b"\x01", "right": b"\x02"}
_NOTES: Final = {"left": b"\x11", "right": b"\x12"}
#: Notes follow rows, under each end.
FIRST_NOTE: Final = min(_NOTES.values())
_END: Final = 8
#: Event time, batch, index.
_BEHIND_KEY: Final = 8 + 8 + 4
_SHORTEST_BUCKET_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of one side of a join.

    Attributes:
        kept_us: the greatest distance of a row from a later partner, in microseconds.
        reach_us: the greatest distance between two partners of a row, in microseconds.
    """

    kept_us: int
    reach_us: int

    def ends_ms(self, times_us: Numbers) -> Numbers:
        """Return the ends of rows: the first watermark at which they can have no more partners, ms since 1970."""
        return (times_us + self.kept_us) // 1000 + 1

    def numbers(self, times_us: Numbers) -> Numbers:
        """Return the bucket of each row; a bucket ends with its last row."""
        return -(-self.ends_ms(times_us) // self._width_ms)

    def fronts(self, numbers: Numbers) -> pa.Array:
        """Return the prefixes of the keys of buckets."""
        return big_endian(numbers * self._width_ms)

    @property
    def _width_ms(self) -> int:
        return max(self.reach_us // 1000, _SHORTEST_BUCKET_MS)


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Rows that were read from a store.

    Attributes:
        keys: of the rows.
        times_us: their event times, microseconds since 1970.
        lengths: of the rows, bytes.
        values: the rows; None if they were not read.
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
        """Return the rows at these indices."""
        some = pa.array(indices)
        values = None if self.values is None else self.values.take(some)
        return StoredRows(self.keys.take(some), self.times_us[indices], self.lengths[indices], values)


def row_keys(  # noqa: PLR0917 - what a key is made of
    side: str, fronts: pa.Array, parts: pa.Array, times_us: Numbers, batch: int, first: int
) -> pa.Array:
    """Return the keys of new rows.

    Args:
        side: ``left`` or ``right``.
        fronts: of their buckets.
        parts: of their keys (``key_parts``).
        times_us: their event times.
        batch: number of their micro-batch.
        first: index of the first row among the micro-batch's rows of that side.
    """
    numbers = np.zeros(len(times_us), dtype=[("batch", ">u8"), ("index", ">u4")])
    numbers["batch"], numbers["index"] = batch, first + np.arange(len(times_us))
    return side_by_side(fronts, _ROWS[side], parts, big_endian(times_us), fixed(numbers, 12))


def bounds(side: str, fronts: pa.Array, parts: pa.Array, first_us: Numbers, last_us: Numbers) -> tuple[pa.Array, ...]:
    """Return the ranges of rows of a side by keys and buckets, with times from ``first_us`` to ``last_us``."""
    return tuple(side_by_side(fronts, _ROWS[side], parts, big_endian(times)) for times in (first_us, last_us + 1))


def note_keys(side: str, ends_ms: Numbers, keys: pa.Array) -> pa.Array:
    """Return the keys of the notes of rows, by their own ends and keys."""
    return side_by_side(big_endian(ends_ms), _NOTES[side], drop_first(keys, _END + 1))


def notes_of(side: str, over: pa.RecordBatch) -> pa.RecordBatch:
    """Return the notes of one side."""
    sides = pc.binary_slice(over.column("key"), _END, _END + 1)
    return over.filter(pc.equal(sides, pa.scalar(_NOTES[side], pa.binary())))


def noted_rows(side: str, notes: pa.Array, buckets: Buckets) -> pa.Array:
    """Return the keys of the rows of these notes."""
    fronts = buckets.fronts(buckets.numbers(_times_us(notes)))
    return side_by_side(fronts, _ROWS[side], drop_first(notes, _END + 1))


def _times_us(keys: pa.Array) -> Numbers:
    """Return the event times in keys."""
    offsets, data = buffers(keys)
    return read_big_endian(data, offsets[1:] - _BEHIND_KEY)
