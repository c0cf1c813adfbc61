"""What users ask an instance of its stores (KIP-67): the methods of ``KafkaStreams`` for interactive queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from sparkrelay.runtime.instance.plain_errors import plain_errors

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import DataFrame, Row, SparkSession

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.queries.instance_queries import InstanceQueries
    from sparkrelay.runtime.queries.local_stores import QueryScope
    from sparkrelay.runtime.queries.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata

__all__ = ["Queryable"]

Isolation = Literal["read_committed", "read_uncommitted"]


class Queryable:
    """An instance whose stores can be queried; any thread may do it, and no micro-batch waits for it."""

    #: Made when the instance has its processes.
    _queries: InstanceQueries
    _config: StreamsConfig
    _spark: SparkSession

    @property
    def store_names(self) -> tuple[str, ...]:
        """The stores of the pipeline whose rows can be queried."""
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
        """Return the row that a store has for a key, in the tasks of this instance; None where it has none.

        What a micro-batch changes shows once it is committed.

        Args:
            store: the store's name (:attr:`store_names`).
            key: the grouping column's value; of several columns a tuple in their order, or a dictionary.
            isolation: ``read_uncommitted`` shows what the micro-batch under way has changed; it may be taken back.
            stale: True to also ask a standby copy, or one that is being restored (KIP-535).
            max_lag: how many changelog offsets such a copy may lack; None for any number.
            partition: which one to look into, where something else than Kafka's default partitioner wrote the topic.

        Raises:
            UnknownStateStoreException: there is no such store.
            SerializationException: the key has other columns or types.
            InvalidStateStorePartitionException: another instance has the key.
            StateStoreNotAvailableException: its task is being restored, or lags too far behind.
            StreamsNotStartedException: the instance does not run.
        """
        return self._queries.query(store, key, _scope(isolation, stale, max_lag, partition))

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
            key: the other grouping columns' values, as :meth:`query` has them; None for those of all keys here.
            from_: the first window's beginning, with a time zone, or milliseconds since 1970; None: the oldest.
            to: the last one's; it counts, too.
            limit: how many rows at most.
            isolation: as :meth:`query` has it, and what follows.
            stale: likewise.
            max_lag: likewise.
            partition: likewise.

        Raises:
            InvalidStateStoreException: as :meth:`query`, or the store has no windows.
            SerializationException: the key has other columns or types.
        """
        scope = _scope(isolation, stale, max_lag, partition)
        return self._queries.fetch(store, key, from_, to, limit, scope)

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
        """Return the rows from one key to another, both included, that this instance has; all without any.

        They come task by task, and in the order of the keys within each.

        Args:
            store: the store's name.
            from_: the first key, as :meth:`query` has it.
            to: the last one.
            limit: how many rows at most.
            isolation: as :meth:`query` has it, and what follows.
            stale: likewise.
            max_lag: likewise.
            partition: likewise.

        Raises:
            InvalidStateStoreException: as :meth:`query`, or bounds were given for a store with windows.
            SerializationException: a key has other columns or types.
        """
        return self._queries.range(store, from_, to, limit, _scope(isolation, stale, max_lag, partition))

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
        """Return the rows of a store that this instance has, as they are now, as a DataFrame.

        Args:
            store: the store's name.
            everywhere: True for the rows of all instances, which those with ``application.server`` are asked for.
            isolation: as :meth:`query` has it, and what follows.
            stale: likewise.
            max_lag: likewise.

        Raises:
            InvalidStateStoreException: as :meth:`query`.
        """
        from sparkrelay.runtime.queries.routing import all_rows  # noqa: PLC0415 - as in KafkaStreams

        scope = _scope(isolation, stale, max_lag, None)
        return self._spark.createDataFrame(all_rows(self._queries, self._config, store, scope, everywhere=everywhere))

    @plain_errors
    def query_metadata_for_key(self, store: str, key: Any) -> KeyQueryMetadata:
        """Return which instances have a key of a store: where its task runs, where its standby copies are (KIP-535).

        It says what the newest assignment says, and goes by Kafka's default partitioner.

        Args:
            store: the store's name.
            key: as :meth:`query` has it; a window may be left out.

        Raises:
            UnknownStateStoreException: there is no such store.
            SerializationException: the key has other columns or types.
            StreamsNotStartedException: the instance does not run.
        """
        return self._queries.key_metadata(store, key)

    def metadata_for_all_streams_clients(self) -> tuple[StreamsMetadata, ...]:
        """Return what each instance of the group has that says where it can be asked (``application.server``)."""
        return tuple(self._queries.group.all())

    def streams_metadata_for_store(self, store: str) -> tuple[StreamsMetadata, ...]:
        """Return those of :meth:`metadata_for_all_streams_clients` that have a store, or a standby copy of it."""
        return tuple(
            one
            for one in self.metadata_for_all_streams_clients()
            if store in one.state_store_names or store in one.standby_state_store_names
        )

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far the copies of this instance are behind: store -> partition -> lag (KIP-535).

        Ends of changelogs are as of the last look, which a standby takes about once a second.
        """
        return self._queries.lags()


def _scope(isolation: Isolation, stale: bool, max_lag: int | None, partition: int | None) -> QueryScope:
    from sparkrelay.runtime.queries.local_stores import QueryScope  # noqa: PLC0415 - as in KafkaStreams

    return QueryScope(isolation, stale, max_lag, None if partition is None else frozenset({partition}))
