"""Layout of a table in its store: its columns, and how they are encoded as keys and values.

A layout is independent of pipeline and cluster. It is all that queries and readers of a changelog need to decode rows;
a changelog describes its store by its layout (``operators.descriptions``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from sparkrelay.records.keys import key_columns
from sparkrelay.records.type_names import fields_json
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.event_times import window_ends
from sparkrelay.state.byte_arrays import big_endian
from sparkrelay.state.window_keys import ENDLESS, message_keys, over, window_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from sparkrelay.state.reader import StoreSnapshot


class Codec(Protocol):
    """Decodes the values of a store, and merges a micro-batch into them."""

    def partial(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return a row for each key: its key columns, and the partial result that :meth:`merge` takes."""

    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Return the new values, and the output columns, the timestamp last.

        If rows can be deleted, two columns follow: which rows are deleted, and which changed.
        """

    def results(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of stored values, null for null, then their timestamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Layout of a table in its store.

    Attributes:
        store: the store's name.
        keys: Arrow schema of the grouping columns.
        row: Arrow schema of the other columns.
        window: the grouping column that is a window, whose end begins the store's keys; None without windows.
        partitioned_by: the grouping columns that make the message key and thus decide the task; None if they are not
            all unchanged.
        repartitioned_by: the columns that partition the repartition topic upstream; empty: the message key.
        holds: the store's contents if they cannot be read as rows; else empty.
    """

    store: str
    keys: pa.Schema
    row: pa.Schema
    window: str | None = None
    partitioned_by: tuple[str, ...] | None = None
    repartitioned_by: tuple[str, ...] = ()

    holds: ClassVar[str] = ""

    @property
    def sessions(self) -> bool:
        """Whether windows are sessions, which merge when they touch."""
        return False

    @property
    def columns(self) -> pa.Schema:
        """Columns of a row, grouping columns first."""
        return pa.schema([*self.keys, *self.row])

    @property
    def codec(self) -> Codec:
        """Codec of the store's values."""
        raise NotImplementedError

    @property
    def has_values(self) -> bool:
        """Whether values of groups have keys of their own."""
        return False

    @property
    def lies_apart(self) -> bool:
        """Whether a row is made of several entries of the store."""
        return self.has_values

    @property
    def in_key_order(self) -> bool:
        """Whether rows without windows are sorted by message key."""
        return True

    @property
    def found_by_key(self) -> bool:
        """Whether a row is one entry whose key is the message key."""
        return not self.lies_apart and self.window is None

    def described(self) -> dict[str, Any]:
        """Return the layout as JSON, for the changelog.

        Raises:
            ValueError: a type has no JSON name.
        """
        if self.holds:
            return {"holds": self.holds}
        said: dict[str, Any] = {
            "key": {"type": "struct", "fields": fields_json(self.keys)},
            "value": {"type": "struct", "fields": fields_json(self.row)},
            "partitionedBy": list(self.repartitioned_by),
            **self.said(),
        }
        if self.window is not None:
            said["window"] = {"column": self.window, "sessions": self.sessions}
        return said

    def said(self) -> dict[str, Any]:
        """Return the description besides the columns."""
        return {"table": True, "aggregates": [], "changes": False}

    # -- keys of the store ----------------------------------------------------------------------------------------

    def ends(self, keys: Sequence[pa.Array]) -> pa.Array | None:
        """Return the encoded ends of windows, by grouping columns; None without windows."""
        return None if self.window is None else big_endian(self._ends_ms(keys))

    def stored(self, keys: Sequence[pa.Array], encoded: pa.Array) -> pa.Array:
        """Return the store's keys of rows, by grouping columns and message keys."""
        return encoded if self.window is None else window_keys(self._ends_ms(keys), encoded)

    def _ends_ms(self, keys: Sequence[pa.Array]) -> NDArray[np.int64]:
        return window_ends(keys[self.keys.get_field_index(self.window)])

    def span(self, expired_ms: int) -> tuple[bytes, bytes | None]:
        """Return the range of the store's keys that has its rows.

        Args:
            expired_ms: windows with ends up to this have expired, even if they are not deleted yet.
        """
        return (b"", None) if self.window is None else (over(expired_ms), ENDLESS)

    def span_of(self, span: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return the range of the store's keys for a range of message keys, in a store without windows."""
        return span

    def span_behind(self, after: bytes) -> tuple[bytes, bytes | None]:
        """Return the range of the store's keys with the rows after ``after``."""
        return after, None

    def behind(self, key: bytes) -> bytes:
        """Return the lowest key after all entries of the row of ``key``."""
        return key + b"\x00"

    # -- rows of the store ----------------------------------------------------------------------------------------

    def groups(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the message keys and values of the rows in ``key, value`` of the store."""
        keys, values = stored.columns
        return stored if self.window is None else pa.record_batch([message_keys(keys), values], ["key", "value"])

    def results(self, groups: pa.RecordBatch, stored: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of rows without their key, then their timestamps.

        Args:
            groups: the rows (:meth:`groups`).
            stored: ``key, value`` of the store, with all entries of these rows.

        Raises:
            SerializationException: a result is too large; the message names the group.
        """
        del stored
        return self.codec.results(groups.column("value"))

    def rows(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Decode rows of the store.

        Args:
            stored: ``key, value`` of the store, sorted by key, with all entries of these rows.

        Raises:
            StoreCorruptedException: a value is malformed.
            SerializationException: a key is malformed, or a result is too large.
        """
        groups = self.groups(stored)
        keys = key_columns(groups.column("key"), self.keys)
        # The last result is the newest timestamp, which is not a user's column.
        return laid_out([*keys, *self.results(groups, stored)[:-1]], self.columns)

    def no_rows(self) -> pa.RecordBatch:
        """Return an empty batch with the schema of :meth:`rows`."""
        return pa.RecordBatch.from_pylist([], self.columns)

    def row_of(self, snapshot: StoreSnapshot, key: pa.RecordBatch, encoded: pa.Array) -> pa.RecordBatch:
        """Return the row of a key, if it exists; for layouts that ``lies_apart``.

        Args:
            snapshot: the store.
            key: key columns.
            encoded: the same as a message key.
        """
        raise NotImplementedError

    def complete(self, snapshot: StoreSnapshot, found: pa.RecordBatch) -> pa.RecordBatch:
        """Add the missing entries of rows that were found in a range of the store's keys."""
        del snapshot
        return found
