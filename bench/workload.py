"""The workload every system gets: JSON records of about 100 bytes, and what the query must say about them.

    {"user":"u004711","amount":12.25,"action":"buy","n":1234567,"note":"................................"}

The query keeps every action but ``view``, then counts records and sums amounts by user. (``bench.lookups`` and
``bench.windows`` ask other things of the same records.) Amounts are quarters, so sums are exact in doubles, in any
order of adding. Each partition has the same number of keys and of records: a bound on
records per partition then means the same number of records a batch for both systems that have batches.

A topic holds the same ``records`` several times over, pass after pass. So every pass is equal work on known keys, and
nobody has to produce while a pass is being measured.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.results import last_rows
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.devkafka.topics import create_topic, delete_topic
from sparkrelay.records.batches.encode import encode
from sparkrelay.records.partition import murmur2_partitions
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bench.results import Totals

__all__ = [
    "ACTIONS",
    "CONDITION",
    "NEVER_DELETED",
    "NOTE",
    "PARTITIONS",
    "SCHEMA",
    "Workload",
    "count_kept",
    "json_values",
    "kept",
    "write_records",
    "write_values",
]

PARTITIONS = 4
SCHEMA = "user string, amount double, action string, n bigint, note string"
CONDITION = "action <> 'view'"
ACTIONS = ("buy", "view", "sell", "return")
_SKIPPED = ACTIONS.index("view")
NOTE = "." * 32
_SEED = 20_26
_BATCH_BYTES = 100_000
_SEND_TIMEOUT_S = 120.0
NEVER_DELETED = {"retention.ms": "-1"}


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

    @property
    def closing(self) -> int:
        """How many records come behind the last pass."""
        return 0

    @property
    def a_pass(self) -> int:
        """How many records an instance takes in one pass."""
        return self.records

    @property
    def taken(self) -> int:
        """How many records an instance takes in all, but for those of a table."""
        return self.a_pass * self.passes + self.closing

    def orders(self, source: str) -> dict[str, Any]:
        """Return what an instance's orders say of the query."""
        del source
        return {"query": "totals"}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Make the topic and write all passes.

        Returns:
            ``records``, ``value_bytes`` (mean size of a value) and ``seconds``.
        """
        create_topic(bootstrap_servers, source, partitions=PARTITIONS, config=NEVER_DELETED)
        started = time.perf_counter()
        value_bytes = write_records(bootstrap_servers, source, list(self.columns()), passes=self.passes)
        return {
            "records": self.records * self.passes,
            "value_bytes": round(value_bytes / self.records, 1),
            "seconds": round(time.perf_counter() - started, 2),
        }

    def unload(self, bootstrap_servers: str, source: str) -> None:
        """Delete what :meth:`load` has made."""
        delete_topic(bootstrap_servers, source)

    def found(self, bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
        """Return what the result topic comes to, to compare with :meth:`expected`, and how many rows it has."""
        return last_rows(bootstrap_servers, sink)

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
            table = pa.table({"user": users, "quarters": quarters}).filter(pa.array(kept(actions)))
            for row in table.group_by("user").aggregate([("user", "count"), ("quarters", "sum")]).to_pylist():
                totals[row["user"]] = (row["user_count"] * self.passes, row["quarters_sum"] * self.passes / 4)
        return totals


def count_kept(actions: np.ndarray) -> int:
    """Return how many of these actions the query keeps."""
    return int(np.count_nonzero(kept(actions)))


def kept(actions: np.ndarray) -> np.ndarray:
    """Return which of these actions the query keeps."""
    return actions != _SKIPPED


def write_records(
    bootstrap_servers: str,
    topic: str,
    columns: Sequence[tuple[pa.Array, np.ndarray, np.ndarray]],
    *,
    passes: int = 1,
    note: str = NOTE,
    times: Sequence[np.ndarray] | None = None,
) -> int:
    """Write records in bulk.

    Args:
        bootstrap_servers: the broker.
        topic: where to.
        columns: each partition's users, amounts in quarters and actions (as numbers).
        passes: how often.
        note: what each says beyond that.
        times: each partition's event times, seconds since 1970, for the field ``time``; None: records have none.

    Returns:
        Bytes of the values of one pass.
    """
    first = 0
    parts = []
    for partition, (users, quarters, actions) in enumerate(columns):
        values = json_values(users, quarters, actions, first, note, None if times is None else times[partition])
        first += len(values)
        parts.append((users, values))
    return write_values(bootstrap_servers, topic, parts, passes=passes)


def write_values(
    bootstrap_servers: str,
    topic: str,
    parts: Sequence[tuple[pa.Array, pa.Array]],
    *,
    passes: int = 1,
    timestamps: Sequence[pa.Array] | None = None,
) -> int:
    """Write each partition's keys and values in bulk, so many times; returns bytes of the values of one pass.

    Their records' timestamps are those of each partition, milliseconds since 1970, or now.
    """
    config = ClientConfig.from_dict({"bootstrap.servers": bootstrap_servers, "client.id": "bench-loader"})
    with KafkaClient(config) as client:
        client.bootstrap(30.0)
        producer = Producer(client)
        begun: set[int] = set()
        for _ in range(passes):
            for partition, (keys, values) in enumerate(parts):
                times = int(time.time() * 1000) if timestamps is None else timestamps[partition]
                for batch in encode(keys, values, timestamps=times, max_batch_bytes=_BATCH_BYTES):
                    producer.send(TopicPartition(topic, partition), batch.data, transactional_id=None)
                    if partition not in begun:
                        # A topic that has just been made may refuse it for a moment, and batches without producer id
                        # that follow at once would overtake it: records of windows would be late.
                        begun.add(partition)
                        producer.flush(_SEND_TIMEOUT_S)
            producer.flush(_SEND_TIMEOUT_S)
    return sum(int(values.nbytes) - 4 * (len(values) + 1) for _, values in parts)


def json_values(  # noqa: PLR0917 - a record has these fields
    users: pa.Array,
    quarters: np.ndarray,
    actions: np.ndarray,
    first: int,
    note: str = NOTE,
    times: np.ndarray | None = None,
) -> pa.Array:
    """Return the JSON text of each record."""
    texts = pa.array(ACTIONS).take(pa.array(actions))
    amounts = pc.cast(pa.array(quarters / 4), pa.string())
    numbers = pc.cast(pa.array(np.arange(first, first + len(users))), pa.string())
    pieces = ['{"user":"', users, '","amount":', amounts, ',"action":"', texts, '","n":', numbers]
    if times is not None:
        pieces += [',"time":', pc.cast(pa.array(times), pa.string())]
    pieces += [f',"note":"{note}"}}', ""]
    return pc.binary_join_element_wise(*pieces)
