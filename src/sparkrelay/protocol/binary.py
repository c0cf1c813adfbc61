"""Big-endian reading and writing with bounds, for the assignment protocol only.

Kept apart from the record formats: these are a few hundred bytes a rebalance, where a clear error is worth more than
speed.
"""

from __future__ import annotations

import struct

__all__ = ["Reader", "Writer"]

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class Reader:
    """Takes values from the front of ``data``.

    Raises:
        EOFError: fewer bytes are left than the value needs (any method).
        ValueError: a count is negative or larger than what the rest could hold.
    """

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    @property
    def remaining(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self._offset

    def raw(self, size: int) -> bytes:
        """Take ``size`` bytes."""
        if size < 0:
            raise ValueError(f"negative length {size} at byte {self._offset}")
        if size > self.remaining:
            raise EOFError(f"{size} bytes wanted at byte {self._offset}, {self.remaining} left")
        taken = self._data[self._offset : self._offset + size]
        self._offset += size
        return taken

    def _unpack(self, layout: struct.Struct) -> int:
        value: int = layout.unpack(self.raw(layout.size))[0]
        return value

    def int8(self) -> int:
        """Take a signed byte."""
        return self._unpack(_INT8)

    def int16(self) -> int:
        """Take a signed 16-bit integer."""
        return self._unpack(_INT16)

    def int32(self) -> int:
        """Take a signed 32-bit integer."""
        return self._unpack(_INT32)

    def int64(self) -> int:
        """Take a signed 64-bit integer."""
        return self._unpack(_INT64)

    def count(self, *, item_size: int) -> int:
        """Take the length of an array whose items have at least ``item_size`` bytes each.

        Checking it against the rest keeps four corrupt bytes from asking for gigabytes.
        """
        count = self.int32()
        if count < 0 or count * item_size > self.remaining:
            raise ValueError(f"an array of {count} items cannot follow at byte {self._offset}; {self.remaining} left")
        return count

    def blob(self) -> bytes:
        """Take a 32-bit length and that many bytes."""
        return self.raw(self.int32())

    def short_string(self) -> str | None:
        """Take a 16-bit length and UTF-8; length -1 is None."""
        size = self.int16()
        return None if size < 0 else self.raw(size).decode()

    def java_utf(self) -> str:
        """Take an unsigned 16-bit length and Java's modified UTF-8 (``DataInput.readUTF``)."""
        return _from_modified_utf8(self.raw(self._unpack(_UINT16)))

    def utf16(self) -> str:
        """Take a 32-bit length in UTF-16 units and big-endian UTF-16."""
        return self.raw(2 * self.int32()).decode("utf-16-be")


class Writer:
    """Appends values; :meth:`getvalue` returns them all."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def getvalue(self) -> bytes:
        """Return everything written so far."""
        return bytes(self._data)

    def raw(self, data: bytes) -> None:
        """Append bytes as they are."""
        self._data += data

    def int8(self, value: int) -> None:
        """Append a signed byte."""
        self._data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Append a signed 16-bit integer."""
        self._data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Append a signed 32-bit integer."""
        self._data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """Append a signed 64-bit integer."""
        self._data += _INT64.pack(value)

    def blob(self, data: bytes) -> None:
        """Append a 32-bit length and the bytes."""
        self.int32(len(data))
        self._data += data

    def short_string(self, text: str | None) -> None:
        """Append a 16-bit length and UTF-8; None is length -1."""
        if text is None:
            self.int16(-1)
            return
        data = text.encode()
        self.int16(len(data))
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
    # Java writes NUL as two bytes, and characters beyond the basic plane as two surrogates of three bytes each.
    units = text.encode("utf-16-be", "surrogatepass")
    characters = (chr(int.from_bytes(units[at : at + 2], "big")) for at in range(0, len(units), 2))
    return b"".join(b"\xc0\x80" if c == "\0" else c.encode("utf-8", "surrogatepass") for c in characters)


def _from_modified_utf8(data: bytes) -> str:
    units = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
