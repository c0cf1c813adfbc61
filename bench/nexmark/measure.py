"""How fast queries drain the three topics, over a real broker.

Every query reads the same topics, which hold all events before it starts, in this process and with empty state. A rate
is events read over wall time, from the beginning of the first micro-batch that reads events to the end of the last one,
those of repartition topics included: an answer that passes several topics is complete then.
"""

from __future__ import annotations

import json
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.nexmark.check import stamped
from bench.nexmark.query import KEYS
from bench.topics import APPLICATION_PREFIX, run_topics
from bench.workload import NEVER_DELETED, PARTITIONS, write_values
from sparkrelay import KafkaStreams, StreamsBuilder
from sparkrelay.devkafka.topics import create_topic
from sparkrelay.errors import TopologyException
from sparkrelay.records.keys import key_bytes
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

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
    """Write the events, and drain them with each query; yields a line of figures for each.

    Args:
        bootstrap_servers: the broker.
        spark: the session.
        events: in the order in which they are written.
        queries: which ones.

    Raises:
        TimeoutError: a query did not come to an end.
        SparkRelayError: its instance ended.
    """
    counts = _load(bootstrap_servers, events)
    for query in queries:
        builder = StreamsBuilder()
        with run_topics(bootstrap_servers, query.name) as (sink,), tempfile.TemporaryDirectory() as folder:
            config = {
                "application.id": f"{APPLICATION_PREFIX}{sink}",
                "bootstrap.servers": bootstrap_servers,
                "state.dir": folder,
            }
            try:
                query.write(builder, spark, sink)
                topology = builder.build()
                streams = KafkaStreams(topology, config, spark=spark)
            except TopologyException as error:
                yield {"query": query.name, "refused": " ".join(str(error).split())}
                continue
            wanted = {topic: counts[topic] for topic in topology.source_topics}
            with streams:
                streams.start()
                seconds, batches = _drained(streams, wanted)
            read = sum(wanted.values())
            yield {
                "query": query.name,
                "events": read,
                "seconds": round(seconds, 2),
                "events_per_s": round(read / seconds),
                "batches": batches,
            }


def _load(bootstrap_servers: str, events: Iterable[Event]) -> dict[str, int]:
    """Make the topics and write the events; returns how many each has."""
    of_topic: dict[str, tuple[list[int], list[bytes]]] = {topic: ([], []) for topic in KEYS}
    for event in stamped(events):
        keys, values = of_topic[event["type"]]
        keys.append(event[KEYS[event["type"]]])
        values.append(json.dumps(event).encode())
    for topic, (keys, values) in of_topic.items():
        create_topic(bootstrap_servers, topic, partitions=PARTITIONS, config=NEVER_DELETED)
        encoded, written = key_bytes([pa.array(keys, pa.int64())]), pa.array(values, pa.binary())
        places = murmur2_partitions(encoded, PARTITIONS)
        chosen = [pa.array(places == partition) for partition in range(PARTITIONS)]
        write_values(bootstrap_servers, topic, [(encoded.filter(mask), written.filter(mask)) for mask in chosen])
    return {topic: len(keys) for topic, (keys, _) in of_topic.items()}


def _drained(streams: KafkaStreams, wanted: dict[str, int]) -> tuple[float, int]:
    """Wait until an instance has read so much of each topic and has nothing left; returns seconds, and batches.

    Raises:
        TimeoutError: it does not come to an end.
        SparkRelayError: it ended.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    seen, batches, began, ended = -1, 0, None, time.monotonic()
    while time.monotonic() < deadline:
        if not streams.isActive:
            streams.awaitTermination()  # raises what ended it
        time.sleep(_LOOK_S)
        now = time.monotonic()
        for batch in streams.recentProgress:
            if batch["batchId"] > seen:
                seen = batch["batchId"]
                if batch["numInputRows"]:
                    batches, ended = batches + 1, now
                    began = began or now - batch["durationMs"]["triggerExecution"] / 1000
        totals = streams.snapshot().totals.records
        complete = all(totals.get(topic, 0) >= count for topic, count in wanted.items())
        if began is not None and complete and now > ended + _QUIET_S and not sum(streams.input_lags.values()):
            return ended - began, batches
    raise TimeoutError(f"after {_TIMEOUT_S:.0f} s there is input left: {streams.input_lags}")
