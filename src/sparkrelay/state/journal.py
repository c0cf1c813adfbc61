"""Journals: the changed keys and old values by which batches are undone.

Each entry of the header has a journal, a sequence of Arrow IPC streams in pieces of 64 KiB: LMDB needs contiguous free
pages for a value, which are rare in a file with some history. A micro-batch may delete more than fits into memory (the
rows of a hot join key), so each stream holds some of the changes. Reading raises
StoreCorruptedException if a piece is missing, or is not an Arrow stream.
"""

from __future__ import annotations

import io
import itertools
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.errors import StoreCorruptedException

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sparkrelay.state.header import JournalEntry
    from sparkrelay.state.lmdb.table import Table

_PIECE_BYTES: Final = 64 << 10
_NAME: Final = b"sparkrelay.name"
_KEY = struct.Struct(">II")
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


def write(
    transaction: Any,
    table: Table,
    number: int,
    changes: Iterable[pa.RecordBatch],
    beside: Mapping[str, pa.RecordBatch] = MappingProxyType({}),
    *,
    pieces: int = 0,
) -> int:
    """Append changes to journal ``number``; return its number of pieces.

    Args:
        transaction: of the environment.
        table: of journals.
        number: the journal's.
        changes: ``key, old``, some at a time.
        beside: by name, rows for other legs of the batch, written after the changes.
        pieces: its number of pieces so far.
    """
    rest = b""
    for batch in itertools.chain(changes, (_named(batch, name) for name, batch in beside.items())):
        # The output of a stream writer, whose creation would cost as much as writing a small batch.
        data = memoryview(b"".join((rest, batch.schema.serialize(), batch.serialize(), _END_OF_STREAM)))
        while len(data) >= _PIECE_BYTES:
            _put(transaction, table, _KEY.pack(number, pieces), bytes(data[:_PIECE_BYTES]))
            data, pieces = data[_PIECE_BYTES:], pieces + 1
        rest = bytes(data)
    if rest:
        _put(transaction, table, _KEY.pack(number, pieces), rest)
        pieces += 1
    return pieces


def read(transaction: Any, table: Table, entry: JournalEntry) -> tuple[pa.RecordBatch, dict[str, pa.RecordBatch]]:
    """Return the changes, and the rows beside them by name."""
    changes, beside, at = [], {}, 0
    while (found := _next(transaction, table, entry, at)) is not None:
        batch, at = found
        if (name := _name_of(batch)) is None:
            changes.append(batch)
        else:
            beside[name] = batch
    return pa.concat_batches(changes), beside


def read_changes(transaction: Any, table: Table, entry: JournalEntry) -> Iterator[pa.RecordBatch]:
    """Yield the changes, some at a time, as :func:`read`."""
    at = 0
    while (found := read_next(transaction, table, entry, at)) is not None:
        batch, at = found
        yield batch


def read_next(transaction: Any, table: Table, entry: JournalEntry, at: int) -> tuple[pa.RecordBatch, int] | None:
    """Return the changes at a position of a journal, from 0 on, and the next position; None after the last."""
    found = _next(transaction, table, entry, at)
    return None if found is None or _name_of(found[0]) is not None else found


def _next(transaction: Any, table: Table, entry: JournalEntry, at: int) -> tuple[pa.RecordBatch, int] | None:
    """Return the record batch at a position of a journal, and the next position; None at the end."""
    pieces = _Pieces(transaction, table, entry, at)
    try:
        if not pieces.rest:
            return None
        with pa.ipc.open_stream(pieces) as reader:
            batch = reader.read_next_batch()
            for _ in reader:
                raise pa.ArrowInvalid("a stream of it has several record batches")
    except (pa.ArrowInvalid, OSError, StopIteration) as error:
        raise StoreCorruptedException(
            f"the journal of leg {entry.leg!r}, batch {entry.batch}, cannot be read ({error}); the store must be "
            "rebuilt from its changelog"
        ) from error
    return batch, pieces.at


def _put(transaction: Any, table: Table, key: bytes, piece: bytes) -> None:
    transaction.put(key, table.seal(key, piece), db=table.handle)


def drop(transaction: Any, table: Table, entry: JournalEntry) -> None:
    """Remove a journal."""
    for piece in range(entry.pieces):
        transaction.delete(_KEY.pack(entry.number, piece), db=table.handle)


def _named(batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
    return batch.replace_schema_metadata({_NAME: name})


def _name_of(batch: pa.RecordBatch) -> str | None:
    """Return the name of rows beside the changes; None for changes."""
    name = (batch.schema.metadata or {}).get(_NAME)
    return None if name is None else name.decode()


class _Pieces(io.RawIOBase):
    """The pieces of a journal as one file, read lazily; ``at`` is the position of the next byte."""

    def __init__(self, transaction: Any, table: Table, entry: JournalEntry, at: int) -> None:
        super().__init__()
        self._transaction = transaction
        self._table = table
        self._entry = entry
        self.at = at
        self._piece, self._number = memoryview(b""), -1

    @property
    def rest(self) -> memoryview:
        """The rest of the piece with the next byte; empty at the end."""
        number, behind = divmod(self.at, _PIECE_BYTES)
        while number < self._entry.pieces:
            if rest := self._piece_at(number)[behind:]:
                return rest
            # The last piece of a part need not be full.
            number, behind = number + 1, 0
            self.at = number * _PIECE_BYTES
        return memoryview(b"")

    def _piece_at(self, number: int) -> memoryview:
        if number != self._number:
            key = _KEY.pack(self._entry.number, number)
            sealed = self._transaction.get(key, db=self._table.handle)
            if sealed is None:
                raise pa.ArrowInvalid(f"piece {number} of {self._entry.pieces} is missing")
            self._piece, self._number = memoryview(self._table.unseal(key, sealed)), number
        return self._piece

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end."""
        parts = []
        while size and (rest := self.rest):
            parts.append(rest if size < 0 else rest[:size])
            self.at += len(parts[-1])
            size -= len(parts[-1])
        return b"".join(parts)
