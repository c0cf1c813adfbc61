"""A header's record in its store, which a process reads and writes in every transaction.

Most of it is unchanged from one micro-batch to the next, and mostly it is read by the process that wrote it. So the
last record is kept, and only changes are encoded.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.state.header import HEADER_VERSION, TaskHeader

if TYPE_CHECKING:
    from sparkrelay.state.lmdb.table import Table
    from sparkrelay.state.packing import KnownParts

#: The record's key.
_KEY: Final = b"header"
#: LMDB's record of a table (struct MDB_db); its last field but one is the number of rows.
_TABLE_RECORD: Final = struct.Struct("<IHHQQQQQ")


class HeaderRecord:
    """The header's record in one store, in table ``meta``."""

    def __init__(self, meta: Table) -> None:
        self._meta = meta
        self._parts: KnownParts = {}
        #: The last record that was read or written, and its header.
        self._known: tuple[bytes, TaskHeader] = b"", TaskHeader()

    def load(self, transaction: Any) -> TaskHeader:
        """Return the header as of a transaction.

        Raises:
            StoreCorruptedException: it is damaged, of an unknown version, or missing although there are rows.
        """
        data = transaction.get(_KEY, db=self._meta.handle)
        if data is None:
            _require_no_rows(transaction, self._meta)
            return TaskHeader()
        record, header = self._known
        if data != record:
            # Other versions may have no checksum.
            of_this_version = data[:1] == bytes([HEADER_VERSION])
            content = self._meta.unseal(_KEY, data) if of_this_version else data
            header = TaskHeader.decode(content, f"the header of the state in {self._meta.path}")
            self._known = data, header
        return header

    def save(self, transaction: Any, header: TaskHeader) -> None:
        """Write the header within a transaction."""
        data = self._meta.seal(_KEY, header.encode(self._parts))
        transaction.put(_KEY, data, db=self._meta.handle)
        self._known = data, header


def _require_no_rows(transaction: Any, meta: Table) -> None:
    with transaction.cursor() as tables:
        for name, record in tables:
            fits = len(record) == _TABLE_RECORD.size
            if not fits or _TABLE_RECORD.unpack(record)[-2]:
                what = f"table {name.decode(errors='replace')!r} has rows" if fits else "its list of tables is none"
                raise meta.damaged(f"it has no header, and {what}")
