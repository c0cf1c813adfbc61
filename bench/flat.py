"""Flat: whether the state of windows that end stays as large as it is, however far event time goes.

One instance of SparkRelay counts by user and ten seconds, and writes final rows. The bench writes two records of each
user for each window, in ten slices of a second of event time, and goes on once a slice was taken. Of each window length
it notes the most rows and the most bytes (pages of the stores' B-trees) that the state had after any slice; then it
waits until the changelog has been cut, every 30 seconds, and notes how many records there are from the changelog's
start to its end. The first window lengths do not count: nothing is over yet.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
from confluent_kafka import Consumer, TopicPartition

from bench.children import Instance
from bench.machine import load_average
from bench.relay_queries import WINDOW_STORE
from bench.results import check_totals, merged
from bench.systems import RELAY, Variant
from bench.topics import run_topics
from bench.windows import WINDOW_S, WindowWorkload, found_windows, window_totals
from bench.workload import PARTITIONS, write_records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

__all__ = ["flat", "spread_percent", "stored"]

#: Window lengths that do not count.
FIRST = 3
_ROUNDS = 2
_TIMEOUT_S = 180.0
_PURGE_S = 30.0
_MARGIN_S = 5.0
_POLL_S = 0.1
_SIZES = ("rows", "bytes", "changelog")


def flat(
    bootstrap_servers: str,
    *,
    keys: int,
    windows: int,
    purge_s: float = _PURGE_S,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Let event time run over so many window lengths.

    Args:
        bootstrap_servers: the broker.
        keys: users, each of which is in every window.
        windows: window lengths that count.
        purge_s: how often changelogs are cut; other than by default only where nobody quotes the figures.
        on_figures: called with the sizes after each window length.

    Returns:
        One line: the least and the most of each size, and how far apart they are.

    Raises:
        BenchError: the instance failed, or its output is not exact.
    """
    load_before = load_average()
    workload = WindowWorkload(keys=keys, records=keys, passes=1)
    users = workload.users()
    samples: list[dict[str, int]] = []
    with (
        run_topics(bootstrap_servers, "flat", "flat-out") as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
        closing(Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "bench-looks"})) as consumer,
    ):
        orders = Variant(RELAY).orders(
            bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=Path(folder), look_s=0.02
        )
        orders |= workload.orders(source)
        if purge_s != _PURGE_S:
            orders["purge_s"] = purge_s
        changelog = f"{orders['config']['application.id']}-{WINDOW_STORE}-changelog"
        with Instance(RELAY.module, orders) as instance:
            writer = _Writer(bootstrap_servers, source, instance)
            instance.wait_for("live", _TIMEOUT_S)
            for number in range(FIRST + windows):
                began = workload.ends + number * WINDOW_S
                sizes = []
                for second in range(WINDOW_S):
                    writer.write([_slice(names, second) for names in users], began + second)
                    sizes.append(stored(Path(folder), WINDOW_STORE))
                if number:
                    _await_cut(consumer, changelog, purge_s + _MARGIN_S)
                held = sum(end - start for start, end in _ends(consumer, changelog))
                samples.append({name: max(size[name] for size in sizes) for name in sizes[0]} | {"changelog": held})
                on_figures({"bench": "flat", "window": number + 1, **samples[-1]})
            expected, _ = merged(writer.totals, "sum")
            # Ends every window but its own, which has no final row.
            one = (np.ones(1, np.int64), np.zeros(1, np.int64))
            writer.write([(names.slice(0, 1), *one) for names in users], began + 3 * WINDOW_S)
            instance.stop()
        found, _ = found_windows(bootstrap_servers, sink, final=True)
    check_totals("flat", expected, found)
    counted = samples[FIRST:]
    return [
        {
            "bench": "flat",
            "variant": RELAY.name,
            "keys": keys,
            "windows": windows,
            "exact": True,
            "load_average_before": load_before,
            **{f"{name}_{way.__name__}": way(s[name] for s in counted) for name in _SIZES for way in (min, max)},
            **{f"{name}_spread_percent": spread_percent([s[name] for s in counted]) for name in _SIZES},
        }
    ]


class _Writer:
    """Writes slices, each once the instance has committed the one before, and keeps what they come to."""

    def __init__(self, bootstrap_servers: str, topic: str, instance: Instance) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._instance = instance
        self.totals: list[pa.Table] = []

    def write(self, records: Sequence[tuple[pa.Array, np.ndarray, np.ndarray]], at: int) -> None:
        """Write each partition's users, amounts and actions with an event time, and wait until they are committed."""
        times = [np.full(len(names), at) for names, _, _ in records]
        write_records(self._servers, self._topic, records, times=times)
        self.totals += (window_totals(*part[:2], when) for part, when in zip(records, times, strict=True))
        self._instance.batches_until(sum(map(len, times)), _TIMEOUT_S)


def spread_percent(sizes: Sequence[int]) -> float:
    """Return by how much the largest is larger than the smallest."""
    return round((max(sizes) / max(min(sizes), 1) - 1) * 100, 1)


def stored(folder: Path, store: str) -> dict[str, int]:
    """Return the rows of a store in all tasks below a folder, and the bytes of their pages. Another process has them.

    Args:
        folder: ``state.dir``.
        store: the store's name.
    """
    rows = pages = 0
    for data in folder.rglob("data.mdb"):
        with lmdb.open(str(data.parent), readonly=True, max_dbs=256, max_readers=512) as environment:
            try:
                table = environment.open_db(f"s:{store}".encode(), create=False)
            except lmdb.NotFoundError:
                continue  # no row yet
            with environment.begin() as transaction:
                held = transaction.stat(table)
        rows += held["entries"]
        pages += held["psize"] * (held["branch_pages"] + held["leaf_pages"] + held["overflow_pages"])
    return {"rows": rows, "bytes": pages}


def _slice(users: pa.Array, second: int) -> tuple[pa.Array, np.ndarray, np.ndarray]:
    """Return one partition's users, amounts and actions of one second: a tenth of the users, each twice."""
    chosen = np.tile(np.arange(second, len(users), WINDOW_S), _ROUNDS)
    return users.take(chosen), chosen % 400 + 1, np.zeros(len(chosen), np.int64)


def _await_cut(consumer: Consumer, changelog: str, timeout: float) -> None:
    """Wait until each partition begins somewhere else, or for as long as it takes to cut what there is to cut."""
    before = _ends(consumer, changelog)
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        time.sleep(_POLL_S)
        if all(now[0] > then[0] for now, then in zip(_ends(consumer, changelog), before, strict=True)):
            return


def _ends(consumer: Consumer, changelog: str) -> list[tuple[int, int]]:
    """Return where each partition begins and ends."""
    return [
        consumer.get_watermark_offsets(TopicPartition(changelog, partition), timeout=30, cached=False)
        for partition in range(PARTITIONS)
    ]
