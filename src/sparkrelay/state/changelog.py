"""The records of changelogs: changed state, and the markers that close each batch.

A state record has the state's key and, after a version byte, its value; a tombstone has no value. A marker has a
reserved key and contains the input positions of the state before it. A user's key that begins with the reserved bytes
is escaped by a zero byte after them, so it is neither the marker's key nor the other reserved one, which has another
byte there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.errors import SerializationException, StoreCorruptedException
from sparkrelay.records.arrow_buffers import flatten
from sparkrelay.state.byte_arrays import drop_first
from sparkrelay.state.packing import Packer, Unpacker
from sparkrelay.state.window_keys import MOST_SOURCES, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.types import TopicPartition

#: Key of marker records. Only the newest counts, which compaction keeps.
MARKER_KEY = b"\x00\xffsparkrelay.marker"

#: Key of the store's description (``runtime.contract.store_descriptions``), which a restore skips.
SCHEMA_KEY = MARKER_KEY + b"\x01schema"

_ESCAPED = MARKER_KEY + b"\x00"
_VALUE_VERSION = b"\x01"
_MARKER_VERSION = 4
#: Without retention and source watermarks. Used where it suffices, for older releases during a rolling upgrade.
_WITHOUT_RETENTION = 3
#: Also without a watermark.
_WITHOUT_WATERMARK = 2


@dataclass(frozen=True, slots=True)
class Marker:
    """Closes a batch in a changelog partition.

    Attributes:
        batch: the batch's number.
        positions: the task's input positions after the batch.
        contents: the description of the store's contents.
        watermark: windows that end by then are over, in milliseconds since 1970.
        expired: windows that end by then are removed, in milliseconds since 1970; at most the watermark.
        sources: source topic -> its own watermark, where that is kept.
        topics: source topic -> the id that its ``positions`` belong to, as far as known.
    """

    batch: int
    positions: Mapping[TopicPartition, int]
    contents: str = ""
    watermark: int = NO_TIME
    expired: int = NO_TIME
    sources: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)


def encode_marker(marker: Marker) -> tuple[bytes, bytes]:
    """Return a marker's key and value."""
    more = marker.expired != marker.watermark or bool(marker.sources)
    record = Packer(_MARKER_VERSION if more else _WITHOUT_RETENTION)
    record.i64(marker.batch)
    record.offsets(marker.positions)
    record.text(marker.contents)
    record.i64(marker.watermark)
    if more:
        record.i64(marker.expired)
        record.times(marker.sources)
    if marker.topics:
        # At the end, where earlier releases do not read.
        record.texts(marker.topics)
    return MARKER_KEY, record.data()


def decode_marker(value: bytes) -> Marker:
    """Read a marker's value.

    Raises:
        StoreCorruptedException: it is damaged, or of an unknown version.
    """
    versions = frozenset({_WITHOUT_WATERMARK, _WITHOUT_RETENTION, _MARKER_VERSION})
    record = Unpacker(value, "a marker record of a changelog", versions=versions)
    batch, positions, contents = record.i64(), record.offsets(), record.text()
    watermark = NO_TIME if record.version == _WITHOUT_WATERMARK else record.i64()
    expired, sources = watermark, {}
    if record.version == _MARKER_VERSION:
        expired, sources = record.i64_up_to(watermark), record.times(most=MOST_SOURCES)
    topics = {} if record.at_end else record.texts()
    return Marker(batch, positions, contents, watermark, expired, sources, topics)


def encode_changelog(keys: pa.Array, values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the keys and values of changelog records; null values are tombstones."""
    reserved = pc.starts_with(keys, MARKER_KEY)
    if pc.any(reserved).as_py():
        keys = pa.array([_escape(key) for key in keys.to_pylist()], pa.binary())
    prefixed = pc.binary_join_element_wise(_scalar(_VALUE_VERSION, values), values, _scalar(b"", values))
    return keys, prefixed


def split(
    keys: pa.Array, values: pa.Array, name: Callable[[int], str] = "changelog record {}".format
) -> tuple[pa.Array, pa.Array, Marker | None]:
    """Split changelog records into state (keys, and values or null) and the last marker.

    ``name`` names a record by its index, in errors.

    Raises:
        SerializationException: this release cannot read a record. Rebuilding local state would not help.
    """
    keys, values = flatten(keys), flatten(values)
    if keys.null_count:
        raise _foreign(name(pc.index(keys.is_null(), value=True).as_py()), "it has no key")
    marker = None
    reserved = pc.starts_with(keys, MARKER_KEY)
    is_marker = ours = None
    known = pc.fill_null(pc.starts_with(values, _VALUE_VERSION), True)
    if pc.any(reserved).as_py():
        is_marker = pc.equal(keys, _scalar(MARKER_KEY, keys))
        ours = pc.or_(is_marker, pc.equal(keys, _scalar(SCHEMA_KEY, keys)))
        known = pc.or_(known, ours)
    if not pc.all(known, min_count=0).as_py():
        index = pc.index(known, value=False).as_py()
        raise _foreign(
            name(index),
            f"the value of key {keys[index].as_py()!r} begins with {values[index].as_py()[:1]!r}, this SparkRelay "
            f"reads version {_VALUE_VERSION!r}",
        )
    if is_marker is not None:
        markers = pc.indices_nonzero(pc.and_(is_marker, values.is_valid()))
        if len(markers):
            last = markers[-1].as_py()
            try:
                marker = decode_marker(values[last].as_py())
            except StoreCorruptedException as error:
                raise _foreign(name(last), str(error)) from error
        kept = pc.invert(ours)
        keys, values, reserved = keys.filter(kept), values.filter(kept), reserved.filter(kept)
        if pc.any(reserved).as_py():
            keys = pa.array([_unescape(key) for key in keys.to_pylist()], pa.binary())
    return keys, drop_first(values), marker


def _foreign(record: str, what: str) -> SerializationException:
    return SerializationException(
        f"{record} cannot be read: {what}. A newer release of SparkRelay wrote it, or something else did. Local state "
        "is left as it is. Install that release on this instance and start it again; if nothing newer writes there, "
        "start the application over: sparkrelay reset"
    )


def _escape(key: bytes) -> bytes:
    return _ESCAPED + key[len(MARKER_KEY) :] if key.startswith(MARKER_KEY) else key


def _unescape(key: bytes) -> bytes:
    return MARKER_KEY + key[len(_ESCAPED) :] if key.startswith(MARKER_KEY) else key


def _scalar(value: bytes, like: pa.Array) -> pa.Scalar:
    return pa.scalar(value, like.type)
