"""``spark.read.format("sparkrelay-state")``: a store's table, out of its changelog, in any Spark application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, In
from pyspark.sql.pandas.types import from_arrow_schema

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.changelog_rows import changelog_rows
from sparkrelay.datasources.cluster import Cluster, client_settings, require_committed
from sparkrelay.datasources.key_values import message_keys, partition_of
from sparkrelay.datasources.options import Options
from sparkrelay.datasources.projection import Projection, SpanPartition
from sparkrelay.datasources.tables import StoredTable, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.datasource import Filter, InputPartition
    from pyspark.sql.types import StructType

__all__ = ["StateDataSource"]

#: As users write them; Spark passes them on in lower case.
_OPTIONS: Final = ("application.id", "storeName")
#: For more values of a key all rows are made.
_MOST_VALUES: Final = 1_000


class StateDataSource(DataSource):
    """The rows of a store. Options: ``application.id``, ``storeName``, ``kafka.bootstrap.servers``, ``kafka.``..."""

    _found: StoredTable | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sparkrelay-state"

    def schema(self) -> StructType:
        """Return the columns of the store's table, by what its changelog says."""
        return from_arrow_schema(pa.schema(list(self._table().spec.output)))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads those of the columns that a schema names."""
        return _StateReader(self._settings(), self._table(), schema)

    def _settings(self) -> dict[str, Any]:
        settings = client_settings(self.options)
        require_committed(settings)
        return settings

    def _table(self) -> StoredTable:
        if self._found is None:
            options = Options(self.options, self.name(), _OPTIONS)
            application_id, store = (options.required(name) for name in _OPTIONS)
            settings = self._settings()
            with Cluster(settings) as cluster, BoundedFetcher(settings) as fetcher:
                self._found = table(cluster, fetcher, application_id, store)
        return self._found


class _StateReader(DataSourceReader):
    def __init__(self, settings: dict[str, Any], found: StoredTable, schema: StructType) -> None:
        self._settings = settings
        self._table = found
        self._projection = Projection(schema, found.spec.output, f"store {found.store.name!r}")
        self._keys: pa.Array | None = None
        self._partition: int | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - PySpark's name
        """Take notice of values of the whole key; Spark checks them on the rows all the same."""
        values: dict[str, Sequence[Any]] = {}
        for one in filters:
            if isinstance(one, EqualTo | In) and len(one.attribute) == 1:
                values[one.attribute[0]] = one.value if isinstance(one, In) else (one.value,)
        self._keys = message_keys(self._table.spec, values, _MOST_VALUES)
        self._partition = partition_of(self._table.spec, values, len(self._table.store.spans))
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        """Return what the changelog's partitions hold by now."""
        wanted = [span.partition for span in self._table.store.spans]
        if self._partition is not None:
            wanted = [partition for partition in wanted if partition.partition == self._partition]
        with Cluster(self._settings) as cluster:
            spans = cluster.spans(wanted)
        return [SpanPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        assert isinstance(partition, SpanPartition)
        with BoundedFetcher(self._settings) as fetcher:
            yield from self._projection.of(changelog_rows(fetcher, self._table.spec, partition.span, self._keys))
