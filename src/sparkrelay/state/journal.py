"""The journal of a leg: what it takes to take a batch back.

Of each entry of the header it keeps the changed keys with the values they had, as an Arrow IPC stream, cut into pieces
of 64 KiB: LMDB needs neighbouring free pages for each value, and large holes are hard to find in a file that has been
written to for a while.
"""

from __future__ import annotations

import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.state.header import JournalEntry

__all__ = ["drop", "read", "write"]

_PIECE_BYTES: Final = 64 << 10
_NAME: Final = b"sparkrelay.name"
_KEY = struct.Struct(">II")


def write(
    transaction: Any,
    table: Any,
    number: int,
    changes: pa.RecordBatch,
    beside: Mapping[str, pa.RecordBatch] = MappingProxyType({}),
) -> int:
    """Store the changes of journal ``number``; return the count of their pieces.

    Args:
        transaction: of the environment.
        table: of journals.
        number: the journal's.
        changes: ``key, old``: with them the batch is taken back.
        beside: by name, rows for other legs of the batch; each is a stream of its own behind that of the changes.
    """
    sink = pa.BufferOutputStream()
    for batch in (changes, *(_named(batch, name) for name, batch in beside.items())):
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
    data = memoryview(sink.getvalue())
    pieces = 0
    for start in range(0, len(data), _PIECE_BYTES):
        transaction.put(_KEY.pack(number, pieces), data[start : start + _PIECE_BYTES], db=table)
        pieces += 1
    return pieces


def read(transaction: Any, table: Any, entry: JournalEntry) -> tuple[pa.RecordBatch, dict[str, pa.RecordBatch]]:
    """Return the changes, and what stands beside them.

    Raises:
        StoreCorruptedException: a piece is missing, or it is no Arrow stream.
    """
    pieces = [transaction.get(_KEY.pack(entry.number, piece), db=table) for piece in range(entry.pieces)]
    try:
        data = pa.BufferReader(pa.py_buffer(b"".join(pieces)))
        changes, beside = _next(data), {}
        while data.tell() < data.size():
            batch = _next(data)
            beside[batch.schema.metadata[_NAME].decode()] = batch
    except (pa.ArrowInvalid, KeyError, TypeError, StopIteration) as error:
        raise StoreCorruptedException(
            f"the journal of leg {entry.leg!r}, batch {entry.batch}, cannot be read ({error}); the store must be "
            "rebuilt from its changelog"
        ) from error
    return changes, beside


def drop(transaction: Any, table: Any, entry: JournalEntry) -> None:
    """Remove the changes."""
    for piece in range(entry.pieces):
        transaction.delete(_KEY.pack(entry.number, piece), db=table)


def _named(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    return batch.replace_schema_metadata({_NAME: name})


def _next(data: pa.BufferReader) -> pa.RecordBatch:
    """Return the one record batch of the next stream, which is read to its end."""
    with pa.ipc.open_stream(data) as reader:
        batch = reader.read_next_batch()
        for _ in reader:
            raise pa.ArrowInvalid("it has several record batches")
        return batch
