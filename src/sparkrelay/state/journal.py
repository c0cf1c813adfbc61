"""The journal of a leg: what it takes to emit a batch again, or to take it back.

Two payloads for each entry of the header: the emitted rows, and the changed keys with the values they had. Both are
Arrow IPC streams, cut into pieces of 64 KiB: LMDB needs neighbouring free pages for each value, and large holes are
hard to find in a file that has been written to for a while.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from sparkrelay.state.header import JournalEntry

__all__ = ["CHANGES", "EMITTED", "drop", "read", "write"]

EMITTED: Final = 0
CHANGES: Final = 1

_PIECE_BYTES: Final = 64 << 10
_KEY = struct.Struct(">IBI")


def write(transaction: Any, table: Any, number: int, payload: int, rows: pa.RecordBatch) -> int:
    """Store rows as a payload of journal ``number``; return the count of its pieces."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    data = memoryview(sink.getvalue())
    pieces = 0
    for start in range(0, len(data), _PIECE_BYTES):
        transaction.put(_KEY.pack(number, payload, pieces), data[start : start + _PIECE_BYTES], db=table)
        pieces += 1
    return pieces


def read(transaction: Any, table: Any, entry: JournalEntry, payload: int) -> pa.RecordBatch:
    """Return a payload's rows.

    Raises:
        StoreCorruptedException: a piece is missing, or it is no Arrow stream.
    """
    count = entry.emitted_parts if payload == EMITTED else entry.change_parts
    pieces = [transaction.get(_KEY.pack(entry.number, payload, piece), db=table) for piece in range(count)]
    try:
        with pa.ipc.open_stream(pa.py_buffer(b"".join(pieces))) as reader:
            return reader.read_next_batch()
    except (pa.ArrowInvalid, TypeError, StopIteration) as error:
        raise StoreCorruptedException(
            f"the journal of leg {entry.leg!r}, batch {entry.batch}, cannot be read ({error}); the store must be "
            "rebuilt from its changelog"
        ) from error


def drop(transaction: Any, table: Any, entry: JournalEntry) -> None:
    """Remove both payloads."""
    for payload, count in ((EMITTED, entry.emitted_parts), (CHANGES, entry.change_parts)):
        for piece in range(count):
            transaction.delete(_KEY.pack(entry.number, payload, piece), db=table)
