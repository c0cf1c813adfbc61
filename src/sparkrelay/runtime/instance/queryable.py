"""The methods of ``KafkaStreams`` for interactive queries (KIP-67)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sparkrelay.runtime.instance.plain_errors import plain_errors

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import DataFrame, Row, SparkSession

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.queries.instance_queries import InstanceQueries
    from sparkrelay.runtime.queries.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
    from sparkrelay.runtime.queries.query import QueryScope

Isolation = Literal["read_committed", "read_uncommitted"]


class Queryable:
    """An instance whose stores can be queried, from any thread, without delaying a micro-batch."""

    #: Set once the instance has its processes.
    _queries: InstanceQueries
    _config: StreamsConfig
    _spark: SparkSession

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores of the pipeline that can be queried."""
        return self._queries.stores.names

    @plain_errors
    def query(
        self,
        store: str,
        key: Any,
        *,
        isolation: Isolation = "read_committed",
        stale: bool = False,
        max_lag: int | None = None,
        partition: int | None = None,
    ) -> Row | None:
        """Return the row of a key from this instance's tasks; None if there is none.

        Changes of a micro-batch become visible when it is committed.

        Args:
            store: the store's name (:attr:`store_names`).
            key: the value of the grouping column; of several columns a tuple in their order, or a dictionary.
            isolation: ``read_uncommitted`` includes changes of the current micro-batch, which may be undone.
            stale: whether a standby or restoring copy may answer (KIP-535).
            max_lag: changelog offsets that such a copy may lack; None for any number.
            partition: the partition to read, if the topic's producer does not use Kafka's default partitioner.

        Raises:
            UnknownStateStoreException: there is no such store.
            SerializationException: the key has other columns or types.
            InvalidStateStorePartitionException: another instance has the key.
            StateStoreNotAvailableException: the task is being restored, or lags too far behind.
            StreamsNotStartedException: the instance does not run.
        """
        rows = self._queries.rows("row", store, _scope(isolation, stale, max_lag, partition), key=key)
        return rows[0] if rows else None

    @plain_errors
    def fetch(
        self,
        store: str,
        key: Any = None,
        *,
        from_: dt.datetime | int | None = None,
        to: dt.datetime | int | None = None,
        limit: int | None = None,
        isolation: Isolation = "read_committed",
        stale: bool = False,
        max_lag: int | None = None,
        partition: int | None = None,
    ) -> list[Row]:
        """Return the windows of a key that begin between two times, as Kafka Streams' window stores do.

        Args:
            store: a store with a window among its grouping columns.
            key: values of the other grouping columns, as for :meth:`query`; None for all local keys.
            from_: start of the first window, with a time zone, or in milliseconds since 1970; None for the oldest.
            to: start of the last window, included; None for the newest.
            limit: most rows to return.
            isolation: as for :meth:`query`, like the rest.
            stale: as for :meth:`query`.
            max_lag: as for :meth:`query`.
            partition: as for :meth:`query`.

        Raises:
            InvalidStateStoreException: as for :meth:`query`, or the store has no windows.
            SerializationException: the key has other columns or types.
        """
        scope = _scope(isolation, stale, max_lag, partition)
        return self._queries.rows("windows", store, scope, key=key, times=(from_, to), limit=limit)

    @plain_errors
    def range(
        self,
        store: str,
        from_: Any = None,
        to: Any = None,
        *,
        limit: int | None = None,
        isolation: Isolation = "read_committed",
        stale: bool = False,
        max_lag: int | None = None,
        partition: int | None = None,
    ) -> list[Row]:
        """Return this instance's rows between two keys, both included; all rows without bounds.

        Rows are grouped by task, and in key order within each.

        Args:
            store: the store's name.
            from_: the first key, as for :meth:`query`.
            to: the last key.
            limit: most rows to return.
            isolation: as for :meth:`query`, like the rest.
            stale: as for :meth:`query`.
            max_lag: as for :meth:`query`.
            partition: as for :meth:`query`.

        Raises:
            InvalidStateStoreException: as for :meth:`query`, or bounds were given for a store with windows.
            SerializationException: a key has other columns or types.
        """
        scope = _scope(isolation, stale, max_lag, partition)
        return self._queries.rows("rows", store, scope, span=(from_, to), limit=limit)

    @plain_errors
    def store(
        self,
        store: str,
        *,
        everywhere: bool = False,
        isolation: Isolation = "read_committed",
        stale: bool = False,
        max_lag: int | None = None,
    ) -> DataFrame:
        """Return the current rows of a store as a DataFrame.

        Args:
            store: the store's name.
            everywhere: True for the rows of all instances, which need ``application.server``; False for this one's.
            isolation: as for :meth:`query`, like the rest.
            stale: as for :meth:`query`.
            max_lag: as for :meth:`query`.

        Raises:
            InvalidStateStoreException: as for :meth:`query`.
        """
        from sparkrelay.runtime.queries.routing import all_rows  # noqa: PLC0415 - as in KafkaStreams

        scope = _scope(isolation, stale, max_lag, None)
        return self._spark.createDataFrame(all_rows(self._queries, self._config, store, scope, everywhere=everywhere))

    @plain_errors
    def query_metadata_for_key(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return the hosts of a key's task and of its standby copies (KIP-535).

        The answer follows the newest assignment and Kafka's default partitioner.

        Args:
            store: the store's name.
            key: as for :meth:`query`; the window may be left out.

        Raises:
            UnknownStateStoreException: there is no such store.
            SerializationException: the key has other columns or types.
            StreamsNotStartedException: the instance does not run.
        """
        return self._queries.key_metadata(store, key)

    def metadata_for_all_streams_clients(self) -> tuple[StreamsMetadata, ...]:
        """Return the stores and partitions of each instance of the group that has an ``application.server``."""
        return tuple(self._queries.group.all())

    def streams_metadata_for_store(self, store: str) -> tuple[StreamsMetadata, ...]:
        """Return the metadata of the instances that have a store or a standby copy of it."""
        return tuple(
            one
            for one in self.metadata_for_all_streams_clients()
            if store in one.state_store_names or store in one.standby_state_store_names
        )

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return the lag of this instance's copies: store -> partition -> lag (KIP-535).

        Changelog ends are as last read; a standby reads them about once a second.
        """
        return self._queries.lags()


def _scope(isolation: Isolation, stale: bool, max_lag: int | None, partition: int | None) -> QueryScope:
    from sparkrelay.runtime.queries.query import QueryScope  # noqa: PLC0415 - as in KafkaStreams

    return QueryScope(isolation, stale, max_lag, None if partition is None else frozenset({partition}))
