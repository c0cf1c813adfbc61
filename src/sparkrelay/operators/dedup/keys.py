"""The keys of a store that remembers which keys a stream has had, each until some time.

A key stands under the end of its *bucket*, as in every store whose rows end (``state.watermarks``); its value says when
exactly it is forgotten. So a key is found by one point read for each bucket that is not over. A bucket is the wider the
later it ends: most keys are forgotten within some delays of the watermark, in two or three narrow buckets, while few
wide ones take those that a wrong clock has sent far ahead, or that have come while another topic held the watermark
back. That a key stays in its bucket for longer than it is remembered costs room and changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.state.byte_arrays import big_endian, buffers, read_big_endian, side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

__all__ = ["keys_until", "remembered", "values_until", "wide_ends"]

_SHORTEST_MS: Final = 1000
#: A bucket of this many widths from now is of the next width.
_NEAR: Final = 3
_WIDER: Final = 4


def keys_until(ends_ms: Numbers, keys: pa.Array) -> pa.Array:
    """Return where keys stand, under these ends."""
    return side_by_side(big_endian(ends_ms), keys)


def values_until(ends_ms: Numbers) -> pa.Array:
    """Return the values of keys that are forgotten at these watermarks, in milliseconds since 1970."""
    return big_endian(ends_ms)


def wide_ends(ends_ms: Numbers, now_ms: int, delay_ms: int) -> Numbers:
    """Return the ends of the buckets of keys.

    Args:
        ends_ms: when they are forgotten.
        now_ms: the watermark; what stands for it where there is none yet must not move on, or buckets would be many.
        delay_ms: how far apart most of them are.
    """
    width = np.full(len(ends_ms), max(delay_ms, _SHORTEST_MS), dtype=np.int64)
    ahead = ends_ms - now_ms
    while (far := ahead > _NEAR * width).any():
        width[far] *= _WIDER
    return -(-ends_ms // width) * width


def remembered(view: StoreView, keys: pa.Array, buckets: Sequence[int]) -> Flags:
    """Return which of distinct keys are remembered as of the watermark before the batch.

    Args:
        view: the store.
        keys: the keys; fastest in the order of bytes.
        buckets: ends of those that are not over (``StoreView.ends``).
    """
    found = np.zeros(len(keys), dtype=np.bool_)
    for end in buckets:
        left = np.flatnonzero(~found)
        values = view.get(keys_until(np.full(len(left), end), keys.take(pa.array(left))))
        there = values.is_valid().to_numpy(zero_copy_only=False)
        starts, data = buffers(values.filter(pa.array(there)))
        found[left[there]] = read_big_endian(data, starts[:-1]) > view.watermark
    return found
