"""Wide records: how much memory an instance takes at most while it drains a backlog of records of 20,000 bytes.

The records of ``bench.workload`` with a ``note`` of 20,000 bytes: in one topic random and not compressed, in the other
compressed 20 to 1, so that a fetch of some megabytes holds twenty times as much. Two queries drain each topic with the
default settings: one passes the records on, the other counts them by user and reads two fields of them.

The figure is the greatest sum of the PSS of driver, JVM and Python workers. A run counts only if its output is exact.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.children import Instance
from bench.machine import load_average
from bench.processes import MemoryPeak
from bench.results import check_totals, last_rows, merged, read_rows
from bench.systems import RELAY, Variant
from bench.topics import run_topics
from bench.workload import NEVER_DELETED, PARTITIONS, Workload, json_values
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.produce import Producer
from sparkrelay.devkafka.topics import create_topic
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from bench.results import Totals

__all__ = ["QUERIES", "WideWorkload", "wide"]

QUERIES: Final = {"passed on": "pass", "counted by user": "totals"}
_NOTE_BYTES: Final = 20_000
#: How often a note that compresses repeats its beginning.
_REPEATS: Final = 22
_NOTES: Final = 500
_CHUNK: Final = 1_000
_BATCH_BYTES: Final = 900_000
_TIMEOUT_S: Final = 900.0
_LOOK_S: Final = 0.2
_LETTERS: Final = np.frombuffer(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/", np.uint8)
_SEED: Final = 20_29
_ROWS: Final = pa.schema([("user", pa.string()), ("amount", pa.float64()), ("note", pa.string())])


@dataclass(frozen=True, slots=True)
class WideWorkload(Workload):
    """How much there is to do, of which records.

    Attributes:
        compressed: True if the producer compresses the records, and their notes repeat themselves.
        query: what is done with them, a key of :data:`QUERIES`.
    """

    records: int = 60_000
    keys: int = 1_000
    passes: int = 1
    compressed: bool = False
    query: str = "passed on"

    def orders(self, source: str) -> dict[str, Any]:
        """Return the query that an instance runs."""
        del source
        return {"query": QUERIES[self.query]}

    def load(self, bootstrap_servers: str, source: str) -> Mapping[str, float]:
        """Create the topic and write the records.

        Returns:
            ``records``, ``seconds``, and mean sizes: ``value_bytes`` of a value, ``sent_bytes`` of a record as sent.
        """
        create_topic(bootstrap_servers, source, partitions=PARTITIONS, config=NEVER_DELETED)
        started, values_size, sent = time.perf_counter(), 0, 0
        codec = "lz4" if self.compressed else "none"
        config = ClientConfig.from_dict({"bootstrap.servers": bootstrap_servers, "client.id": "bench-loader"})
        with KafkaClient(config) as client:
            client.bootstrap(30.0)
            producer = Producer(client)
            for partition, users, values in self.chunks():
                values_size += sum(map(int, pc.binary_length(values).to_numpy()))
                now = int(time.time() * 1000)
                for batch in encode(users, values, timestamps=now, compression=codec, max_batch_bytes=_BATCH_BYTES):
                    sent += len(batch.data)
                    producer.send(TopicPartition(source, partition), batch.data, transactional_id=None)
                producer.flush(_TIMEOUT_S)
        return {
            "records": self.records,
            "value_bytes": round(values_size / self.records, 1),
            "sent_bytes": round(sent / self.records, 1),
            "seconds": round(time.perf_counter() - started, 2),
        }

    def chunks(self) -> Iterator[tuple[int, pa.Array, pa.Array]]:
        """Yield partition, users and values of some records at a time: all of them need not fit into memory."""
        first, notes = 0, self.notes()
        for partition, (users, quarters, actions) in enumerate(self.columns()):
            for at in range(0, len(users), _CHUNK):
                some = slice(at, at + _CHUNK)
                chosen = notes.take(pa.array(np.arange(first, first + len(users[some])) % _NOTES))
                yield partition, users[some], _values(users[some], quarters[some], actions[some], first, chosen)
                first += len(users[some])

    def notes(self) -> pa.Array:
        """Return the texts that records take in turn."""
        width = _NOTE_BYTES // _REPEATS if self.compressed else _NOTE_BYTES
        letters = np.random.default_rng(_SEED).choice(_LETTERS, (_NOTES, width))
        texts = [row.tobytes().decode() for row in letters]
        return pa.array([(text * (_NOTE_BYTES // width + 1))[:_NOTE_BYTES] for text in texts])

    def expected(self) -> Totals:
        """Return the records and the sum of the amounts of each user: of all records, or of those that are counted."""
        if self.query != "passed on":
            return super(WideWorkload, self).expected()
        totals: Totals = {}
        for users, quarters, _ in self.columns():
            table = pa.table({"user": users, "quarters": quarters}).group_by("user")
            for row in table.aggregate([("user", "count"), ("quarters", "sum")]).to_pylist():
                totals[row["user"]] = (row["user_count"], row["quarters_sum"] / 4)
        return totals

    def found(self, bootstrap_servers: str, sink: str) -> tuple[Totals, int]:
        """Return what the output comes to, and its number of rows; rows with another note do not count."""
        if self.query != "passed on":
            return last_rows(bootstrap_servers, sink)

        def rows() -> Iterator[pa.Table]:
            for some in read_rows(bootstrap_servers, sink, _ROWS, at_once=_CHUNK):
                whole = some.filter(pc.equal(pc.binary_length(some["note"]), _NOTE_BYTES))
                ones = pa.array(np.ones(len(whole), np.int64))
                yield pa.table({"user": whole["user"], "orders": ones, "total": whole["amount"]})

        return merged(rows(), "sum")


def wide(
    bootstrap_servers: str,
    *,
    workload: WideWorkload,
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Drain random and compressed records with each query, ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: the sizes.
        repeats: runs of each query on each topic.
        on_figures: called with each run's figures.

    Returns:
        A line for each topic and query; its memory is that of the run that took most.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    lines = []
    for compressed in (False, True):
        records = "compressed 20:1" if compressed else "random"
        source = "wide-compressed" if compressed else "wide-random"
        loaded = replace(workload, compressed=compressed)
        on_figures({"bench": "wide", "loaded": dict(loaded.load(bootstrap_servers, source)), "of": records})
        for query in QUERIES:
            runs = []
            for number in range(1, repeats + 1):
                runs.append(_run(bootstrap_servers, source, replace(loaded, query=query)))
                on_figures({"bench": "wide", "records": records, "query": query, "run": number, **runs[-1]})
            most = max(runs, key=lambda run: run["pss_mb"])
            lines.append({"bench": "wide", "records": records, "query": query, "runs": repeats, **most})
        loaded.unload(bootstrap_servers, source)
    return lines


def _run(bootstrap_servers: str, source: str, workload: WideWorkload) -> dict[str, Any]:
    """Start an instance on an empty state, let it drain the topic, and check its output."""
    load_before = load_average()
    variant = Variant(RELAY)
    with (
        run_topics(bootstrap_servers, f"{source}-out") as (sink,),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        orders = variant.orders(bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=Path(folder))
        with (
            Instance(variant.system.module, orders | workload.orders(source)) as instance,
            MemoryPeak(instance.pid, every_s=_LOOK_S) as memory,
        ):
            batches = instance.batches_until(workload.taken, _TIMEOUT_S)
            instance.stop()
        found, written = workload.found(bootstrap_servers, sink)
    check_totals(f"wide, {workload.query}", workload.expected(), found)
    some = [batch for batch in batches if batch["rows"]]
    return {
        "backlog_mb": round(workload.records * _NOTE_BYTES / 1e6),
        "pss_mb": round(memory.pss_mb),
        "roles_mb": {role: round(size) for role, size in memory.roles_mb.items()},
        "batches": len(some),
        "largest_batch": max(batch["rows"] for batch in some),
        "seconds": round(some[-1]["ended"] - some[0]["began"], 1),
        "rows_written": written,
        "exact": True,
        "load_average_before": load_before,
    }


def _values(users: pa.Array, quarters: np.ndarray, actions: np.ndarray, first: int, notes: pa.Array) -> pa.Array:
    """Return the JSON text of each record, with a note of its own."""
    texts = json_values(users, quarters, actions, first, note="")
    heads = pc.utf8_slice_codeunits(texts, 0, -2)
    return pc.binary_join_element_wise(heads, notes, '"}', "")
