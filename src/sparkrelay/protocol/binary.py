"""Bounds-checked big-endian reading and writing for the assignment protocol: a few hundred bytes a rebalance."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

C = TypeVar("C", bound="Sized")

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def _integer_reader(layout: struct.Struct) -> Callable[[Reader], int]:
    def read(reader: Reader) -> int:
        value: int = layout.unpack(reader.raw(layout.size))[0]
        return value

    return read


def _integer_writer(layout: struct.Struct) -> Callable[[Writer, int], None]:
    def write(writer: Writer, value: int) -> None:
        writer.raw(layout.pack(value))

    return write


_read_uint16 = _integer_reader(_UINT16)


class Reader:
    """Reads values from ``data`` in order.

    Raises:
        EOFError: too few bytes are left (any method).
        ValueError: a length is negative or exceeds the remaining bytes.
    """

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def remaining(self) -> int:
        """Number of unread bytes."""
        return len(self._data) - self._offset

    def raw(self, size: int) -> bytes:
        """Read ``size`` bytes."""
        if size < 0:
            raise ValueError(f"negative length {size} at byte {self._offset}")
        if size > self.remaining:
            raise EOFError(f"{size} bytes wanted at byte {self._offset}, {self.remaining} left")
        taken = self._data[self._offset : self._offset + size]
        self._offset += size
        return taken

    #: Signed integers.
    int8, int16, int32, int64 = map(_integer_reader, (_INT8, _INT16, _INT32, _INT64))

    def count(self, *, item_size: int) -> int:
        """Read the length of an array with items of at least ``item_size`` bytes.

        The check against the remaining bytes keeps four corrupt bytes from requesting gigabytes.
        """
        count = self.int32()
        if count < 0 or count * item_size > self.remaining:
            raise ValueError(f"an array of {count} items cannot follow at byte {self._offset}; {self.remaining} left")
        return count

    def blob(self) -> bytes:
        """Read a 32-bit length and that many bytes."""
        return self.raw(self.int32())

    def short_string(self) -> str | None:
        """Read a 16-bit length and UTF-8; length -1 is None."""
        size = self.int16()
        return None if size < 0 else self.raw(size).decode()

    def java_utf(self) -> str:
        """Read an unsigned 16-bit length and Java's modified UTF-8 (``DataInput.readUTF``)."""
        return _from_modified_utf8(self.raw(_read_uint16(self)))

    def utf16(self) -> str:
        """Read a 32-bit length in UTF-16 units and big-endian UTF-16."""
        return self.raw(2 * self.int32()).decode("utf-16-be")


class Writer:
    """Appends values to a buffer, which :meth:`getvalue` returns."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def getvalue(self) -> bytes:
        """Return everything written so far."""
        return bytes(self._data)

    def raw(self, data: bytes) -> None:
        """Append bytes."""
        self._data += data

    #: Signed integers.
    int8, int16, int32, int64 = map(_integer_writer, (_INT8, _INT16, _INT32, _INT64))

    def counted(self, items: C) -> C:
        """Append the 32-bit length of an array; return its items, which the caller appends."""
        self.int32(len(items))
        return items

    def blob(self, data: bytes) -> None:
        """Append a 32-bit length and the bytes."""
        self.int32(len(data))
        self._data += data

    def short_string(self, text: str | None) -> None:
        """Append a 16-bit length and UTF-8; None is length -1."""
        data = b"" if text is None else text.encode()
        self.int16(-1 if text is None else len(data))
        self._data += data

    def java_utf(self, text: str) -> None:
        """Append an unsigned 16-bit length and Java's modified UTF-8 (``DataOutput.writeUTF``)."""
        data = _to_modified_utf8(text)
        self._data += _UINT16.pack(len(data)) + data

    def utf16(self, text: str) -> None:
        """Append a 32-bit length in UTF-16 units and big-endian UTF-16."""
        data = text.encode("utf-16-be")
        self.int32(len(data) // 2)
        self._data += data


def _to_modified_utf8(text: str) -> bytes:
    # Java writes NUL as two bytes, and characters outside the basic plane as two surrogates of three bytes each.
    units = text.encode("utf-16-be", "surrogatepass")
    characters = (chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))
    return b"".join(b"\xc0\x80" if c == "\0" else c.encode("utf-8", "surrogatepass") for c in characters)


def _from_modified_utf8(data: bytes) -> str:
    units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
