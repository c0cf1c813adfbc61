"""``spark.read.format("sparkrelay")``: records of topics as a batch, with the options of Spark's source and no jar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.cluster import Cluster, client_settings
from sparkrelay.datasources.options import Options
from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.datasources.projection import Projection
from sparkrelay.datasources.topic_offsets import read_offsets, spans_between
from sparkrelay.errors import ConfigException
from sparkrelay.records.batches.columns import KAFKA_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

    from sparkrelay.datasources.cluster import Span

_OPTIONS: Final = ("subscribe", "startingOffsets", "endingOffsets", "includeHeaders")
#: The columns of Spark's Kafka source, in its order.
_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("timestampType", pa.int32()),
)
_ROWS_AT_ONCE: Final = 1 << 16


class TopicDataSource(DataSource):
    """Records. Options: ``subscribe``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``, ``kafka.``..."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "sparkrelay"

    @plain_errors
    def schema(self) -> StructType:
        """Return the columns of Spark's Kafka source."""
        return from_arrow_schema(pa.schema(self._fields()))

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the columns of a schema."""
        options = self._checked()
        topics = [topic.strip() for topic in options.required("subscribe").split(",") if topic.strip()]
        if not topics:
            raise ConfigException('option("subscribe", ...) names no topic')
        return _TopicReader(
            client_settings(self.options),
            topics,
            options.get("startingOffsets", "earliest"),
            options.get("endingOffsets", "latest"),
            Projection(schema, self._fields(), "a topic"),
        )

    def _checked(self) -> Options:
        options = Options(self.options, self.name(), _OPTIONS, of_path="subscribe")
        options.required("subscribe")
        client_settings(self.options)
        return options

    def _fields(self) -> list[pa.Field]:
        headers = self._checked().get("includeHeaders", "false").lower()
        if headers not in {"true", "false"}:
            raise ConfigException(f'option("includeHeaders", {headers!r}) must be true or false')
        return [*_FIELDS, KAFKA_SCHEMA.field("headers")] if headers == "true" else list(_FIELDS)


class _TopicReader(DataSourceReader):
    def __init__(
        self, settings: dict[str, Any], topics: Sequence[str], start: str, end: str, projection: Projection
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._starts = read_offsets("startingOffsets", start, refused="latest")
        self._ends = read_offsets("endingOffsets", end, refused="earliest")
        self._projection = projection

    @plain_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return the offsets to read of each partition."""
        with Cluster.open(self._settings) as cluster:
            spans = spans_between(cluster, self._topics, self._starts, self._ends)
        return list(map(InputPartition, spans))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition."""
        span: Span = partition.value
        names = [name for name in self._projection.names if name not in {"topic", "partition"}]
        # One column is needed to count the records.
        columns = frozenset(names or ["offset"])
        if span.start >= span.stop:
            return
        with BoundedFetcher(self._settings) as fetcher:
            ranges = {span.partition: (span.start, span.stop)}
            fetched = fetcher.fetch(ranges, columns=columns, max_batch_rows=_ROWS_AT_ONCE)
            yield from self._projection.of(_placed(span, batch) for _, batch in fetched if batch.num_rows)


def _placed(span: Span, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add topic and partition to records."""
    topic = pa.repeat(pa.scalar(span.partition.topic), batch.num_rows)
    number = pa.array(np.full(batch.num_rows, span.partition.partition, dtype=np.int32))
    return batch.append_column("topic", topic).append_column("partition", number)
