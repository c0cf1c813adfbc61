"""The Python consumers that are compared, each behind the same few calls.

What a batch is to a consumer is what its users work with: ours gives an Arrow table, the others Python objects. Each
has its defaults; only what must be said is said. confluent-kafka reads full topics a second time with settings made for
that, because its defaults make it wait.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sparkrelay.consumer import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from sparkrelay.consumer import NetworkThread

__all__ = [
    "PYTHON_READERS",
    "STAMP_BYTES",
    "Aiokafka",
    "Confluent",
    "KafkaPython",
    "Reader",
    "SparkRelay",
    "TunedConfluent",
]

#: A value begins with the time when it was sent: a float64 of ``time.monotonic()``, little endian.
STAMP_BYTES = 8
_BATCH = 10_000


class Reader(Protocol):
    """One consumer of one topic."""

    def assign(self, partitions: int, *, at_end: bool) -> None:
        """Read all partitions, outside of any group."""

    def subscribe(self) -> None:
        """Join the group."""

    @property
    def holds(self) -> bool:
        """Whether it has partitions; another thread may ask."""

    def read(self, timeout: float) -> int:
        """Return how many records came."""

    def stamps(self, timeout: float) -> Iterable[float]:
        """Return when the records that came were sent."""

    def close(self) -> None:
        """Close it."""


class SparkRelay:
    """Ours, to Arrow."""

    def __init__(
        self,
        servers: str,
        topic: str,
        group: str | None = None,
        *,
        network: NetworkThread | None = None,
        **settings: Any,
    ) -> None:
        config = {
            "bootstrap.servers": servers,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
        self.consumer = Consumer({**config, "group.id": group} if group else config, network=network)
        self._topic = topic

    def assign(self, partitions: int, *, at_end: bool) -> None:
        """See Reader."""
        self.consumer.assign([TopicPartition(self._topic, number) for number in range(partitions)])
        if at_end:
            self.consumer.seek_to_end()
            for number in range(partitions):
                self.consumer.position(TopicPartition(self._topic, number))

    def subscribe(self) -> None:
        """See Reader."""
        self.consumer.subscribe([self._topic])

    @property
    def holds(self) -> bool:
        """See Reader."""
        return self.consumer.metrics()["assigned-partitions"] > 0

    def read(self, timeout: float) -> int:
        """See Reader."""
        return self.consumer.poll(timeout).num_rows

    def stamps(self, timeout: float) -> Iterable[float]:
        """See Reader."""
        return _stamps_of(self.consumer.poll(timeout))

    def close(self) -> None:
        """See Reader."""
        self.consumer.close()


def _stamps_of(table: pa.Table) -> list[float]:
    return [
        float(np.frombuffer(value, "<f8", 1)[0])
        for chunk in table.column("value").chunks
        for value in chunk.to_pylist()
    ]


class Confluent:
    """confluent-kafka: ``consume``; ``poll`` where a batch would be waited for."""

    def __init__(self, servers: str, topic: str, group: str | None = None, **settings: Any) -> None:
        from confluent_kafka import Consumer

        config = {"bootstrap.servers": servers, "group.id": group or "bench", "auto.offset.reset": "earliest"}
        self.consumer = Consumer({**config, "enable.auto.commit": False, **settings})
        self._topic = topic
        # assignment() of another thread waits while this one is joining.
        self._holds = False

    def assign(self, partitions: int, *, at_end: bool) -> None:
        """See Reader."""
        from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

        start = OFFSET_END if at_end else OFFSET_BEGINNING
        self.consumer.assign([TopicPartition(self._topic, number, start) for number in range(partitions)])

    def subscribe(self) -> None:
        """See Reader."""
        self.consumer.subscribe([self._topic], on_assign=self._assigned)

    def _assigned(self, consumer: Any, partitions: list[Any]) -> None:
        del consumer
        self._holds = bool(partitions)

    @property
    def holds(self) -> bool:
        """See Reader."""
        return self._holds

    def read(self, timeout: float) -> int:
        """See Reader."""
        # It waits for a full batch, and the end of a topic is never one: a short wait hurts nobody.
        return len(self.consumer.consume(_BATCH, min(timeout, 0.1)))

    def stamps(self, timeout: float) -> Iterable[float]:
        """See Reader."""
        message = self.consumer.poll(timeout)
        return [] if message is None or message.error() else [float(np.frombuffer(message.value(), "<f8", 1)[0])]

    def close(self) -> None:
        """See Reader."""
        self.consumer.close()


class TunedConfluent(Confluent):
    """The same with a longer queue and without the second that librdkafka waits when its queue has been full."""

    def __init__(self, servers: str, topic: str, group: str | None = None) -> None:
        super().__init__(servers, topic, group, **{"queued.min.messages": 1_000_000, "fetch.queue.backoff.ms": 10})


class _Polled:
    """What both Python clients share: ``_poll`` gives a list of records."""

    consumer: Any

    def _poll(self, timeout: float) -> list[Any]:
        raise NotImplementedError

    @property
    def holds(self) -> bool:
        """See Reader."""
        return bool(self.consumer.assignment())

    def read(self, timeout: float) -> int:
        """See Reader."""
        return len(self._poll(timeout))

    def stamps(self, timeout: float) -> Iterable[float]:
        """See Reader."""
        return [float(np.frombuffer(record.value, "<f8", 1)[0]) for record in self._poll(timeout)]


class KafkaPython(_Polled):
    """kafka-python."""

    def __init__(self, servers: str, topic: str, group: str | None = None) -> None:
        from kafka import KafkaConsumer

        self.consumer = KafkaConsumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        self._topic = topic

    def assign(self, partitions: int, *, at_end: bool) -> None:
        """See Reader."""
        from kafka import TopicPartition

        wanted = [TopicPartition(self._topic, number) for number in range(partitions)]
        self.consumer.assign(wanted)
        if at_end:
            self.consumer.seek_to_end(*wanted)
            for partition in wanted:
                self.consumer.position(partition)
        else:
            self.consumer.seek_to_beginning(*wanted)

    def subscribe(self) -> None:
        """See Reader."""
        self.consumer.subscribe([self._topic])

    def _poll(self, timeout: float) -> list[Any]:
        parts = self.consumer.poll(timeout_ms=int(timeout * 1000), max_records=_BATCH)
        return [record for records in parts.values() for record in records]

    def close(self) -> None:
        """See Reader."""
        self.consumer.close()


class Aiokafka(_Polled):
    """aiokafka, on a loop of its own; the group ``bench`` of its package is needed."""

    def __init__(self, servers: str, topic: str, group: str | None = None) -> None:
        from aiokafka import AIOKafkaConsumer

        self._loop = asyncio.new_event_loop()

        async def make() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
            )
            await consumer.start()
            return consumer

        self.consumer = self._loop.run_until_complete(make())
        self._topic = topic

    def assign(self, partitions: int, *, at_end: bool) -> None:
        """See Reader."""
        from aiokafka import TopicPartition

        wanted = [TopicPartition(self._topic, number) for number in range(partitions)]

        async def start() -> None:
            self.consumer.assign(wanted)
            await (self.consumer.seek_to_end if at_end else self.consumer.seek_to_beginning)(*wanted)

        self._loop.run_until_complete(start())

    def subscribe(self) -> None:
        """See Reader."""

        async def start() -> None:
            self.consumer.subscribe([self._topic])

        self._loop.run_until_complete(start())

    def _poll(self, timeout: float) -> list[Any]:
        parts = self._loop.run_until_complete(self.consumer.getmany(timeout_ms=int(timeout * 1000), max_records=_BATCH))
        return [record for records in parts.values() for record in records]

    def close(self) -> None:
        """See Reader."""
        self._loop.run_until_complete(self.consumer.stop())
        self._loop.close()


PYTHON_READERS: dict[str, Any] = {
    "SparkRelay": SparkRelay,
    "confluent-kafka": Confluent,
    "confluent-kafka, tuned": TunedConfluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}
"""By the names of their packages."""
