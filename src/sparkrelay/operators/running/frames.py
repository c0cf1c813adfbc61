"""Values of frames: aggregates of neighbouring rows, for each row of many keys at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.row_numbers import places
from sparkrelay.state.aggregate import AggregateCodec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.operators.running.step import Frame
    from sparkrelay.state.aggregate import AggregateSpec

    Numbers = NDArray[np.int64]

_ROW = "__sparkrelay_row"


class Sequences:
    """Rows of several keys, key by key, each in order.

    Attributes:
        which: the number of each row's key.
        firsts: the index of the first row of each row's key.
        lasts: the index of the last row of each row's key.
    """

    def __init__(self, which: Numbers, times_us: Numbers | None) -> None:
        """Take the number of each row's key, and event times in µs; None for the order of arrival."""
        at = np.arange(len(which))
        self.which = which
        self.firsts = at - places(which)
        self.lasts = len(which) - 1 - (at - places(which[::-1]))[::-1]
        #: Keys and times: sorted, as each key's rows stand together.
        self._in_order = np.zeros(0 if times_us is None else len(which), dtype=[("which", "<i8"), ("time", "<i8")])
        if times_us is not None:
            self._in_order["which"], self._in_order["time"] = which, times_us

    def bounds(self, frame: Frame) -> tuple[Numbers, Numbers]:
        """Return the indices of the first and the last row of each row's frame; of an empty one the last is less."""
        at, firsts, lasts = np.arange(len(self.which)), self.firsts, self.lasts
        if frame.reach_us is None:
            start = firsts if frame.start is None else np.maximum(at + frame.start, firsts)
            return start, np.minimum(at + frame.end, lasts)
        end = np.searchsorted(self._in_order, self._in_order, side="right") - 1
        return (firsts if frame.from_first else self.first_since(at, frame.reach_us)), end

    def first_since(self, rows: Numbers, reach_us: int) -> Numbers:
        """Return the index of the first row of the same key that is at most so much earlier than each of these."""
        earliest = self._in_order[rows]
        earliest["time"] -= reach_us
        found: Numbers = np.searchsorted(self._in_order, earliest, side="left")
        return found


class FrameAggregates:
    """Some aggregates of one frame."""

    def __init__(self, frame: Frame, specs: Sequence[AggregateSpec]) -> None:
        self.frame = frame
        self.codec = AggregateCodec(specs)

    def states(self, rows: pa.Table) -> pa.Array:
        """Return the state of each row alone."""
        numbers = pa.array(np.arange(rows.num_rows))
        return self.codec.states(self.codec.partial(rows.append_column(_ROW, numbers), [_ROW]))

    def combined(
        self, states: pa.Array, lasts: Numbers, first: Numbers, last: Numbers, carried: pa.Array | None = None
    ) -> pa.Array:
        """Return the combined states of ranges of rows; null for an empty one.

        Args:
            states: of the rows.
            lasts: index of the last row of each row's key.
            first: index of the first row of each range.
            last: index of its last row.
            carried: states in front of the ranges.
        """
        lengths = np.maximum(last - first + 1, 0)
        longest = int(lengths.max()) if len(lengths) else 0
        found = pa.nulls(len(first), pa.binary()) if carried is None else carried
        at, block, size = first.copy(), states, 1
        while size <= longest:
            some = np.flatnonzero(lengths & size)
            if len(some):
                parts = block.take(pa.array(at[some]))
                found = _put(found, some, self.codec.combine(found.take(pa.array(some)), parts))
                at[some] += size
            if 2 * size <= longest:
                # Rows of another key might overflow together with these.
                whole = np.arange(len(lasts)) + 2 * size - 1 <= lasts
                after = np.where(whole, np.arange(len(lasts)) + size, 0)
                block = self.codec.combine(block, block.take(pa.array(after, mask=~whole)))
            size *= 2
        return found

    def results(self, states: pa.Array) -> list[pa.Array]:
        """Return the results of states, a column for each aggregate; those of no rows for null."""
        results = self.codec.results(states)
        return [
            pc.fill_null(result, 0) if spec.function in {"count", "count_all"} else result
            for spec, result in zip(self.codec.specs, results, strict=True)
        ]


def _put(array: pa.Array, at: Numbers, values: pa.Array) -> pa.Array:
    """Return an array with other values at some places."""
    order = np.arange(len(array))
    order[at] = len(array) + np.arange(len(at))
    return pa.concat_arrays([array, values]).take(pa.array(order))


def frame_groups(calls: Sequence[Any]) -> list[tuple[FrameAggregates, list[int]]]:
    """Return the aggregates of each frame, with the indices of their columns."""
    by_frame: dict[Frame, list[int]] = {}
    for index, call in enumerate(calls):
        by_frame.setdefault(call.frame, []).append(index)
    return [
        (FrameAggregates(frame, [calls[index].aggregate for index in indices]), indices)
        for frame, indices in by_frame.items()
    ]
