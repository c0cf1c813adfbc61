"""Reads the result topics while the demo runs, as any ``read_committed`` consumer sees them.

It keeps the tables (the last value of each key) and detects takeovers: after a kill, the first committed row for a task
of the dead instance that lies beyond everything this instance can have written.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from sparkrelay.consumer import Consumer
from sparkrelay.demo.tables import OUTPUTS, PARTITIONS, Output, RowKey, Table, read_row
from sparkrelay.errors import SparkRelayError
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_FINISH_S: Final = 60.0
_CLOSE_S: Final = 5.0
_POLL_S: Final = 0.05
_MAX_RECORDS: Final = 20_000


class FirstRow(NamedTuple):
    """The first row that a new owner wrote for a watched task; ``seen_at`` is seconds since 1970."""

    task: str
    row: RowKey
    seen_at: float


class OutputReader:
    """Reads result topics of ``PARTITIONS`` partitions from their beginnings. Belongs to one thread."""

    def __init__(self, bootstrap_servers: str, outputs: Sequence[Output] = OUTPUTS) -> None:
        config = {"bootstrap.servers": bootstrap_servers, "client.id": "demo-reader", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**config, "isolation.level": "read_committed"})
        self._uncommitted = Consumer({**config, "isolation.level": "read_uncommitted"})
        self._outputs = {output.topic: output for output in outputs}
        self._partitions = [TopicPartition(o.topic, p) for o in outputs for p in range(PARTITIONS)]
        self._consumer.assign(self._partitions)
        self._tables: dict[str, Table] = {output.topic: {} for output in outputs}
        self._watched: frozenset[str] = frozenset()
        self._ends_at_watch: dict[TopicPartition, int] = {}
        self.rows = 0
        self.counted: dict[str, int] = dict.fromkeys(self._tables, 0)
        self.first_row: FirstRow | None = None

    def read(self, seconds: float) -> None:
        """Read new records; wait at most this long for some.

        Raises:
            SparkRelayError: reading failed, or a record is not a row.
        """
        records = self._consumer.poll(seconds, max_records=_MAX_RECORDS)
        for record in records.select(["topic", "partition", "offset", "value"]).to_pylist():
            output, table = self._outputs[record["topic"]], self._tables[record["topic"]]
            key, totals = read_row(output, record["value"])
            self.counted[output.topic] += totals.flights - (table[key].flights if key in table else 0)
            table[key] = totals
            self.rows += 1
            at = TopicPartition(output.topic, record["partition"])
            if self._watched and record["offset"] >= self._ends_at_watch[at]:
                # The first column of the key decides the input partition, and thereby the task.
                task = output.task(int(murmur2_partitions(pa.array([key[0].encode()]), PARTITIONS)[0]))
                if task in self._watched:
                    self.first_row = FirstRow(task, key, time.time())
                    self._watched = frozenset()

    def watch(self, tasks: Collection[str]) -> None:
        """Watch for the first new row of one of these tasks, whose owner must be dead.

        The dead owner's last transaction may still be committed a moment later, so the watch begins at the uncommitted
        ends of the logs.
        """
        self._ends_at_watch = self._uncommitted.end_offsets(self._partitions)
        self._watched, self.first_row = frozenset(tasks), None

    def finish(self) -> dict[str, Table]:
        """Read to the current ends; return the tables by topic.

        Raises:
            SparkRelayError: reading failed, or took too long.
        """
        deadline = time.monotonic() + _FINISH_S
        for partition, end in self._consumer.end_offsets(self._partitions).items():
            while self._consumer.position(partition) < end:
                if time.monotonic() > deadline:
                    raise SparkRelayError(f"The result topics could not be read to their ends within {_FINISH_S:g} s.")
                self.read(_POLL_S)
        return self._tables

    def close(self) -> None:
        """Close the connections, without waiting long for a broker that is gone."""
        self._consumer.close(_CLOSE_S)
        self._uncommitted.close(_CLOSE_S)
