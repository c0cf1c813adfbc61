"""Layout of a table with a history: the rows of a key are adjacent, newest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from sparkrelay.operators.latest.layout import LatestLayout
from sparkrelay.state import versions
from sparkrelay.state.key_parts import key_parts

if TYPE_CHECKING:
    from sparkrelay.state.reader import StoreSnapshot

#: Greater than every time of a key.
_BEHIND: Final = b"\xff" * 9


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLayout(LatestLayout):
    """Layout of a table with a history.

    Attributes:
        history_ms: how long it keeps older versions of rows.
    """

    history_ms: int

    @property
    def lies_apart(self) -> bool:
        """Whether a row is made of several entries of the store."""
        return True

    @property
    def in_key_order(self) -> bool:
        """Whether rows are sorted by message key: no, their keys begin with a length."""
        return False

    def said(self) -> dict[str, Any]:
        """Return the description besides the columns."""
        return {**LatestLayout.said(self), "historyMs": self.history_ms}

    def span(self, expired_ms: int) -> tuple[bytes, bytes | None]:
        """Return the range of the store's keys that has its rows."""
        del expired_ms
        return versions.VERSIONS

    def behind(self, key: bytes) -> bytes:
        """Return the lowest key after all versions of the row of ``key``."""
        return versions.VERSIONS[0] + versions.key_part(key) + _BEHIND

    def groups(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the message keys and values of the newest rows, without deleted ones."""
        kept, last = [], b""
        for key, value in zip(stored.column("key").to_pylist(), stored.column("value").to_pylist(), strict=True):
            first, last = versions.key_part(key) != last, versions.key_part(key)
            kept.append(first and value != versions.DELETED)
        some = stored.filter(pa.array(kept, pa.bool_()))
        return pa.record_batch([versions.plain_keys(some.column("key")), some.column("value")], ["key", "value"])

    def row_of(self, snapshot: StoreSnapshot, key: pa.RecordBatch, encoded: pa.Array) -> pa.RecordBatch:
        """Return the newest row of a key, if it exists."""
        del key
        (part,) = key_parts(encoded).to_pylist()
        start = versions.VERSIONS[0] + part
        return self.rows(snapshot.between(start, start + _BEHIND, 1))
