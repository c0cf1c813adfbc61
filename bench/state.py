"""State: what a large one costs: drain, restore, size on disk and memory, from some thousand keys to millions.

A topic holds a record for each key, several times over where keys are few, and behind that records of random keys. An
instance reads the first part to fill its state and warm up; of the second part its rate is measured. Then it is
stopped, its disk is emptied, and an instance with one core restores everything from the changelog. Besides count and
sum, the state keeps the greatest note, of 80 bytes: with it a value has about 100 bytes. A run counts only if its
output topic has exact totals.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from bench.children import BenchError, Instance
from bench.drain import rates
from bench.machine import load_average
from bench.processes import memory_mb
from bench.results import committed_reader
from bench.systems import RELAY, STREAMS, STREAMS_EXACTLY_ONCE, Variant
from bench.topics import run_topics
from bench.workload import PARTITIONS, write_records
from sparkrelay.records.partition import murmur2_partitions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bench.systems import System

__all__ = ["Sizes", "disk_bytes", "state"]

_TIMEOUT_S = 3600.0
_READ_TIMEOUT_S = 60.0
_NOTE = "." * 80
_SEED = 20_26
_WRITE_AT_ONCE = 2_000_000
_FIGURES = ("warm_rps", "warm_records_per_cpu_s", "cold_rps", "restored_per_s", "disk_mb")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much there is.

    Attributes:
        keys: sizes of the state, in keys.
        fill: least number of records before the measured ones; a micro-batch takes as many (the default with 2 M).
        records: measured records.
    """

    keys: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    fill: int = 2_000_000
    records: int = 4_000_000


