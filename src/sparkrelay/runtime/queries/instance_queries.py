"""Queries of one instance's stores, answered as Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StreamsNotStartedException,
)
from sparkrelay.runtime.compile.queryable_stores import QueryableStores
from sparkrelay.runtime.queries.local_stores import LocalStores, LocalTask
from sparkrelay.runtime.queries.metadata import KeyQueryMetadata
from sparkrelay.runtime.queries.process_tasks import global_tasks, group_metadata, local_tasks, partition_lags
from sparkrelay.runtime.queries.query import Query
from sparkrelay.runtime.queries.store_keys import KeptKeys, as_milliseconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.queries.metadata import GroupMetadata, LagInfo
    from sparkrelay.runtime.queries.query import Kind, QueryScope


class InstanceQueries:
    """The stores of one instance. Thread-safe."""

    def __init__(
        self,
        context: RuntimeContext,
        *,
        processes: Callable[[], Sequence[ProcessThreads]],
        state: Callable[[], str],
        alive: Callable[[], bool],
    ) -> None:
        self._context = context
        self._processes = processes
        self._state = state
        self._alive = alive
        self._known: tuple[list[Any], QueryableStores] = ([], QueryableStores(context.topology, []))
        self.local = LocalStores(lambda: self.stores, self.tasks)

    @property
    def stores(self) -> QueryableStores:
        """The pipeline's stores."""
        plans = [self._context.checked, *(process.global_plans for process in self._processes())]
        known, stores = self._known
        # Each query asks several times, and the answer changes only with the processes.
        if len(known) != len(plans) or any(one is not other for one, other in zip(known, plans, strict=True)):
            stores = QueryableStores(self._context.topology, [some for some in plans if some is not None])
            self._known = plans, stores
        return stores

    def rows(
        self,
        kind: Kind,
        store: str,
        scope: QueryScope,
        *,
        key: Any = None,
        span: tuple[Any, Any] = (None, None),
        times: tuple[dt.datetime | int | None, dt.datetime | int | None] = (None, None),
        limit: int | None = None,
    ) -> list[Row]:
        """Return the rows of the local copies; arguments as of ``Query``, as the methods of ``KafkaStreams`` get them.

        Raises:
            InvalidStateStorePartitionException: another instance has the key; names it if known.
        """
        self.require_running()
        keys = self.local.keys(store)
        if kind == "windows":
            require_windows(keys)
        elif keys.window is not None and span != (None, None):
            raise InvalidStateStoreException(
                f"store {store!r} has a window among its grouping columns: use fetch(store, key, from_=, to=) to find "
                "the windows that begin between two times"
            )
        every = kind == "rows" or (kind == "windows" and key is None)
        columns = None if every else keys.columns(key, keys.plain if kind == "windows" else keys.schema)
        first, last = (None if bound is None else keys.columns(bound) for bound in span)
        between = as_milliseconds(times[0], "from_"), as_milliseconds(times[1], "to")
        query = Query(keys, scope, kind, key=columns, span=(first, last), times=between, limit=limit)
        try:
            answers = self.local.answer(query)
        except InvalidStateStorePartitionException as error:
            if error.partition is None:
                raise
            host, standbys = self.group.hosts_of(keys.spec.subtopology, error.partition)
            where = "no instance with an application.server has it" if host is None else f"{host} has it"
            copies = f"; standby copies are at {', '.join(map(str, sorted(standbys)))}" if standbys else ""
            raise InvalidStateStorePartitionException(
                f"{error}; {where}{copies}", host=None if host is None else str(host), partition=error.partition
            ) from None
        try:
            return [as_row(row) for answer in answers for row in answer.read.rows.to_pylist()]
        except (OverflowError, ValueError) as error:
            raise InvalidStateStoreException(
                f"store {store!r} has a row with a time outside the years 1 to 9999, which a datetime cannot hold "
                f"({error}): query over HTTP, which answers in JSON, or narrow the query by from_ and to"
            ) from error

    def key_metadata(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return which instances have a key; see ``KafkaStreams.query_metadata_for_key``."""
        self.require_running()
        keys = self.local.keys(store)
        # The partition does not depend on the window.
        partial = keys.window is not None and not keys.fits(key)
        return self.located(keys, keys.columns(key, keys.plain if partial else keys.schema))

    def located(self, keys: KeptKeys, key: pa.RecordBatch) -> KeyQueryMetadata:
        """Return which instances have a key."""
        group = self.group
        width = group.width(keys.spec.subtopology)
        partition = keys.partition(key, width) if width else None
        if partition is None:
            return KeyQueryMetadata(None, frozenset(), None)
        return KeyQueryMetadata(*group.hosts_of(keys.spec.subtopology, partition), partition)

    @property
    def group(self) -> GroupMetadata:
        """The hosts of the group's tasks."""
        return group_metadata(self._processes())

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return the lag of each local copy: store -> partition -> lag."""
        return partition_lags(self._processes())

    def require_running(self) -> None:
        """Check that the instance runs; raises StreamsNotStartedException if it has not started or has ended."""
        if not self._alive():
            state = self._state()
            when = "call start() first" if state == "CREATED" else "it has ended, or ends"
            raise StreamsNotStartedException(f"stores can be queried while the instance runs; it is {state}: {when}")

    def is_global(self, store: str) -> bool:
        """Return whether the store is a global table's: each instance has all of it."""
        return self.stores.is_global(store)

    def tasks(self, store: str) -> list[LocalTask]:
        """Return this instance's tasks that keep a store."""
        self.require_running()
        spec = self.stores.spec(store)
        timeout_s = self._context.config.queries_timeout_ms / 1000
        tasks = global_tasks if self.stores.is_global(store) else local_tasks
        return list(tasks(self._processes(), spec.subtopology, timeout_s))


def require_windows(keys: KeptKeys) -> None:
    """Check that a store has windows; raises InvalidStateStoreException if it has none."""
    if keys.window is None:
        raise InvalidStateStoreException(
            f"store {keys.spec.store!r} has no windows: use query(store, key) for the row of a key, or "
            "range(store, from_, to) for several rows"
        )


def as_row(value: Any) -> Any:
    """Return a value with PySpark's Row for each struct."""
    if isinstance(value, dict):
        return Row(**{name: as_row(inner) for name, inner in value.items()})
    return [as_row(inner) for inner in value] if isinstance(value, list) else value
