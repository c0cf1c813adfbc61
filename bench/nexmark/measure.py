"""How fast queries drain the three topics, over a real broker, and whether what they wrote is SQL's answer.

Each query has topics of its own, which hold all events before it starts, and runs in this process with empty state. A
rate is events read over wall time, from the beginning of the first micro-batch that reads events to the end of the last
one, those of repartition topics included. Events that close the last windows come afterwards and are not in the rate.

Tasks start and take turns as they come: windows behind a repartition topic wait for those that write it.
"""

from __future__ import annotations

import json
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

from bench.nexmark.answers import differing_rows
from bench.nexmark.check import answered, closing_events, stamped
from bench.nexmark.load import write_events
from bench.nexmark.query import KEYS
from bench.nexmark.truth import make_views
from bench.results import read_messages
from bench.topics import APPLICATION_PREFIX, run_topics
from bench.workload import NEVER_DELETED
from sparkrelay import KafkaStreams, StreamsBuilder
from sparkrelay.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from bench.nexmark.events import Event
    from bench.nexmark.query import Query

__all__ = ["measure"]

_TIMEOUT_S: Final = 900.0
#: Nothing is under way if there was no micro-batch for so long, and there is no input left.
_QUIET_S: Final = 2.0
_LOOK_S: Final = 0.01


def measure(
    bootstrap_servers: str, spark: SparkSession, events: Iterable[Event], queries: Collection[Query]
) -> Iterator[dict[str, Any]]:
    """Drain the events with each query; yields a line of figures for each, with how its answer differs from SQL's.

    Args:
        bootstrap_servers: the broker.
        spark: the session.
        events: in the order in which they are written.
        queries: which ones.

    Raises:
        TimeoutError: a query did not come to an end.
        SparkRelayError: its instance ended.
    """
    arriving = list(stamped(events))
    make_views(spark, arriving)
    for query in queries:
        try:
            yield {"query": query.name, **_run(bootstrap_servers, spark, arriving, query)}
        except TopologyException as error:
            yield {"query": query.name, "refused": " ".join(str(error).split())}


def _run(bootstrap_servers: str, spark: SparkSession, events: list[Event], query: Query) -> dict[str, Any]:
    builder = StreamsBuilder()
    kinds = (query.name, *(f"{query.name}-{topic}" for topic in KEYS))
    with (
        run_topics(bootstrap_servers, *kinds, config=NEVER_DELETED) as (sink, *sources),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        topics = dict(zip(KEYS, sources, strict=True))
        kind = query.write(builder, spark, sink, topics)
        topology = builder.build()
        read = {type_: topic for type_, topic in topics.items() if topic in topology.source_topics}
        config = {
            "application.id": f"{APPLICATION_PREFIX}{sink}",
            "bootstrap.servers": bootstrap_servers,
            "state.dir": folder,
        }
        with KafkaStreams(topology, config, spark=spark) as streams:
            wanted = write_events(bootstrap_servers, read, events)
            streams.start()
            drain = _Drain(streams)
            drain.wait_for(wanted)
            figures = drain.figures(sum(wanted.values()))
            for closing in closing_events(events[-1]["arrived"]) if query.final else ():
                more = write_events(bootstrap_servers, read, closing)
                wanted = {topic: count + more[topic] for topic, count in wanted.items()}
                drain.wait_for(wanted)
        records = [
            (message.key(), None if (value := message.value()) is None else json.loads(value))
            for messages in read_messages(bootstrap_servers, sink)
            for message in messages
        ]
    rows = answered(kind, records)
    differing = differing_rows(spark, query, rows)
    late = {"rows_late": drain.rows_late} if drain.rows_late else {}
    return {
        **figures,
        "rows": len(rows),
        "exact": not differing,
        **late,
        **({"differs": differing} if differing else {}),
    }


class _Drain:
    """Looks at the micro-batches of an instance."""

    def __init__(self, streams: KafkaStreams) -> None:
        self._streams = streams
        self._seen = -1
        self._batches = 0
        self._began: float | None = None
        self._ended = time.monotonic()
        #: Rows that were left out because their time was over.
        self.rows_late = 0

    def wait_for(self, wanted: Mapping[str, int]) -> None:
        """Wait until so many records of each topic were read, and nothing is left in any topic between.

        Raises:
            TimeoutError: it does not come to an end.
            SparkRelayError: the instance ended.
        """
        deadline = time.monotonic() + _TIMEOUT_S
        while time.monotonic() < deadline:
            if not self._streams.isActive:
                self._streams.awaitTermination()  # raises what ended it
            time.sleep(_LOOK_S)
            self._look()
            totals = self._streams.snapshot().totals.records
            complete = all(totals.get(topic, 0) >= count for topic, count in wanted.items())
            quiet = time.monotonic() > self._ended + _QUIET_S and not sum(self._streams.input_lags.values())
            if self._began is not None and complete and quiet:
                return
        raise TimeoutError(f"after {_TIMEOUT_S:.0f} s there is input left: {self._streams.input_lags}")

    def figures(self, events: int) -> dict[str, Any]:
        """Return the rate at which so many events were read."""
        assert self._began is not None, "something was read"
        seconds = self._ended - self._began
        rate = {"seconds": round(seconds, 2), "events_per_s": round(events / seconds)}
        return {"events": events, **rate, "batches": self._batches}

    def _look(self) -> None:
        now = time.monotonic()
        for batch in self._streams.recentProgress:
            if batch["batchId"] <= self._seen:
                continue
            self._seen = batch["batchId"]
            self.rows_late += sum(operator["numRowsDroppedByWatermark"] for operator in batch["stateOperators"])
            if batch["numInputRows"]:
                self._batches, self._ended = self._batches + 1, now
                self._began = self._began or now - batch["durationMs"]["triggerExecution"] / 1000
