"""``spark.read.format("sparkrelay")``: records of topics as a batch, with the options of Spark's source and no jar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema

from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.datasources.cluster import Cluster, client_settings
from sparkrelay.datasources.options import Options
from sparkrelay.datasources.plain_errors import plain_errors
from sparkrelay.datasources.source_reader import SourceReader
from sparkrelay.datasources.topic_offsets import read_offsets, spans_between
from sparkrelay.errors import ConfigException
from sparkrelay.records.batches.columns import KAFKA_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.datasource import DataSourceReader
    from pyspark.sql.types import StructType

    from sparkrelay.datasources.cluster import Span
    from sparkrelay.types import TopicPartition

_OPTIONS: Final = ("subscribe", "startingOffsets", "endingOffsets", "includeHeaders")
#: Options of Spark's Kafka source for streams, which a script may have.
_OF_STREAMS: Final = (
    *("failOnDataLoss", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix"),
    *("kafkaConsumer.pollTimeoutMs", "maxOffsetsPerTrigger", "maxTriggerDelay", "minOffsetsPerTrigger"),
    *("minPartitions", "maxRecordsPerPartition", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    "startingTimestamp",
)
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
        options.refuse(_OF_STREAMS, "it is for readStream")
        topics = [topic.strip() for topic in options.required("subscribe").split(",") if topic.strip()]
        if not topics:
            raise ConfigException('option("subscribe", ...) names no topic')
        source = _Topics(
            client_settings(self.options),
            topics,
            read_offsets("startingOffsets", options.get("startingOffsets", "earliest"), refused="latest"),
            read_offsets("endingOffsets", options.get("endingOffsets", "latest"), refused="earliest"),
        )
        return SourceReader(source, schema, self._fields(), "a topic")

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802 - PySpark's name
        """Return what stands for a stream: a pipeline reads it, and Spark itself does not."""
        del schema
        return _OfPipelines()

    def _checked(self) -> Options:
        options = Options(self.options, self.name(), (*_OPTIONS, *_OF_STREAMS), of_path="subscribe")
        options.required("subscribe")
        client_settings(self.options)
        return options

    def _fields(self) -> list[pa.Field]:
        headers = self._checked().get("includeHeaders", "false").lower()
        if headers not in {"true", "false"}:
            raise ConfigException(f'option("includeHeaders", {headers!r}) must be true or false')
        return [*_FIELDS, KAFKA_SCHEMA.field("headers")] if headers == "true" else list(_FIELDS)


class _OfPipelines(SimpleDataSourceStreamReader):
    """A stream that a pipeline reads."""

    def initialOffset(self) -> NoReturn:  # noqa: N802 - PySpark's name
        """Refuse to be run by Spark."""
        raise ConfigException(
            'a stream of format("sparkrelay") is run by KafkaStreams: instead of writeStream...start() write '
            "builder.add(df, topic=..., outputMode=...), and KafkaStreams(builder.build(), config).start()"
        )

    def read(self, start: dict[Any, Any]) -> NoReturn:
        """Likewise."""
        del start
        self.initialOffset()

    def readBetweenOffsets(self, start: dict[Any, Any], end: dict[Any, Any]) -> NoReturn:  # noqa: N802
        """Likewise."""
        del start, end
        self.initialOffset()


@dataclass(frozen=True, slots=True)
class _Topics:
    """Records of topics; a part is a ``Span``."""

    settings: Mapping[str, Any]
    topics: Sequence[str]
    starts: int | Mapping[TopicPartition, int]
    ends: int | Mapping[TopicPartition, int]

    def parts(self) -> list[Span]:
        with Cluster.open(self.settings) as cluster:
            return spans_between(cluster, self.topics, self.starts, self.ends)

    def rows(self, span: Span, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        # One column is needed to count the records.
        wanted = frozenset(set(columns) - {"topic", "partition"} or {"offset"})
        if span.start >= span.stop:
            return
        with BoundedFetcher(self.settings) as fetcher:
            ranges = {span.partition: (span.start, span.stop)}
            for _, batch in fetcher.fetch(ranges, columns=wanted, max_batch_rows=_ROWS_AT_ONCE):
                if batch.num_rows:
                    yield _placed(span, batch)


def _placed(span: Span, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add topic and partition to records."""
    topic = pa.repeat(pa.scalar(span.partition.topic), batch.num_rows)
    number = pa.array(np.full(batch.num_rows, span.partition.partition, dtype=np.int32))
    return batch.append_column("topic", topic).append_column("partition", number)
