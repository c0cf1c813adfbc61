"""Reading the result topics while the story goes on, as any consumer with ``read_committed`` would see them.

It keeps the tables (the last value of each key), and it sees the takeover: after a kill, the first committed row for a
task of the dead instance that was written behind everything the dead one can have written.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from sparkrelay.client.admin import EARLIEST, LATEST, Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.consumer.fetch.bounded import BoundedFetcher
from sparkrelay.demo.tables import PARTITIONS, Output, RowKey, Table, read_row
from sparkrelay.errors import SparkRelayError
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["FirstRow", "OutputReader"]

_TIMEOUT_S: Final = 30.0
_FINISH_S: Final = 60.0
_CLOSE_S: Final = 5.0
_PAUSE_S: Final = 0.05


class FirstRow(NamedTuple):
    """The first row that somebody else wrote for a watched task: which one, and when we saw it (seconds since 1970)."""

    task: str
    row: RowKey
    seen_at: float


class OutputReader:
    """A thread that reads the result topics, of ``PARTITIONS`` partitions each, to their ends, again and again."""

    def __init__(self, bootstrap_servers: str, outputs: Sequence[Output]) -> None:
        self._config = {"bootstrap.servers": bootstrap_servers, "client.id": "demo-reader"}
        self._outputs = {output.topic: output for output in outputs}
        self._partitions = [TopicPartition(o.topic, p) for o in outputs for p in range(PARTITIONS)]
        self._tables: dict[str, Table] = {output.topic: {} for output in outputs}
        self._stopping = threading.Event()
        self._wanted: frozenset[str] | None = None
        self._watched: frozenset[str] = frozenset()
        self._behind: dict[TopicPartition, int] = {}
        self.rows = 0
        self.counted: dict[str, int] = dict.fromkeys(self._tables, 0)
        self.first_row: FirstRow | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="demo-reader", daemon=True)
        self._thread.start()

    def watch(self, tasks: Collection[str]) -> None:
        """Look out for the first row of one of these tasks that is not there yet; their owner must be dead.

        What it wrote last may be committed a moment later. So the ends that count are those of the logs as they are,
        open transactions included.
        """
        self.first_row = None
        self._wanted = frozenset(tasks)

    def finish(self) -> dict[str, Table]:
        """Read once more to the ends, end the thread, and return the tables by topic.

        Raises:
            SparkRelayError: reading failed.
        """
        self.close(_FINISH_S)
        if self.error is not None:
            raise self.error
        if self._thread.is_alive():
            raise SparkRelayError(f"The result topics could not be read to their ends within {_FINISH_S:g} s.")
        return self._tables

    def close(self, timeout_s: float = _CLOSE_S) -> None:
        """End the thread, whatever it is at; a broker that is gone holds nobody up."""
        self._stopping.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            with KafkaClient(ClientConfig.from_dict(self._config)) as client, BoundedFetcher(self._config) as fetcher:
                client.bootstrap(_TIMEOUT_S)
                self._follow(client, Admin(client, timeout=_TIMEOUT_S), fetcher)
        except Exception as error:  # noqa: BLE001 - the story raises it in its own thread
            self.error = error

    def _follow(self, client: KafkaClient, admin: Admin, fetcher: BoundedFetcher) -> None:
        positions = admin.list_offsets(dict.fromkeys(self._partitions, EARLIEST))
        last = False
        while True:
            if self._wanted is not None:
                self._behind = admin.list_offsets(dict.fromkeys(self._partitions, LATEST), read_committed=False)
                self._watched, self._wanted = self._wanted, None
            ends = admin.list_offsets(dict.fromkeys(self._partitions, LATEST))
            ranges = {p: (positions[p], end) for p, end in ends.items() if end > positions[p]}
            for partition, batch in fetcher.fetch(ranges, columns=["offset", "value"]) if ranges else ():
                self._take(partition, batch)
            positions = ends
            if last:
                return
            last = self._stopping.is_set()
            if not ranges and not last:
                client.sleep(_PAUSE_S)

    def _take(self, partition: TopicPartition, batch: pa.RecordBatch) -> None:
        output, table = self._outputs[partition.topic], self._tables[partition.topic]
        offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
        for offset, value in zip(offsets, values, strict=True):
            key, totals = read_row(output, value)
            before = table.get(key)
            table[key] = totals
            self.counted[output.topic] += totals.flights - (before.flights if before else 0)
            self.rows += 1
            if self._watched and offset >= self._behind[partition]:
                # The first column of the key decides on the input partition, and that on the task.
                task = output.task(int(murmur2_partitions(pa.array([key[0].encode()]), PARTITIONS)[0]))
                if task in self._watched:
                    self.first_row = FirstRow(task, key, time.time())
                    self._watched = frozenset()
