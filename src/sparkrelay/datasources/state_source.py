"""``spark.read.format("sparkrelay-state")``: a store's table in any Spark application.

Out of its changelog, or, with ``mode=live``, as the instances that run answer for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.changelog_rows import changelog_rows
from sparkrelay.datasources.cluster import Cluster, client_settings, require_committed
from sparkrelay.datasources.key_values import WantedKeys, key_texts
from sparkrelay.datasources.live_store import Instances, LiveStore, find_store
from sparkrelay.datasources.options import Options
from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.datasources.projection import Projection, SpanPartition
from sparkrelay.datasources.tables import StoredTable, table
from sparkrelay.errors import ConfigException
from sparkrelay.protocol import HostInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["StateDataSource"]

#: As users write them; Spark passes them on in lower case.
_OPTIONS: Final = ("application.id", "storeName")
_LIVE_OPTIONS: Final = ("application.server", "storeName")
_MORE_LIVE_OPTIONS: Final = ("queries.token", "queries.timeout.ms")
_ALL_OPTIONS: Final = ("mode", "key", "keys", *_OPTIONS, *_LIVE_OPTIONS, *_MORE_LIVE_OPTIONS)
_MODES: Final = ("changelog", "live")
_TIMEOUT_MS: Final = "30000"


class StateDataSource(DataSource):
    """The rows of a store.

    Options: ``storeName``; ``application.id``, ``kafka.bootstrap.servers``, ``kafka.``...; or ``mode=live``,
    ``application.server``, ``queries.token``, ``queries.timeout.ms``. In both, ``key`` or ``keys``.

    Filters are Spark's alone: it keeps those that were passed to a source in Python in the reader that all
    DataFrames of one ``load()`` share (seen in Spark 4.3).
    """

    _found: StoredTable | LiveStore | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sparkrelay-state"

    @plain_errors
    def schema(self) -> StructType:
        """Return the columns of the store's table, by what its changelog or an instance says."""
        found = self._table()
        return from_arrow_schema(found.schema if isinstance(found, LiveStore) else found.layout.columns)

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads those of the columns that a schema names."""
        found = self._table()
        return (
            _LiveReader(found, schema, self._keys(found.keys))
            if isinstance(found, LiveStore)
            else _StateReader(self._settings(), found, schema, self._keys(found.layout.keys.names))
        )

    def _keys(self, columns: Sequence[str]) -> list[str] | None:
        return key_texts(Options(self.options, self.name(), _ALL_OPTIONS, of_path="storeName"), columns)

    def _settings(self) -> dict[str, Any]:
        settings = client_settings(self.options)
        require_committed(settings)
        return settings

    def _table(self) -> StoredTable | LiveStore:
        if self._found is None:
            options = Options(self.options, self.name(), _ALL_OPTIONS, of_path="storeName")
            mode = options.get("mode", _MODES[0])
            if mode not in _MODES:
                raise ConfigException(f"mode={mode!r} must be {' or '.join(_MODES)}")
            self._found = self._running(options) if mode == "live" else self._stored(options)
        return self._found

    def _stored(self, options: Options) -> StoredTable:
        options.refuse((_LIVE_OPTIONS[0], *_MORE_LIVE_OPTIONS), 'only option("mode", "live") asks instances')
        application_id, store = (options.required(name) for name in _OPTIONS)
        settings = self._settings()
        with Cluster(settings) as cluster, BoundedFetcher(settings) as fetcher:
            return table(cluster, fetcher, application_id, store)

    @staticmethod
    def _running(options: Options) -> LiveStore:
        options.refuse(("application.id", "kafka."), "mode=live asks application.server, and reads no topic")
        servers, store = (options.required(name) for name in _LIVE_OPTIONS)
        timeout = options.get("queries.timeout.ms", _TIMEOUT_MS)
        if not (timeout.isdecimal() and len(timeout) < 10 and int(timeout)):
            raise ConfigException(f"queries.timeout.ms={timeout!r} must be a number of milliseconds, 1 or more")
        try:
            hosts = tuple(HostInfo.parse(server.strip()) for server in servers.split(","))
        except ValueError as error:
            raise ConfigException(
                f"application.server={servers!r} must be host:port of an instance, or of several with commas between: "
                f"{error}"
            ) from None
        return find_store(Instances(hosts, options.get("queries.token", ""), int(timeout) / 1000), store)


class _StateReader(DataSourceReader):
    def __init__(
        self, settings: dict[str, Any], found: StoredTable, schema: StructType, keys: Sequence[str] | None
    ) -> None:
        self._settings = settings
        self._table = found
        self._projection = Projection(schema, found.layout.columns, f"store {found.store.name!r}")
        self._keys = None if keys is None else WantedKeys(found.layout, keys)

    @plain_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return what the changelog's partitions hold by now."""
        spans = self._table.store.spans
        some = None if self._keys is None else self._keys.partitions(self._table.layout, len(spans))
        wanted = [span.partition for span in spans if some is None or span.partition.partition in some]
        with Cluster(self._settings) as cluster:
            return [SpanPartition(span) for span in cluster.spans(wanted)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, SpanPartition)
        spec, keys = self._table.layout, self._keys
        with BoundedFetcher(self._settings) as fetcher:
            rows = changelog_rows(fetcher, spec, partition.span, None if keys is None else keys.encoded)
            yield from self._projection.of(rows if keys is None else keys.of(rows))


class _LivePartition(InputPartition):
    """All rows of a partition, or some keys' wherever they are."""

    def __init__(self, number: int, keys: Sequence[str] | None = None) -> None:
        super().__init__(None)
        self.number = number
        self.keys = keys


class _LiveReader(DataSourceReader):
    def __init__(self, store: LiveStore, schema: StructType, keys: Sequence[str] | None) -> None:
        self._store = store
        self._projection = Projection(schema, store.schema, f"store {store.name!r}")
        self._keys = keys

    @plain_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return the store's partitions, or one for all keys that are wanted."""
        if self._keys is not None:
            return [_LivePartition(0, self._keys)]
        return [_LivePartition(number) for number in range(self._store.partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, _LivePartition)
        store = self._store
        rows = store.rows(partition.number) if partition.keys is None else store.rows_of(partition.keys)
        yield from self._projection.of(rows)
