"""The journal of a leg: what it takes to take a batch back.

Of each entry of the header it keeps the changed keys with the values they had, as an Arrow IPC stream, cut into pieces
of 64 KiB: LMDB needs neighbouring free pages for each value, and large holes are hard to find in a file that has been
written to for a while.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from sparkrelay.state.header import JournalEntry

__all__ = ["drop", "read", "write"]

_PIECE_BYTES: Final = 64 << 10
_KEY = struct.Struct(">II")


def write(transaction: Any, table: Any, number: int, changes: pa.RecordBatch) -> int:
    """Store the changes of journal ``number``; return the count of their pieces."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, changes.schema) as writer:
        writer.write_batch(changes)
    data = memoryview(sink.getvalue())
    pieces = 0
    for start in range(0, len(data), _PIECE_BYTES):
        transaction.put(_KEY.pack(number, pieces), data[start : start + _PIECE_BYTES], db=table)
        pieces += 1
    return pieces


def read(transaction: Any, table: Any, entry: JournalEntry) -> pa.RecordBatch:
    """Return the changes.

    Raises:
        StoreCorruptedException: a piece is missing, or it is no Arrow stream.
    """
    pieces = [transaction.get(_KEY.pack(entry.number, piece), db=table) for piece in range(entry.pieces)]
    try:
        with pa.ipc.open_stream(pa.py_buffer(b"".join(pieces))) as reader:
            return reader.read_next_batch()
    except (pa.ArrowInvalid, TypeError, StopIteration) as error:
        raise StoreCorruptedException(
            f"the journal of leg {entry.leg!r}, batch {entry.batch}, cannot be read ({error}); the store must be "
            "rebuilt from its changelog"
        ) from error


def drop(transaction: Any, table: Any, entry: JournalEntry) -> None:
    """Remove the changes."""
    for piece in range(entry.pieces):
        transaction.delete(_KEY.pack(entry.number, piece), db=table)
