"""Reading the result topics while the story goes on, as any consumer with ``read_committed`` sees them.

It keeps the tables (the last value of each key), and it sees the takeover: after a kill, the first committed row for a
task of the dead instance that was written behind everything the dead one can have written.
"""

from __future__ import annotations

import threading
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
_POLL_RECORDS: Final = 20_000


class FirstRow(NamedTuple):
    """The first row that somebody else wrote for a watched task: which one, and when we saw it (seconds since 1970)."""

    task: str
    row: RowKey
    seen_at: float


class OutputReader:
    """A thread that reads the result topics, of ``PARTITIONS`` partitions each, to their ends, again and again."""

    def __init__(self, bootstrap_servers: str, outputs: Sequence[Output]) -> None:
        self._config = {
            "bootstrap.servers": bootstrap_servers, "client.id": "demo-reader", "auto.offset.reset": "earliest"
        }  # fmt: skip
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
        committed, all_ = ({**self._config, "isolation.level": f"read_{kind}"} for kind in ("committed", "uncommitted"))
        try:
            with Consumer(committed) as consumer, Consumer(all_) as logs:
                consumer.assign(self._partitions)
                while not self._stopping.is_set():
                    if self._wanted is not None:
                        self._behind = logs.end_offsets(self._partitions)
                        self._watched, self._wanted = self._wanted, None
                    self._take(consumer.poll(_POLL_S, max_records=_POLL_RECORDS))
                for partition, end in consumer.end_offsets(self._partitions).items():
                    while consumer.position(partition) < end:
                        self._take(consumer.poll(_POLL_S, max_records=_POLL_RECORDS))
        except Exception as error:  # noqa: BLE001 - the story raises it in its own thread
            self.error = error

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
