"""What a changelog holds: changed state, and the marker records that close each batch.

A state record has the state's key and, behind a version byte, its value; a tombstone has no value. A marker stands
under one reserved key and says which input the state before it has seen. No user's key can be taken for it: a key that
begins with the reserved bytes gets one zero byte behind them, and loses it again when it is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.state.byte_arrays import drop_first
from sparkrelay.state.packing import Packer, Unpacker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.types import TopicPartition

__all__ = ["MARKER_KEY", "Marker", "decode_marker", "encode_changelog", "encode_marker", "split"]

#: Key of marker records. Compaction keeps the newest, which is the only one that counts.
MARKER_KEY = b"\x00\xffsparkrelay.marker"

_ESCAPED = MARKER_KEY + b"\x00"
_VALUE_VERSION = b"\x01"
_MARKER_VERSION = 2


@dataclass(frozen=True, slots=True)
class Marker:
    """Closes a batch in a changelog partition.

    Attributes:
        batch: the batch's number.
        positions: the task's input positions after it.
        contents: what the store holds, in words.
    """

    batch: int
    positions: Mapping[TopicPartition, int]
    contents: str = ""


def encode_marker(marker: Marker) -> tuple[bytes, bytes]:
    """Return a marker's key and value."""
    record = Packer(_MARKER_VERSION)
    record.i64(marker.batch)
    record.offsets(marker.positions)
    record.text(marker.contents)
    return MARKER_KEY, record.data()


def decode_marker(value: bytes) -> Marker:
    """Read a marker's value.

    Raises:
        StoreCorruptedException: it is of an unknown version, or damaged.
    """
    record = Unpacker(value, "a marker record of a changelog", versions=frozenset({_MARKER_VERSION}))
    return Marker(record.i64(), record.offsets(), record.text())


def encode_changelog(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and values of changelog records; null values are tombstones."""
    reserved = pc.starts_with(keys, MARKER_KEY)
    if pc.any(reserved).as_py():
        keys = pa.array([_escape(key) for key in keys.to_pylist()], pa.binary())
    prefixed = pc.binary_join_element_wise(_scalar(_VALUE_VERSION, values), values, _scalar(b"", values))
    return keys, prefixed


def split(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array, Marker | None]:
    """Split changelog records into state - keys, and values or null - and the last marker among them.

    Raises:
        StoreCorruptedException: a value is of an unknown version.
    """
    keys, values = _flat(keys), _flat(values)
    marker = None
    reserved = pc.starts_with(keys, MARKER_KEY)
    if pc.any(reserved).as_py():
        is_marker = pc.equal(keys, _scalar(MARKER_KEY, keys))
        markers = values.filter(is_marker).drop_null()
        if len(markers):
            marker = decode_marker(markers[len(markers) - 1].as_py())
        kept = pc.invert(is_marker)
        keys, values, reserved = keys.filter(kept), values.filter(kept), reserved.filter(kept)
        if pc.any(reserved).as_py():
            keys = pa.array([_unescape(key) for key in keys.to_pylist()], pa.binary())
    known = pc.fill_null(pc.starts_with(values, _VALUE_VERSION), True)
    if not pc.all(known, min_count=0).as_py():
        index = pc.index(known, value=False).as_py()
        raise StoreCorruptedException(
            f"a changelog value of key {keys[index].as_py()!r} begins with {values[index].as_py()[:1]!r}; this "
            f"SparkRelay reads version {_VALUE_VERSION!r}: it was written by a newer release, or by something else"
        )
    return keys, drop_first(values), marker


def _escape(key: bytes) -> bytes:
    return _ESCAPED + key[len(MARKER_KEY) :] if key.startswith(MARKER_KEY) else key


def _unescape(key: bytes) -> bytes:
    return MARKER_KEY + key[len(_ESCAPED) :] if key.startswith(MARKER_KEY) else key


def _flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _scalar(value: bytes, like: pa.Array) -> pa.Scalar:
    return pa.scalar(value, like.type)
