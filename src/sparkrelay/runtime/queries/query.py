"""One query of a store and its answer, whichever way the rows are read: here, on an executor or over HTTP."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from sparkrelay.state.reader import UNCOMMITTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sparkrelay.runtime.queries.store_keys import KeptKeys

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
