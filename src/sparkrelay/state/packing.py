"""Little-endian packing of small records: header, journal entries, marker.

docs/internals/changelog.md describes the formats. Each record's first byte is its version.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from sparkrelay.errors import StoreCorruptedException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

#: Name of a part of a record -> the object that was encoded last, and its bytes.
KnownParts: TypeAlias = dict[str, tuple[object, bytes]]
T = TypeVar("T")

_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_U64 = struct.Struct("<Q")
#: Kafka's limit, in characters.
_LONGEST_TOPIC = 249


class Packer:
    """Appends values to a record."""

    def __init__(self, version: int | None = None) -> None:
        """Start with the version; a part of a record has none."""
        self._parts: list[bytes] = [] if version is None else [_U8.pack(version)]

    def u8(self, value: int) -> None:
        """Append one byte."""
        self._parts.append(_U8.pack(value))

    def u32(self, value: int) -> None:
        """Append an unsigned 32-bit integer."""
        self._parts.append(_U32.pack(value))

    def i64(self, value: int) -> None:
        """Append a signed 64-bit integer."""
        self._parts.append(_I64.pack(value))

    def text(self, value: str) -> None:
        """Append a 2-byte length and UTF-8 text."""
        self.short_bytes(value.encode())

    def u64(self, value: int) -> None:
        """Append an unsigned 64-bit integer."""
        self._parts.append(_U64.pack(value))

    def short_bytes(self, data: bytes) -> None:
        """Append a 2-byte length and bytes."""
        self._parts.append(_U16.pack(len(data)))
        self._parts.append(data)

    def names(self, values: Collection[str]) -> None:
        """Append a count, then the names in order."""
        self.u32(len(values))
        for name in sorted(values):
            self.text(name)

    def offsets(self, values: Mapping[TopicPartition, int]) -> None:
        """Append a count, then topic, partition and offset of each, in order."""
        self.u32(len(values))
        for partition, offset in sorted(values.items()):
            self.text(partition.topic)
            self.u32(partition.partition)
            self.i64(offset)

    def times(self, values: Mapping[str, int]) -> None:
        """Append a count, then the name and the milliseconds of each, in order."""
        self.u32(len(values))
        for name, milliseconds in sorted(values.items()):
            self.text(name)
            self.i64(milliseconds)

    def texts(self, values: Mapping[str, str]) -> None:
        """Append a count, then the name and the text of each, in order."""
        self.u32(len(values))
        for name, text in sorted(values.items()):
            self.text(name)
            self.text(text)

    def part(self, known: KnownParts, name: str, value: T, write: Callable[[Packer, T], None]) -> None:
        """Append a value by ``write``, or its bytes in ``known`` if it is the same (immutable) object as last time."""
        before = known.get(name)
        if before is None or before[0] is not value:
            part = Packer()
            write(part, value)
            before = known[name] = value, part.data()
        self._parts.append(before[1])

    def data(self) -> bytes:
        """Return the record."""
        return b"".join(self._parts)


class Unpacker:
    """Reads a record from front to back."""

    def __init__(self, data: bytes, what: str, *, versions: frozenset[int] = frozenset({1})) -> None:
        """Read the version.

        Raises:
            StoreCorruptedException: the record is empty, or of an unknown version.
        """
        self._data = data
        self._at = 0
        self._what = what
        self.version = self.u8()
        if self.version not in versions:
            raise StoreCorruptedException(
                f"{what} has version {self.version}, this SparkRelay reads {sorted(versions)}; it was written by "
                "another release, or is damaged"
            )

    def _take(self, form: struct.Struct) -> int:
        try:
            (value,) = form.unpack_from(self._data, self._at)
        except struct.error as error:
            raise self._short() from error
        self._at += form.size
        return int(value)

    def u8(self) -> int:
        """Read one byte."""
        return self._take(_U8)

    def u32(self) -> int:
        """Read an unsigned 32-bit integer."""
        return self._take(_U32)

    def i64(self) -> int:
        """Read a signed 64-bit integer."""
        return self._take(_I64)

    def u64(self) -> int:
        """Read an unsigned 64-bit integer."""
        return self._take(_U64)

    def short_bytes(self) -> bytes:
        """Read what :meth:`Packer.short_bytes` wrote."""
        length = self._take(_U16)
        piece = self._data[self._at : self._at + length]
        if len(piece) < length:
            raise self._short()
        self._at += length
        return piece

    def text(self) -> str:
        """Read UTF-8 text."""
        piece = self.short_bytes()
        try:
            return piece.decode()
        except UnicodeDecodeError as error:
            raise StoreCorruptedException(f"{self._what} holds text that is not UTF-8") from error

    def offsets(self) -> dict[TopicPartition, int]:
        """Read what :meth:`Packer.offsets` wrote."""
        values = {}
        for _ in range(self.u32()):
            partition = TopicPartition(self.text(), self.u32())
            values[partition] = self.i64()
        return values

    def texts(self) -> dict[str, str]:
        """Read what :meth:`Packer.texts` wrote."""
        return {self.text(): self.text() for _ in range(self.u32())}

    def names(self) -> frozenset[str]:
        """Read what :meth:`Packer.names` wrote."""
        return frozenset(self.text() for _ in range(self.u32()))

    @property
    def at_end(self) -> bool:
        """Whether the whole record has been read."""
        return self._at == len(self._data)

    def i64_up_to(self, most: int) -> int:
        """Read a signed 64-bit integer, at most ``most``."""
        value = self.i64()
        if value > most:
            raise StoreCorruptedException(f"{self._what} holds {value} where {most} is the most: it is damaged")
        return value

    def times(self, *, most: int) -> dict[str, int]:
        """Read what :meth:`Packer.times` wrote of topics."""
        count = self.u32()
        values = {self.text(): self.i64() for _ in range(min(count, most))}
        if count > most or any(not 0 < len(name) <= _LONGEST_TOPIC for name in values):
            raise StoreCorruptedException(
                f"{self._what} names {count} topics, at most {most} are possible, with names of up to "
                f"{_LONGEST_TOPIC} characters: it is damaged"
            )
        return values

    def _short(self) -> StoreCorruptedException:
        return StoreCorruptedException(f"{self._what} ends after {len(self._data)} bytes, in the middle of a field")
