"""Reading the result topics while the story goes on, as any consumer with ``read_committed`` sees them.

It keeps the tables (the last value of each key), and it sees the takeover: after a kill, the first committed row for a
task of the dead instance that was written behind everything the dead one can have written.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from sparkrelay.consumer import Consumer
from sparkrelay.demo.tables import PARTITIONS, Output, RowKey, Table, read_row
from sparkrelay.errors import SparkRelayError
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["FirstRow", "OutputReader"]

_FINISH_S: Final = 60.0
_CLOSE_S: Final = 5.0
_POLL_S: Final = 0.05
_MOST_RECORDS: Final = 20_000


class FirstRow(NamedTuple):
    """The first row that somebody else wrote for a watched task: which one, and when we saw it (seconds since 1970)."""

    task: str
    row: RowKey
    seen_at: float


class OutputReader:
    """Reads the result topics, of ``PARTITIONS`` partitions each, from their beginnings; belongs to one thread."""

    def __init__(self, bootstrap_servers: str, outputs: Sequence[Output]) -> None:
        config = {"bootstrap.servers": bootstrap_servers, "client.id": "demo-reader", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**config, "isolation.level": "read_committed"})
        self._logs = Consumer({**config, "isolation.level": "read_uncommitted"})
        self._outputs = {output.topic: output for output in outputs}
        self._partitions = [TopicPartition(o.topic, p) for o in outputs for p in range(PARTITIONS)]
        self._consumer.assign(self._partitions)
        self._tables: dict[str, Table] = {output.topic: {} for output in outputs}
        self._watched: frozenset[str] = frozenset()
        self._behind: dict[TopicPartition, int] = {}
        self.rows = 0
        self.counted: dict[str, int] = dict.fromkeys(self._tables, 0)
        self.first_row: FirstRow | None = None

    def read(self, seconds: float) -> None:
        """Take in what is new, or wait for it so long.

        Raises:
            SparkRelayError: reading failed, or a record is no row.
        """
        self._take(self._consumer.poll(seconds, max_records=_MOST_RECORDS))

    def watch(self, tasks: Collection[str]) -> None:
        """Look out for the first row of one of these tasks that is not there yet; their owner must be dead.

        What it wrote last may be committed a moment later. So the ends that count are those of the logs as they are,
        open transactions included.
        """
        self._behind = self._logs.end_offsets(self._partitions)
        self._watched, self.first_row = frozenset(tasks), None

    def finish(self) -> dict[str, Table]:
        """Read once more to the ends, and return the tables by topic.

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
        """Close the connections; a broker that is gone holds nobody up."""
        self._consumer.close(_CLOSE_S)
        self._logs.close(_CLOSE_S)

    def _take(self, records: pa.Table) -> None:
        for record in records.select(["topic", "partition", "offset", "value"]).to_pylist():
            output, table = self._outputs[record["topic"]], self._tables[record["topic"]]
            key, totals = read_row(output, record["value"])
            before = table.get(key)
            table[key] = totals
            self.counted[output.topic] += totals.flights - (before.flights if before else 0)
            self.rows += 1
            at = TopicPartition(output.topic, record["partition"])
            if self._watched and record["offset"] >= self._behind[at]:
                # The first column of the key decides on the input partition, and that on the task.
                task = output.task(int(murmur2_partitions(pa.array([key[0].encode()]), PARTITIONS)[0]))
                if task in self._watched:
                    self.first_row = FirstRow(task, key, time.time())
                    self._watched = frozenset()
