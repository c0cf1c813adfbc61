"""What an instance answers of its stores, as Python values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row

from sparkrelay.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    StreamsNotStartedException,
)
from sparkrelay.runtime.compile.queryable_stores import QueryableStores
from sparkrelay.runtime.queries.local_stores import LocalStores, LocalTask, Query, QueryScope
from sparkrelay.runtime.queries.metadata import KeyQueryMetadata
from sparkrelay.runtime.queries.process_tasks import (
    global_tasks,
    group_metadata,
    local_tasks,
    partition_lags,
)
from sparkrelay.runtime.queries.store_keys import KeptKeys, as_milliseconds

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.process.process_threads import ProcessThreads
    from sparkrelay.runtime.queries.metadata import GroupMetadata, LagInfo

__all__ = ["InstanceQueries", "as_row"]


class InstanceQueries:
    """One instance's. Any thread may call it."""

    def __init__(
        self,
        context: RuntimeContext,
        *,
        processes: Callable[[], Sequence[ProcessThreads]],
        state: Callable[[], str],
        alive: Callable[[], bool],
    ) -> None:
        """Take what there is to ask.

        Args:
            context: the instance's.
            processes: gives its processes.
            state: gives its state.
            alive: says whether it is part of its group.
        """
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
        # A query asks for them several times, and they change when a process comes or goes.
        if len(known) != len(plans) or any(one is not other for one, other in zip(known, plans, strict=True)):
            stores = QueryableStores(self._context.topology, [some for some in plans if some is not None])
            self._known = plans, stores
        return stores

    def query(self, store: str, key: Any, scope: QueryScope) -> Row | None:
        """Return the row of a key; see ``KafkaStreams.query``."""
        self.require_running()
        keys = self.local.keys(store)
        rows = self._rows(Query(keys, scope, "row", key=keys.columns(key)))
        return rows[0] if rows else None

    def fetch(  # noqa: PLR0917 - as they are needed
        self,
        store: str,
        key: Any,
        from_: dt.datetime | int | None,
        to: dt.datetime | int | None,
        limit: int | None,
        scope: QueryScope,
    ) -> list[Row]:
        """Return windows; see ``KafkaStreams.fetch``."""
        self.require_running()
        keys = self.local.keys(store)
        require_windows(keys)
        columns = None if key is None else keys.columns(key, keys.plain)
        times = as_milliseconds(from_, "from_"), as_milliseconds(to, "to")
        return self._rows(Query(keys, scope, "windows", key=columns, times=times, limit=limit))

    def range(self, store: str, first: Any, last: Any, limit: int | None, scope: QueryScope) -> list[Row]:
        """Return the rows of several keys; see ``KafkaStreams.range``."""
        self.require_running()
        keys = self.local.keys(store)
        if keys.window is not None and (first is not None or last is not None):
            raise InvalidStateStoreException(
                f"store {store!r} has a window among its grouping columns: fetch(store, key, from_=, to=) finds those "
                "that begin between two times"
            )
        first, last = (None if key is None else keys.columns(key) for key in (first, last))
        return self._rows(Query(keys, scope, "rows", span=(first, last), limit=limit))

    def key_metadata(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return which instances have a key; see ``KafkaStreams.query_metadata_for_key``."""
        self.require_running()
        keys = self.local.keys(store)
        # A window says nothing of the partition.
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
        """Where the group's tasks are."""
        return group_metadata(self._processes())

    def lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far the copies here are; see ``KafkaStreams.all_local_store_partition_lags``."""
        return partition_lags(self._processes())

    def _rows(self, query: Query) -> list[Row]:
        """Return what the copies here say, as Python values; who asks at the wrong instance learns which is right."""
        try:
            answers = self.local.answer(query)
        except InvalidStateStorePartitionException as error:
            if error.partition is None:
                raise
            host, standbys = self.group.hosts_of(query.keys.spec.subtopology, error.partition)
            where = "no instance says by application.server that it can be asked" if host is None else f"{host} has it"
            copies = f"; standby copies are at {', '.join(map(str, sorted(standbys)))}" if standbys else ""
            raise InvalidStateStorePartitionException(
                f"{error}; {where}{copies}", host=None if host is None else str(host), partition=error.partition
            ) from None
        try:
            return [as_row(row) for answer in answers for row in answer.rows.to_pylist()]
        except (OverflowError, ValueError) as error:
            raise InvalidStateStoreException(
                f"store {query.store!r} has a row of a time that no datetime holds, before the year 1 or behind 9999 "
                f"({error}): ask over HTTP, which answers in JSON, or for less, by from_ and to"
            ) from error

    def close(self) -> None:
        """Close what is open."""
        self.local.close()

    def require_running(self) -> None:
        """Refuse an instance that does not run.

        Raises:
            StreamsNotStartedException: it is not started yet, or has ended.
        """
        if not self._alive():
            state = self._state()
            when = "call start() first" if state == "CREATED" else "it has ended, or ends"
            raise StreamsNotStartedException(f"stores can be queried while the instance runs; it is {state}: {when}")

    def is_global(self, store: str) -> bool:
        """Return whether a store is a global table's, which each instance has whole."""
        return self.stores.is_global(store)

    def tasks(self, store: str) -> list[LocalTask]:
        """Return the tasks of this instance that a store is of; raises where they cannot be asked."""
        self.require_running()
        processes = self._processes()
        spec = self.stores.spec(store)
        timeout_s = self._context.config.queries_timeout_ms / 1000
        tasks = global_tasks if self.stores.is_global(store) else local_tasks
        return list(tasks(processes, spec.subtopology, timeout_s))


def require_windows(keys: KeptKeys) -> None:
    """Refuse a store without windows."""
    if keys.window is None:
        raise InvalidStateStoreException(
            f"store {keys.spec.store!r} has no windows: query(store, key) finds the row of a key, and "
            "range(store, from_, to) those of several"
        )


def as_row(value: Any) -> Any:
    """Return a row, and the structs in it, as PySpark has them."""
    if isinstance(value, dict):
        return Row(**{name: as_row(inner) for name, inner in value.items()})
    return [as_row(inner) for inner in value] if isinstance(value, list) else value
