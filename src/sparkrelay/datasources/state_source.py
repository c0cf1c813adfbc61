"""``spark.read.format("sparkrelay-state")``: a store's table in any Spark application.

From its changelog or, with ``mode=live``, from the application's running instances.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.cluster import Cluster, client_settings
from sparkrelay.datasources.key_values import WantedKeys, key_texts
from sparkrelay.datasources.live_store import Instances, LiveStore, find_store
from sparkrelay.datasources.options import Options
from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.datasources.source_reader import SourceReader
from sparkrelay.datasources.tables import StoredTable, TableReader
from sparkrelay.errors import ConfigException
from sparkrelay.protocol import HostInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from sparkrelay.datasources.cluster import Span
    from sparkrelay.datasources.source_reader import Source

#: As users write them; Spark passes them in lower case.
_OPTIONS: Final = ("application.id", "storeName")
_LIVE_OPTIONS: Final = ("application.server", "storeName")
_MORE_LIVE_OPTIONS: Final = ("queries.token", "queries.timeout.ms")
_ALL_OPTIONS: Final = ("mode", "key", "keys", *_OPTIONS, *_LIVE_OPTIONS, *_MORE_LIVE_OPTIONS)
_MODES: Final = ("changelog", "live")
_TIMEOUT_MS: Final = "30000"


class StateDataSource(DataSource):
    """The rows of a store.

    Options: ``storeName``; ``application.id``, ``kafka.bootstrap.servers``, ``kafka.``...; or ``mode=live``,
    ``application.server``, ``queries.token``, ``queries.timeout.ms``. Both take ``key`` or ``keys``.

    Filters are left to Spark: it keeps those pushed to a Python source in the reader, which all DataFrames of one
    ``load()`` share (seen in Spark 4.3).
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sparkrelay-state"

    @plain_errors
    def schema(self) -> StructType:
        """Return the columns of the store's table, as its changelog or an instance describes them."""
        return from_arrow_schema(self._table.columns)

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of a schema."""
        found = self._table
        keys = key_texts(self._given, found.keys)
        source: Source
        if isinstance(found, LiveStore):
            source = _Instances(found, keys)
        else:
            wanted = None if keys is None else WantedKeys.of_texts(found.layout, keys)
            source = _Changelog(found, wanted, client_settings(self.options))
        return SourceReader(source, schema, found.columns, f"store {found.name!r}")

    @property
    def _given(self) -> Options:
        return Options(self.options, self.name(), _ALL_OPTIONS, of_path="storeName")

    @functools.cached_property
    def _table(self) -> StoredTable | LiveStore:
        options = self._given
        mode = options.get("mode", _MODES[0])
        if mode not in _MODES:
            raise ConfigException(f"mode={mode!r} must be {' or '.join(_MODES)}")
        if mode == "live":
            return _live(options)
        options.refuse((_LIVE_OPTIONS[0], *_MORE_LIVE_OPTIONS), 'only option("mode", "live") asks instances')
        application_id, store = (options.required(name) for name in _OPTIONS)
        with TableReader.open(client_settings(self.options), application_id) as reader:
            return reader.table(store)


def _live(options: Options) -> LiveStore:
    options.refuse(("application.id", "kafka."), "mode=live asks application.server, and reads no topic")
    servers, store = (options.required(name) for name in _LIVE_OPTIONS)
    timeout = options.get("queries.timeout.ms", _TIMEOUT_MS)
    if not (timeout.isdecimal() and len(timeout) < 10 and int(timeout)):
        raise ConfigException(f"queries.timeout.ms={timeout!r} must be a number of milliseconds, 1 or more")
    try:
        hosts = tuple(HostInfo.parse(server.strip()) for server in servers.split(","))
    except ValueError as error:
        raise ConfigException(
            f"application.server={servers!r} must be host:port of an instance, or of several separated by commas: "
            f"{error}"
        ) from None
    return find_store(Instances(hosts, options.get("queries.token", ""), int(timeout) / 1000), store)


@dataclass(frozen=True, slots=True)
class _Changelog:
    """A table in its changelog; a part is a ``Span``."""

    table: StoredTable
    wanted: WantedKeys | None
    settings: Mapping[str, Any]

    def parts(self) -> list[Span]:
        with Cluster.open(self.settings) as cluster:
            return cluster.spans(span.partition for span in self.table.spans(self.wanted))

    def rows(self, span: Span, _: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with BoundedFetcher(self.settings) as fetcher:
            yield from self.table.rows(fetcher, span, self.wanted)


@dataclass(frozen=True, slots=True)
class _Instances:
    """A table in instances; a part is a partition's number, or None for the wanted keys wherever they are."""

    store: LiveStore
    keys: Sequence[str] | None

    def parts(self) -> Iterable[int | None]:
        return range(self.store.partitions) if self.keys is None else [None]

    def rows(self, partition: int, _: Sequence[str]) -> Iterator[pa.RecordBatch]:
        return self.store.rows(partition) if self.keys is None else self.store.rows_of(self.keys)
