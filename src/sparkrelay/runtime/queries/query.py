"""One query of a store, what it reads, and its answer: here, on an executor or over HTTP."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.operators.table.search import key_spans
from sparkrelay.records.keys import key_bytes
from sparkrelay.state.lmdb.rows import as_binary
from sparkrelay.state.reader import UNCOMMITTED
from sparkrelay.state.window_keys import ENDLESS, over

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sparkrelay.operators.table.reading import StoreReading
    from sparkrelay.runtime.queries.store_keys import KeptKeys

    Keep = Callable[[pa.RecordBatch], pa.Array]

#: The ``row`` of a key; the ``windows`` of one key or of all; the ``rows`` from one key to another; or a ``page``:
#: some rows of the one partition of the scope, in the store's order.
Kind = Literal["row", "windows", "rows", "page"]


@dataclass(frozen=True, slots=True)
class QueryScope:
    """Which copies may answer, and what they show.

    Attributes:
        isolation: ``read_committed``, or ``read_uncommitted`` to include the changes of an open micro-batch.
        stale: whether standbys and restoring copies may answer where the active task does not.
        max_lag: offsets that such a copy may lack; None for any number.
        partitions: partitions to read; None for the key's partition, or for all local ones.
    """

    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"
    stale: bool = False
    max_lag: int | None = None
    partitions: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if self.isolation not in {"read_committed", "read_uncommitted"}:
            raise ValueError(f"isolation={self.isolation!r} must be 'read_committed' or 'read_uncommitted'")
        if self.max_lag is not None and self.max_lag < 0:
            raise ValueError(f"max_lag={self.max_lag} must be 0 or more")


@dataclass(frozen=True, slots=True)
class Query:
    """A query of one store.

    Attributes:
        kind: see :data:`Kind`.
        key: all columns of a row's key, or those of a window's key without the window; None for all keys.
        span: first and last key of ``rows``, both included; None: no bound.
        times: start of the first and of the last of the ``windows``, ms since 1970; None: no bound.
        after: end of the previous page (``StoreRead.following``); empty for the first one.
        limit: most rows to return; None for all.
        as_json: whether a ``row`` is wanted as JSON.
        text: the key as spelt in the path of an HTTP request; with its ``parameters``, for other instances.
    """

    keys: KeptKeys
    scope: QueryScope
    kind: Kind
    key: pa.RecordBatch | None = None
    span: tuple[pa.RecordBatch | None, pa.RecordBatch | None] = (None, None)
    times: tuple[int | None, int | None] = (None, None)
    after: bytes = b""
    limit: int | None = None
    as_json: bool = False
    text: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def store(self) -> str:
        """The store's name."""
        return self.keys.spec.store

    def batch(self, committed: int | None) -> int | None:
        """Return the batch as of which to read a task's store, for ``StoreReader.read``."""
        return UNCOMMITTED if self.scope.isolation == "read_uncommitted" else committed

    def readings(self, reading: StoreReading) -> tuple[list[StoreReading], Keep | None]:
        """Return what to read of a task for many rows, and a filter where that is more than what is wanted."""
        layout, (first, last) = self.keys.layout, self.times
        if self.kind == "windows" and self.key is not None and layout.window is not None and not layout.sessions:
            return [reading._replace(what="windows", key=self.key, from_ms=first, to_ms=last)], None
        spans: list[tuple[bytes, bytes | None]] = [(b"", None)]
        keep = None
        if self.kind == "page":
            spans = [layout.span_behind(self.after)]
        elif self.kind == "windows":
            keep = _windows(self)
            if layout.window is not None and first is not None:
                # A window ends after it starts.
                spans = [(over(first), ENDLESS)]
        elif self.keys.window is not None or not layout.in_key_order:
            keep = _between(self)
        else:
            spans = [layout.span_of(part) for part in key_spans(layout.keys, *self.span)]
        return [reading._replace(start=start, stop=stop) for start, stop in spans], keep


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one instance, or of several.

    Attributes:
        rows: rows of the store; None if ``text`` is set.
        tasks: position and lag of each task that answered, as JSON has them.
        truncated: whether the answer leaves rows out.
        following: start of the next page; None after the last one.
        text: the one row as JSON.
    """

    rows: pa.RecordBatch
    tasks: list[dict[str, Any]]
    truncated: bool = False
    following: bytes | None = None
    text: bytes | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is no row."""
        return self.text is None and not self.rows.num_rows

    @property
    def lag(self) -> float:
        """Largest lag of the copies that answered, in offsets."""
        # An instance with very many copies reports only their number.
        lags = [task.get("lag", 0) for task in self.tasks]
        return max((math.inf if lag is None else lag for lag in lags), default=0)

    @property
    def may_lack(self) -> bool:
        """Whether the answer may be empty only because a copy lags behind."""
        return self.is_empty and self.lag > 0


def _windows(query: Query) -> Keep:
    """Return a filter for rows of the key whose windows start between two times."""
    keys, times = query.keys, query.times
    wanted = None if query.key is None else as_binary(key_bytes(query.key.columns))[0]

    def keep(rows: pa.RecordBatch) -> pa.Array:
        begun = pc.struct_field(rows.column(keys.window), "start").cast(pa.timestamp("us", "UTC"))
        kept = begun.is_valid()
        for ms, compare in zip(times, (pc.greater_equal, pc.less_equal), strict=True):
            if ms is not None:
                kept = pc.and_(kept, pc.fill_null(compare(begun, pa.scalar(ms * 1000, begun.type)), False))
        if wanted is not None:
            own = as_binary(key_bytes([rows.column(name) for name in keys.plain.names]))
            kept = pc.and_(kept, pc.fill_null(pc.equal(own, wanted), False))
        return kept

    return keep


def _between(query: Query) -> Keep | None:
    """Return a filter for rows in a range of keys, for stores that are not in key order."""
    if query.span == (None, None):
        return None
    names = query.keys.schema.names
    spans = key_spans(query.keys.schema, *query.span)

    def keep(rows: pa.RecordBatch) -> pa.Array:
        encoded = as_binary(key_bytes([rows.column(name) for name in names]))
        return pa.array([any(start <= key < stop for start, stop in spans) for key in encoded.to_pylist()], pa.bool_())

    return keep
