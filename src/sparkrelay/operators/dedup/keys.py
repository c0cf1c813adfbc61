"""Keys of a store that remembers the keys of a stream, each until some time.

A stored key begins with the end of its *bucket*, as in every store whose rows expire (``state.window_keys``); its value
is the exact time of its expiry. A lookup reads one point for each open bucket. Buckets that end later are wider: most
keys expire within a few delays of the watermark, in two or three narrow buckets; a few wide ones take keys with times
far ahead, from a wrong clock or while another topic held the watermark back. A key that outlasts its expiry in its
bucket only takes space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from sparkrelay.state.byte_arrays import buffers, read_big_endian
from sparkrelay.state.window_keys import window_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.view import StoreView

    Numbers = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_SHORTEST_MS: Final = 1000
#: Keys that expire more than this many widths ahead go to a wider bucket.
_NEAR: Final = 3
_WIDER: Final = 4


def wide_ends(ends_ms: Numbers, now_ms: int, delay_ms: int) -> Numbers:
    """Return the ends of the keys' buckets.

    Args:
        ends_ms: when the keys expire.
        now_ms: the watermark, or a constant in its place: a moving one would make many buckets.
        delay_ms: width of the narrow buckets.
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
        keys: fastest if sorted.
        buckets: ends of the open buckets (``StoreView.ends``).
    """
    found = np.zeros(len(keys), dtype=np.bool_)
    for end in buckets:
        left = np.flatnonzero(~found)
        values = view.get(window_keys(np.full(len(left), end), keys.take(pa.array(left))))
        there = values.is_valid().to_numpy(zero_copy_only=False)
        starts, data = buffers(values.filter(pa.array(there)))
        found[left[there]] = read_big_endian(data, starts[:-1]) > view.watermark
    return found
