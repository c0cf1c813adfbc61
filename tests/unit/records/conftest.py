from __future__ import annotations

import struct

import crc32c
import pytest

from sparkrelay.records.batches.headers import HEADER_SIZE


class Log:
    """Record batches laid one behind the other, as a broker would store them."""

    def __init__(self):
        self.data = bytearray()
        self.next_offset = 0

    def append(self, batch, *, base_offset=None, append_time=None):
        """Give a batch its offsets; a log append time also changes the header, as the broker does."""
        raw = bytearray(batch)
        base = self.next_offset if base_offset is None else base_offset
        struct.pack_into(">q", raw, 0, base)
        if append_time is not None:
            attributes, *_ = struct.unpack_from(">h", raw, 21)
            struct.pack_into(">h", raw, 21, attributes | 0x08)
            struct.pack_into(">q", raw, 35, append_time)
            struct.pack_into(">I", raw, 17, crc32c.crc32c(bytes(raw[21:])))
        self.data += raw
        self.next_offset = base + struct.unpack_from(">i", raw, 23)[0] + 1
        return base

    def append_control(self, *, producer_id, commit, epoch=0):
        """Append the marker that ends a transaction."""
        key = struct.pack(">hh", 0, 1 if commit else 0)
        value = struct.pack(">hi", 0, 0)
        record = b"\x00\x00\x00" + bytes([len(key) * 2]) + key + bytes([len(value) * 2]) + value + b"\x00"
        body = bytes([len(record) * 2]) + record
        tail = struct.pack(">hiqqqhii", 0x30, 0, 0, 0, producer_id, epoch, -1, 1) + body
        head = struct.pack(">qiib", 0, HEADER_SIZE - 12 + len(body), 0, 2)
        return self.append(head + struct.pack(">I", crc32c.crc32c(tail)) + tail)

    def extend(self, batches):
        for batch in batches:
            self.append(batch.data)
        return self


@pytest.fixture(scope="session")
def new_log():
    return Log
