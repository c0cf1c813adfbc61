"""Produces the year of flights, paced by the demo's stages.

Each stage needs input while it runs, and the machine decides how long that takes. So the pace has a limit for each
stage: near it, producing slows down without stopping (tasks without input show nothing); the next stage lifts it.

Records are sent by SparkRelay's own encoder and idempotent producer: a repeated request does not duplicate a flight.
"""

from __future__ import annotations

import time
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.client.broker_errors import broker_error
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.messages import InitProducerIdRequest
from sparkrelay.client.produce import Producer
from sparkrelay.demo.flights import flights
from sparkrelay.demo.tables import PARTITIONS
from sparkrelay.records.batches.encode import ProducerState, encode
from sparkrelay.records.partition import murmur2_partitions, split_by_partition
from sparkrelay.types import TopicPartition

_SLOWING_S: Final = 12.0
_MIN_REST_S: Final = 5.0
_TICK_S: Final = 0.05
_TIMEOUT_S: Final = 30.0
_MAX_BATCH_BYTES: Final = 256 * 1024


class Pace:
    """The fraction of the records that should be produced by a time. It has no clock: callers pass the time in seconds.

    Args:
        seconds: for producing all records.
        limit: fraction not to be passed before ``lift``.
        now: when producing begins.
    """

    def __init__(self, seconds: float, *, limit: float, now: float) -> None:
        self._seconds = seconds
        self._limit = limit
        self._rate = 1 / seconds
        self._position = 0.0
        self._began = self._asked_at = now

    def lift(self, limit: float, now: float) -> None:
        """Raise the limit; to 1.0, with a rate that reaches the end in the time that is left."""
        if limit <= self._limit:
            return
        self.due(now)
        self._limit = limit
        if limit >= 1.0:
            left = max(_MIN_REST_S, self._seconds - (now - self._began))
            self._rate = max(self._rate / 2, (1 - self._position) / left)

    def due(self, now: float) -> float:
        """Return the fraction due at ``now``."""
        passed, self._asked_at = now - self._asked_at, now
        room = self._limit - self._position
        if self._limit < 1:
            # However long the pause was, half of the room is left.
            self._position += min(passed * min(self._rate, room / _SLOWING_S), room / 2)
        else:
            self._position = min(self._position + passed * self._rate, self._limit)
        return self._position


class Feeder:
    """Produces all flights from ``begin`` on, as ``feed`` is called.

    Args:
        bootstrap_servers: address of the broker.
        topic: an existing topic of ``PARTITIONS`` partitions.

    Attributes:
        records: flights in all.
        counted: those that the pipeline counts: it drops flights that never left.
        produced: acknowledged flights.
        began_at: when producing began, seconds since 1970.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._client = KafkaClient(ClientConfig(bootstrap_servers=bootstrap_servers, client_id="demo-feeder"))
        self._producer = Producer(self._client)
        self._id = (-1, -1)
        self._sent = [0] * PARTITIONS
        self._topic = topic
        self._pace: Pace | None = None
        self._flights = flights()
        self.records = len(self._flights)
        never_left = pc.sum(pc.match_substring(self._flights.column("value"), '"dep_delay":null'))
        self.counted = self.records - never_left.as_py()
        self.produced = 0
        self.began_at = self._fed_at = 0.0

    @property
    def done(self) -> bool:
        """True once every flight is acknowledged."""
        return self.produced == self.records

    def begin(self, *, seconds: float, limit: float) -> None:
        """Start producing: all flights within ``seconds``, at most the fraction ``limit`` until ``lift``."""
        self._client.bootstrap(_TIMEOUT_S)
        self._id = self._producer_id()
        self._pace = Pace(seconds, limit=limit, now=time.monotonic())
        self.began_at = time.time()

    def lift(self, limit: float) -> None:
        """Raise the pace's limit to another fraction of the flights."""
        assert self._pace is not None, "begin() was called"
        self._pace.lift(limit, time.monotonic())

    def feed(self) -> None:
        """Send the flights that are due by now, once producing has begun."""
        now = time.monotonic()
        if self._pace is None or self.done or now - self._fed_at < _TICK_S:
            return
        self._fed_at = now
        due = int(self.records * self._pace.due(now))
        for partition, some in enumerate(split(self._flights, self.produced, due)):
            # A record's sequence is its position in the partition: there are far fewer than 2^31.
            state = ProducerState(*self._id, self._sent[partition])
            keys, values, times = some.columns
            for batch in encode(keys, values, timestamps=times, producer=state, max_batch_bytes=_MAX_BATCH_BYTES):
                self._producer.send(TopicPartition(self._topic, partition), batch.data, transactional_id=None)
            self._sent[partition] += len(some)
        self._producer.flush(_TIMEOUT_S)
        self.produced = due

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _producer_id(self) -> tuple[int, int]:
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            response = self._client.send(request)
            self._client.wait([response], _TIMEOUT_S)
            answer: Any = response.result()
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            # A broker that has just started is still creating its own topics.
            error = broker_error(answer.error_code, "asking for a producer id")
            if not error.retriable or time.monotonic() > deadline:
                raise error
            self._client.sleep(_TICK_S)


def split(records: pa.RecordBatch, start: int, end: int) -> list[pa.RecordBatch]:
    """Return the records ``[start, end)`` of each partition."""
    due = records.slice(start, end - start)
    partitions = murmur2_partitions(due.column("key"), PARTITIONS)
    return [due.take(pa.array(rows)) for rows in split_by_partition(partitions, PARTITIONS)]
