"""The workload every system gets: JSON records of about 100 bytes, and what the query must say about them.

    {"user":"u004711","amount":12.25,"action":"buy","n":1234567,"note":"................................"}

The query keeps every action but ``view``, then counts records and sums amounts by user. Amounts are quarters, so sums
are exact in doubles, in any order of adding. Each partition has the same number of keys and of records: a bound on
records per partition then means the same number of records a batch for both systems that have batches.

A topic holds the same ``records`` several times over, pass after pass. So every pass is equal work on known keys, and
nobody has to produce while a pass is being measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.devkafka.topics import create_topic
from sparkrelay.records.encode import encode
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["CONDITION", "PARTITIONS", "SCHEMA", "Totals", "Workload", "count_kept", "load", "write_records"]

PARTITIONS = 4
SCHEMA = "user string, amount double, action string, n bigint, note string"
CONDITION = "action <> 'view'"
ACTIONS = ("buy", "view", "sell", "return")
_SKIPPED = ACTIONS.index("view")
_NOTE = "." * 32
_SEED = 20_26
_BATCH_BYTES = 100_000
_SEND_TIMEOUT_S = 120.0

Totals = dict[str, tuple[int, float]]
"""User -> (orders, total)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """How much there is to do.

    Attributes:
        records: records of one pass.
        keys: distinct users.
        passes: how often the records are in the topic.
    """

    records: int = 2_000_000
    keys: int = 10_000
    passes: int = 3

    def __post_init__(self) -> None:
        for name in ("records", "keys"):
            if getattr(self, name) % PARTITIONS or getattr(self, name) < PARTITIONS:
                raise ValueError(f"{name}={getattr(self, name)} must be a positive multiple of {PARTITIONS} partitions")

    def users(self) -> list[pa.Array]:
        """Return the keys of each partition, equally many, as Java's partitioner places them."""
        each = self.keys // PARTITIONS
        names = pa.array([f"u{number:06d}" for number in range(self.keys * 3)])
        homes = murmur2_partitions(names, PARTITIONS)
        return [names.take(pa.array(np.flatnonzero(homes == p)[:each])) for p in range(PARTITIONS)]

    def columns(self) -> Iterator[tuple[pa.Array, np.ndarray, np.ndarray]]:
        """Yield each partition's users, amounts in quarters and actions (as numbers) of one pass."""
        random = np.random.default_rng(_SEED)
        each = self.records // PARTITIONS
        for users in self.users():
            chosen = random.integers(0, len(users), each)
            yield users.take(pa.array(chosen)), random.integers(1, 400, each), random.integers(0, len(ACTIONS), each)

    def expected(self) -> Totals:
        """Return what the last output row of each user must say."""
        totals: Totals = {}
        for users, quarters, actions in self.columns():
            kept = pa.array(actions != _SKIPPED)
            table = pa.table({"user": users, "quarters": quarters}).filter(kept)
            for row in table.group_by("user").aggregate([("user", "count"), ("quarters", "sum")]).to_pylist():
                totals[row["user"]] = (row["user_count"] * self.passes, row["quarters_sum"] * self.passes / 4)
        return totals


def count_kept(actions: np.ndarray) -> int:
    """Return how many of these actions the query keeps."""
    return int(np.count_nonzero(actions != _SKIPPED))


def load(bootstrap_servers: str, topic: str, workload: Workload) -> Mapping[str, float]:
    """Make the topic and write all passes.

    Returns:
        ``records``, ``value_bytes`` (mean size of a value) and ``seconds``.
    """
    create_topic(bootstrap_servers, topic, partitions=PARTITIONS, config={"retention.ms": "-1"})
    started = time.perf_counter()
    value_bytes = write_records(bootstrap_servers, topic, list(workload.columns()), passes=workload.passes)
    return {
        "records": workload.records * workload.passes,
        "value_bytes": round(value_bytes / workload.records, 1),
        "seconds": round(time.perf_counter() - started, 2),
    }


def write_records(
    bootstrap_servers: str,
    topic: str,
    columns: Sequence[tuple[pa.Array, np.ndarray, np.ndarray]],
    *,
    passes: int = 1,
    note: str = _NOTE,
) -> int:
    """Write records in bulk.

    Args:
        bootstrap_servers: the broker.
        topic: where to.
        columns: each partition's users, amounts in quarters and actions (as numbers).
        passes: how often.
        note: what each says beyond that.

    Returns:
        Bytes of the values of one pass.
    """
    value_bytes = first = 0
    config = ClientConfig.from_dict({"bootstrap.servers": bootstrap_servers, "client.id": "bench-loader"})
    with KafkaClient(config) as client:
        client.bootstrap(30.0)
        producer = Producer(client)
        parts = []
        for partition, (users, quarters, actions) in enumerate(columns):
            values = _values(users, quarters, actions, first, note)
            first += len(values)
            value_bytes += int(values.nbytes) - 4 * (len(values) + 1)
            parts.append((TopicPartition(topic, partition), users, values))
        for _ in range(passes):
            for where, users, values in parts:
                now = int(time.time() * 1000)
                for batch in encode(users, values, timestamps=now, max_batch_bytes=_BATCH_BYTES):
                    producer.send(where, batch.data, transactional_id=None)
            producer.flush(_SEND_TIMEOUT_S)
    return value_bytes


def _values(users: pa.Array, quarters: np.ndarray, actions: np.ndarray, first: int, note: str = _NOTE) -> pa.Array:
    """Return the JSON text of each record."""
    texts = pa.array(ACTIONS).take(pa.array(actions))
    amounts = pc.cast(pa.array(quarters / 4), pa.string())
    numbers = pc.cast(pa.array(np.arange(first, first + len(users))), pa.string())
    pieces = ['{"user":"', users, '","amount":', amounts, ',"action":"', texts, '","n":', numbers]
    pieces += [f',"note":"{note}"}}', ""]
    return pc.binary_join_element_wise(*pieces)
