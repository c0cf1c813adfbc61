"""How a table lies in its store: which columns it has, and how the store's keys and values are made of them.

A layout knows nothing of a pipeline or a cluster. Queries, and readers of a changelog, need nothing else to make rows
of what a store holds; a changelog describes its store by one (``operators.descriptions``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pyarrow as pa

from sparkrelay.operators.watermarks import end_fronts, message_keys, stored_keys
from sparkrelay.records.keys import key_columns
from sparkrelay.records.type_names import fields_json
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.state.watermarks import ENDLESS, over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.state.reader import StoreSnapshot

__all__ = ["Codec", "TableLayout"]


class Codec(Protocol):
    """Reads the values of a store, and merges those of a micro-batch with them."""

    def partial(self, rows: pa.Table, keys: Sequence[str]) -> pa.Table:
        """Return what the rows of each key come to: its key columns, and what :meth:`merge` needs."""

    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Return the new values, and the columns that go on, the timestamp behind them.

        Of a table whose rows may be deleted, two more columns say which rows are deleted, and which have changed.
        """

    def results(self, values: pa.Array) -> list[pa.Array]:
        """Return the columns of stored values, null where there is none, and last their timestamps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """How a table lies in its store.

    Attributes:
        store: the store's name.
        keys: Arrow schema of the columns that group.
        row: of the columns behind them.
        window: the grouping column that is a window which ends: the store's keys begin with that end. None: none is.
        partitioned_by: the grouping columns that decide in which task a group is, as the keys of messages are made of
            them; None where they are not all there as they were.
        repartitioned_by: the columns by which a repartition topic in front of it is partitioned; none: the message key.
        holds: what the store holds in place of rows that can be read; empty where it holds those.
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
        """Whether windows are sessions, which merge where they touch."""
        return False

    @property
    def columns(self) -> pa.Schema:
        """The columns of a row: those that group, then the others."""
        return pa.schema([*self.keys, *self.row])

    @property
    def codec(self) -> Codec:
        """What reads and merges the store's values."""
        raise NotImplementedError

    @property
    def has_values(self) -> bool:
        """Whether the store also has values of groups, as keys of their own."""
        return False

    @property
    def lies_apart(self) -> bool:
        """Whether what a row is made of stands in several places, so that all of them are needed at once."""
        return self.has_values

    @property
    def in_key_order(self) -> bool:
        """Whether rows without windows stand in the order of their message keys."""
        return True

    @property
    def found_by_key(self) -> bool:
        """Whether a row stands under its message key as it is."""
        return not self.lies_apart and self.window is None

    def described(self) -> dict[str, Any]:
        """Return what a changelog says of the layout, as JSON has it.

        Raises:
            ValueError: a type has no name there.
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
        """Return what :meth:`described` says beside the columns."""
        return {"table": True}

    # -- keys of the store ----------------------------------------------------------------------------------------

    def ends(self, keys: Sequence[pa.Array]) -> pa.Array | None:
        """Return what the store's keys begin with, by grouping columns: the ends of their windows; None without."""
        return None if self.window is None else end_fronts(keys[self.keys.get_field_index(self.window)])

    def stored(self, keys: Sequence[pa.Array], encoded: pa.Array) -> pa.Array:
        """Return the store's keys of rows, by their grouping columns and their message keys."""
        return encoded if self.window is None else stored_keys(keys[self.keys.get_field_index(self.window)], encoded)

    def span(self, expired_ms: int) -> tuple[bytes, bytes | None]:
        """Return the range of the store's keys in which its rows stand.

        Args:
            expired_ms: by when windows have ended that no longer count, though they are there until their turn comes.
        """
        return (b"", None) if self.window is None else (over(expired_ms), ENDLESS)

    def span_of(self, span: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
        """Return where rows of a range of message keys stand, in a store without windows that end."""
        return span

    def span_behind(self, after: bytes) -> tuple[bytes, bytes | None]:
        """Return the range of the store's keys in which rows stand behind ``after``."""
        return after, None

    def behind(self, key: bytes) -> bytes:
        """Return the first of the store's keys behind all that is of the row of ``key``."""
        return key + b"\x00"

    # -- rows of the store ----------------------------------------------------------------------------------------

    def groups(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the message keys of rows, and their values, out of ``key, value`` of the store."""
        keys, values = stored.columns
        return stored if self.window is None else pa.record_batch([message_keys(keys), values], ["key", "value"])

    def results(self, groups: pa.RecordBatch, stored: pa.RecordBatch) -> list[pa.Array]:
        """Return the columns of rows behind their key, and last their timestamps.

        Args:
            groups: the rows (:meth:`groups`).
            stored: ``key, value`` of the store, with all that is of these.

        Raises:
            SerializationException: a result would be too long; the message names the group.
        """
        del stored
        return self.codec.results(groups.column("value"))

    def rows(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a store as people look at them.

        Args:
            stored: ``key, value`` of the store, in the order of keys, with all that is of these rows.

        Raises:
            StoreCorruptedException: a value is not of such a store.
            SerializationException: a key is not, or a result would be too long.
        """
        groups = self.groups(stored)
        keys = key_columns(groups.column("key"), self.keys)
        # The last result is the newest timestamp, which is no column of the user's.
        return laid_out([*keys, *self.results(groups, stored)[:-1]], self.columns)

    def no_rows(self) -> pa.RecordBatch:
        """Return rows as :meth:`rows` does, but none."""
        return pa.RecordBatch.from_pylist([], self.columns)

    def row_of(self, snapshot: StoreSnapshot, key: pa.RecordBatch, encoded: pa.Array) -> pa.RecordBatch:
        """Return the row of a key, if there is one, where it lies apart.

        Args:
            snapshot: of the store.
            key: its columns.
            encoded: the same as a message key.
        """
        raise NotImplementedError

    def complete(self, snapshot: StoreSnapshot, found: pa.RecordBatch) -> pa.RecordBatch:
        """Return what was found in a range of the store's keys, with all that is of these rows beside it."""
        del snapshot
        return found