def state(
    bootstrap_servers: str,
    *,
    sizes: Sizes,
    systems: Collection[System],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Run SparkRelay and Kafka Streams in turn with each size of state.

    Args:
        bootstrap_servers: the broker.
        sizes: how much there is.
        systems: which ones to run; Structured Streaming is not among them.
        repeats: rounds of each size; each runs every system once.
        on_figures: called with each run's figures.

    Returns:
        A line of medians for each system and size, with the ratios of its drain to that of Kafka Streams and to its own
        with the fewest keys.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    variants = [v for v in (Variant(RELAY, sizes.fill), STREAMS_EXACTLY_ONCE) if v.system in systems]
    lines: list[dict[str, Any]] = []
    for keys in sizes.keys:
        runs: dict[Variant, list[dict[str, Any]]] = {variant: [] for variant in variants}
        with run_topics(bootstrap_servers, "state") as (source,):
            expected, filled = _load(bootstrap_servers, source, keys, sizes)
            for number in range(1, repeats + 1):
                for variant in variants:
                    figures = _run(bootstrap_servers, variant, source, filled, sizes.records, expected)
                    runs[variant].append(figures)
                    on_figures({"bench": "state", "variant": variant.name, "keys": keys, "run": number, **figures})
        medians = {variant: _median(figures) for variant, figures in runs.items()}
        for variant, figures in medians.items():
            few = next((line for line in lines if line["variant"] == variant.name), figures)
            lines.append(
                {
                    "bench": "state",
                    "variant": variant.name,
                    "keys": keys,
                    "runs": repeats,
                    **figures,
                    **_ratios(figures, few, "to_few_keys"),
                    **_ratios(figures, medians.get(STREAMS_EXACTLY_ONCE), "to_exactly_once"),
                }
            )
    return lines


@dataclass(frozen=True, slots=True)
class _Expected:
    """What the last row of each user must say, by the user's number."""

    orders: np.ndarray
    quarters: np.ndarray


def _load(bootstrap_servers: str, topic: str, keys: int, sizes: Sizes) -> tuple[_Expected, int]:
    """Write all records; return what they add up to, and how many come before the measured ones."""
    random = np.random.default_rng(_SEED)
    orders, quarters = np.zeros(keys, np.int64), np.zeros(keys, np.int64)
    users = pa.array([f"u{number:06d}" for number in range(keys)])
    homes = murmur2_partitions(users, PARTITIONS)

    def write(numbers: np.ndarray) -> None:
        # Every record is kept, unlike in the other parts: it is the store that is looked at.
        amounts = random.integers(1, 400, len(numbers))
        parts = []
        for partition in range(PARTITIONS):
            at = np.flatnonzero(homes[numbers] == partition)
            parts.append((users.take(pa.array(numbers[at])), amounts[at], np.zeros(len(at), np.int64)))
        write_records(bootstrap_servers, topic, parts, note=_NOTE)
        np.add.at(orders, numbers, 1)
        np.add.at(quarters, numbers, amounts)

    passes = -(-sizes.fill // keys)
    order = np.concatenate([random.permutation(keys) for _ in range(passes)])
    for start in range(0, len(order), _WRITE_AT_ONCE):
        write(order[start : start + _WRITE_AT_ONCE])
    for start in range(0, sizes.records, _WRITE_AT_ONCE):
        write(random.integers(0, keys, min(_WRITE_AT_ONCE, sizes.records - start)))
    return _Expected(orders, quarters), passes * keys


def _run(  # noqa: PLR0917 - what to run, on what, and what comes of it
    bootstrap_servers: str, variant: Variant, source: str, filled: int, records: int, expected: _Expected
) -> dict[str, Any]:
    """Let an instance drain the topic, and another one restore what it had."""
    load_before = load_average()
    with (
        run_topics(bootstrap_servers, "state-out") as (sink,),
        tempfile.TemporaryDirectory(prefix="bench-state-") as temporary,
    ):
        folder = Path(temporary) / "state"
        orders = variant.orders(bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=folder)
        orders |= {"note": True, "look_s": 0.01, "leave_group": True}
        with Instance(variant.system.module, orders) as instance:
            batches = instance.batches_until(filled + records, _TIMEOUT_S)
            memory = memory_mb(instance.pid)
            instance.stop()
        disk = disk_bytes(folder) >> 20
        _check(variant.name, bootstrap_servers, sink, expected)
        shutil.rmtree(folder)
        restored = _restore(variant, orders)
    return {
        **rates(batches, filled),
        **restored,
        "disk_mb": disk,
        "memory_mb": {role: [round(size) for size in sizes] for role, sizes in memory.items()},
        "exact": True,
        "load_average_before": load_before,
    }


def _restore(variant: Variant, orders: dict[str, Any]) -> dict[str, Any]:
    """Return how fast an instance with one core restores everything."""
    orders = {**orders, "tasks": True, "look_s": 0.02}
    if variant.system is STREAMS:
        orders["config"] = {**orders["config"], "num.stream.threads": 1}
    else:
        orders["spark"] = {**orders["spark"], "spark.master": "local[1]"}
    with Instance(variant.system.module, orders) as instance:
        report = instance.wait_for("restored", _TIMEOUT_S)
        memory = memory_mb(instance.pid)
        cpu = instance.cpu.seconds()
        instance.stop()
    took = max(report["ended"] - report["began"], 0.001)
    return {
        "restored": report["count"],
        "restore_s": round(took, 2),
        "restored_per_s": round(report["count"] / took),
        "restore_cpu_s": round(cpu, 1),
        "restore_memory_mb": {role: [round(size) for size in sizes] for role, sizes in memory.items()},
    }


def disk_bytes(folder: Path) -> int:
    """Return what the files below a folder take on the disk."""
    files = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sum(file.stat().st_blocks for file in files) * 512


def _check(name: str, bootstrap_servers: str, sink: str, expected: _Expected) -> None:
    """Compare the last row of every user with what it must be.

    Raises:
        BenchError: one differs, or the topic has no end.
    """
    keys = len(expected.orders)
    orders, totals = np.zeros(keys, np.int64), np.zeros(keys)
    reader = committed_reader(bootstrap_servers, sink)
    try:
        open_ends = {place.partition for place in reader.assignment()}
        while open_ends:
            messages = reader.consume(100_000, _READ_TIMEOUT_S)
            if not messages:
                raise BenchError(f"partitions {sorted(open_ends)} of {sink} were silent for {_READ_TIMEOUT_S:g} s")
            values = []
            for message in messages:
                error = message.error()
                if error is None:
                    values.append(message.value() or b"{}")
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public spelling
                    open_ends.discard(message.partition())
                else:
                    raise BenchError(f"reading {sink}: {error}")
            _take(values, orders, totals)
    finally:
        reader.close()
    wrong = np.flatnonzero((orders != expected.orders) | (totals * 4 != expected.quarters))
    if len(wrong):
        first = int(wrong[0])
        raise BenchError(
            f"{name} is not exact: {len(wrong)} of {keys} users differ (u{first:06d}: {orders[first]}, {totals[first]} "
            f"instead of {expected.orders[first]}, {expected.quarters[first] / 4})"
        )


def _take(values: Sequence[bytes], orders: np.ndarray, totals: np.ndarray) -> None:
    for row in json.loads(b"[" + b",".join(values) + b"]"):
        number = int(row["user"][1:])
        orders[number], totals[number] = row["orders"], row["total"]


def _ratios(figures: dict[str, Any], base: dict[str, Any] | None, name: str) -> dict[str, float | None]:
    """Return how many times a base's drain this is: by seconds, and by seconds of processor time."""
    rates = {name: "warm_rps", f"{name}_by_cpu": "warm_records_per_cpu_s"}
    return {ratio: round(figures[rate] / base[rate], 2) if base else None for ratio, rate in rates.items()}


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians of the rates, and the memory of the last run."""
    figures: dict[str, Any] = {name: round(statistics.median(run[name] for run in runs)) for name in _FIGURES}
    return figures | {name: runs[-1][name] for name in ("memory_mb", "restore_memory_mb")}
