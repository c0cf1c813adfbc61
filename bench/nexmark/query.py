"""What a query of Nexmark is: a pipeline over the three topics, and the Spark SQL that says what must come out."""

# ruff: noqa: N812 - everybody writes `functions as F`

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from bench.nexmark.events import SCHEMAS
from sparkrelay import Json, KStream, KTable, Long

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from sparkrelay import StreamsBuilder

__all__ = ["EVER", "KEYS", "LATE", "Pipeline", "Query", "Sources", "query"]

#: How late events may come. Beam's and ours are out of order by less.
LATE: Final = "10 seconds"
#: How far apart rows of a join may be where SQL has no bound. State ends by it.
EVER: Final = "365 days"
#: Which field is the key of each topic's messages.
KEYS: Final = {"person": "id", "auction": "id", "bid": "auction"}


class Sources:
    """The topics of the auction house as streams, whose ``dateTime`` and ``expires`` are timestamps."""

    def __init__(self, builder: StreamsBuilder, spark: SparkSession, topics: Mapping[str, str] | None = None) -> None:
        self._builder = builder
        self._topics = topics or {}
        #: For DataFrames that streams are joined with.
        self.spark = spark

    def people(self) -> KStream:
        """People, by their ``id``."""
        return self._stream("person")

    def auctions(self) -> KStream:
        """Auctions, by their ``id``."""
        return self._stream("auction").withColumn("expires", F.timestamp_millis("expires"))

    def bids(self) -> KStream:
        """Bids, by their ``auction``."""
        return self._stream("bid")

    def _stream(self, topic: str) -> KStream:
        key, value = Long(KEYS[topic]), Json(SCHEMAS[topic])
        stream = self._builder.stream(self._topics.get(topic, topic), key=key, value=value, timestamp="dateTime")
        return stream.withColumn("dateTime", F.timestamp_millis("dateTime"))


Pipeline = Callable[[Sources], KStream | KTable]


@dataclass(frozen=True, slots=True)
class Query:
    """One query.

    Attributes:
        name: such as ``q5``.
        words: what it asks.
        pipeline: returns the stream or the table that is the answer. Rows of a stream are compared as they are, each
            as often as it comes; of a table the last row of each key, unless it was deleted.
        truth: Spark SQL over the views ``person``, ``auction`` and ``bid``, whose times are timestamps; bids have
            ``arrived`` beside their columns, the timestamp of their record.
        final: it has rows that come when a time is over. Events behind the last one have them come.
    """

    name: str
    words: str
    pipeline: Pipeline
    truth: str
    final: bool = False

    def write(
        self, builder: StreamsBuilder, spark: SparkSession, sink: str, topics: Mapping[str, str] | None = None
    ) -> type[KStream | KTable]:
        """Write the pipeline down; returns what the answer is.

        Args:
            builder: where to.
            spark: of the session.
            sink: the topic of the answer.
            topics: what the topics are called, if not ``person``, ``auction`` and ``bid``.

        Raises:
            TopologyException: it cannot be written.
        """
        answer = self.pipeline(Sources(builder, spark, topics))
        answer.to(sink, value=Json())
        return type(answer)


def query(*, truth: str, final: bool = False) -> Callable[[Pipeline], Query]:
    """Make a query of a function, whose name and docstring are its own."""

    def made(pipeline: Pipeline) -> Query:
        return Query(pipeline.__name__, pipeline.__doc__ or "", pipeline, truth, final)

    return made
