"""Producing the year of flights, at a pace that leaves the story its time.

The story needs input at certain moments: when the second instance takes its share, and when it takes over. How long it
takes to get there depends on the machine. So the pace has a limit for each stage; nearing it, producing slows down
(never to a halt, for tasks without input show nothing), and passing the stage lifts it.

Records are encoded and sent by our own encoder and producer, idempotently: a repeated request is not a second flight.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.client.broker_errors import broker_error
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.messages import InitProducerIdRequest
from sparkrelay.client.produce import Producer
from sparkrelay.demo.flights import flights
from sparkrelay.demo.tables import PARTITIONS
from sparkrelay.records.batches.encode import ProducerState, encode, next_sequence
from sparkrelay.records.partition import murmur2_partitions, split_by_partition
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.demo.flights import Flight

__all__ = ["Feeder", "Pace"]

_SLOWING_S: Final = 12.0
_SHORTEST_REST_S: Final = 5.0
_TICK_S: Final = 0.05
_TIMEOUT_S: Final = 30.0
_CLOSE_S: Final = 5.0
_MAX_BATCH_BYTES: Final = 256 * 1024


class Pace:
    """Which fraction of the records should have been produced by now. It is given the time and has no clock of its own.

    Args:
        seconds: how long producing them all should take.
        limit: the fraction that is not passed before ``lift``.
    """

    def __init__(self, seconds: float, *, limit: float) -> None:
        self._seconds = seconds
        self._limit = limit
        self._rate = 1 / seconds
        self._position = 0.0
        self._began: float | None = None
        self._asked_at = 0.0

    def lift(self, limit: float, now: float) -> None:
        """Let it go on to another fraction; with 1.0 to the end, in what is left of the time."""
        if limit <= self._limit:
            return
        if self._began is not None:
            self.due(now)
        self._limit = limit
        if limit >= 1.0 and self._began is not None:
            left = max(_SHORTEST_REST_S, self._seconds - (now - self._began))
            self._rate = max(self._rate / 2, (1 - self._position) / left)

    def due(self, now: float) -> float:
        """Return the fraction that should have been produced at ``now`` (seconds); the first call starts the clock."""
        if self._began is None:
            self._began = self._asked_at = now
        passed, self._asked_at = now - self._asked_at, now
        room = self._limit - self._position
        if self._limit < 1:
            # However long the pause was, half of the room is left.
            self._position += min(passed * min(self._rate, room / _SLOWING_S), room / 2)
        else:
            self._position = min(self._position + passed * self._rate, self._limit)
        return self._position


class Feeder:
    """A thread that reads all flights, and produces them from ``begin`` on.

    Args:
        bootstrap_servers: address of the broker.
        topic: where to; it exists, with ``PARTITIONS`` partitions.
        seconds: how long producing should take.
        limit: the fraction that is not passed before ``lift``.
    """

    def __init__(self, bootstrap_servers: str, topic: str, *, seconds: float, limit: float) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._lock = threading.Lock()
        self._pace = Pace(seconds, limit=limit)
        self._begin = threading.Event()
        self._stop = threading.Event()
        self.records = 0
        self.counted = 0
        self.produced = 0
        self.began_at = 0.0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="demo-feeder", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """True once every flight is acknowledged."""
        return 0 < self.records == self.produced

    def begin(self) -> None:
        """Start producing."""
        self._begin.set()

    def lift(self, limit: float) -> None:
        """Let the pace go on to another fraction of the flights."""
        with self._lock:
            self._pace.lift(limit, time.monotonic())

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        self._begin.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            shards = _Shards(list(flights()))
            # `records` last: who sees it may read the others.
            self.counted = shards.counted
            self.records = shards.records
            self._begin.wait()
            if not self._stop.is_set():
                self._produce(shards)
        except Exception as error:  # noqa: BLE001 - the story raises it in its own thread
            self.error = error

    def _produce(self, shards: _Shards) -> None:
        with KafkaClient(ClientConfig(bootstrap_servers=self._bootstrap_servers, client_id="demo-feeder")) as client:
            client.bootstrap(_TIMEOUT_S)
            client.wait([client.request_metadata([self._topic])], _TIMEOUT_S)
            producer, identity = Producer(client), _producer_id(client)
            states = [ProducerState(*identity, 0)] * PARTITIONS
            self.began_at = time.time()
            while not self._stop.is_set() and not self.done:
                with self._lock:
                    due = int(shards.records * self._pace.due(time.monotonic()))
                for partition, (keys, values, times) in enumerate(shards.take(self.produced, due)):
                    to, state = TopicPartition(self._topic, partition), states[partition]
                    for batch in encode(
                        keys, values, timestamps=times, producer=state, max_batch_bytes=_MAX_BATCH_BYTES
                    ):
                        producer.send(to, batch.data, transactional_id=None)
                    states[partition] = ProducerState(*identity, next_sequence(state.base_sequence, len(keys)))
                producer.flush(_TIMEOUT_S)
                self.produced = due
                client.sleep(_TICK_S)


class _Shards:
    """All records as Arrow columns, a set for each partition, and where each stands in the order of all."""

    def __init__(self, records: Sequence[Flight]) -> None:
        self.records = len(records)
        # The pipeline leaves out flights that never left, so these it counts:
        self.counted = sum(b'"dep_delay":null' not in record.value for record in records)
        kinds = (pa.binary(), pa.binary(), pa.int64())
        columns = [pa.array(column, kind) for column, kind in zip(zip(*records, strict=True), kinds, strict=True)]
        self._order = split_by_partition(murmur2_partitions(columns[0], PARTITIONS), PARTITIONS)
        self._columns = [tuple(column.take(pa.array(rows)) for column in columns) for rows in self._order]

    def take(self, start: int, end: int) -> list[tuple[pa.Array, ...]]:
        """Return for each partition its share of the records ``[start, end)``."""
        shares = []
        for order, columns in zip(self._order, self._columns, strict=True):
            first, after = (int(place) for place in np.searchsorted(order, (start, end)))
            shares.append(tuple(column.slice(first, after - first) for column in columns))
        return shares


def _producer_id(client: KafkaClient) -> tuple[int, int]:
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
    )
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        response = client.send(request)
        client.wait([response], _TIMEOUT_S)
        answer: Any = response.result()
        if not answer.error_code:
            return answer.producer_id, answer.producer_epoch
        # A broker that has just started is still busy with its own topics.
        error = broker_error(answer.error_code, "asking for a producer id")
        if not error.retriable or time.monotonic() > deadline:
            raise error
        client.sleep(_TICK_S)
