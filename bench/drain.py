"""Drain: how fast a full topic is filtered, counted and summed by key, and the updates written.

Every system reads the same topic, which holds the workload three times, and starts with empty state in a process of
its own. The first pass is the cold one: JIT, first plans, an empty store. The passes after it are warm. A rate is
records read over wall time, from the first batch's start to the commit of the pass's last; what the process needs
before its first batch is counted apart (``to_first_batch_s``). Records per second of processor time, over all of an
instance's processes, hardly depend on what else the machine does. A run counts only if its output topic has exact
totals.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.children import Instance
from bench.machine import load_average
from bench.results import check_totals, last_rows
from bench.systems import RELAY, STREAMS_AT_LEAST_ONCE, STREAMS_EXACTLY_ONCE, STRUCTURED, Variant
from bench.topics import run_topics
from bench.workload import Workload, load
from sparkrelay.devkafka.topics import delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from bench.systems import System
    from bench.workload import Totals

__all__ = ["drain", "rates", "ratios"]

_TIMEOUT_S = 600.0
_SOURCE = "drain"


def drain(
    bootstrap_servers: str,
    *,
    workload: Workload,
    systems: Collection[System],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Run each variant in turn, ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: what to drain.
        systems: which ones to run.
        repeats: rounds; each round runs every variant once, so that a slow minute hits all alike.
        on_figures: called with each run's figures.

    Returns:
        A line of medians for each variant, with its ratios to Structured Streaming that takes a pass in one batch, and
        of its warm rate to that of Kafka Streams with each guarantee.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    one_batch = workload.records
    peer = Variant(STRUCTURED, one_batch)
    every = (
        Variant(RELAY, one_batch),
        Variant(RELAY, one_batch // 5),
        peer,
        Variant(STRUCTURED, one_batch // 10),
        STREAMS_EXACTLY_ONCE,
        STREAMS_AT_LEAST_ONCE,
    )
    variants = [variant for variant in every if variant.system in systems]
    on_figures({"bench": "drain", "loaded": dict(load(bootstrap_servers, _SOURCE, workload)), "keys": workload.keys})
    expected = workload.expected()
    runs: dict[Variant, list[dict[str, Any]]] = {variant: [] for variant in variants}
    for number in range(1, repeats + 1):
        for variant in variants:
            figures = _run(bootstrap_servers, variant, workload, expected)
            runs[variant].append(figures)
            on_figures({"bench": "drain", "variant": variant.name, "run": number, **figures})
    delete_topic(bootstrap_servers, _SOURCE)
    medians = {variant: _median(figures) for variant, figures in runs.items()}
    return [
        {
            "bench": "drain",
            "variant": variant.name,
            "runs": repeats,
            **figures,
            **ratios(figures, medians.get(peer)),
            "to_exactly_once": _warm_ratio(figures, medians.get(STREAMS_EXACTLY_ONCE)),
            "to_at_least_once": _warm_ratio(figures, medians.get(STREAMS_AT_LEAST_ONCE)),
        }
        for variant, figures in medians.items()
    ]


def _run(bootstrap_servers: str, variant: Variant, workload: Workload, expected: Totals) -> dict[str, Any]:
    """Start an instance on an empty state, let it drain the topic, check what it wrote."""
    load_before = load_average()
    with (
        run_topics(bootstrap_servers, f"{_SOURCE}-out") as (sink,),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        orders = variant.orders(
            bootstrap_servers=bootstrap_servers, source=_SOURCE, sink=sink, folder=Path(folder), look_s=0.01
        )
        with Instance(variant.system.module, orders) as instance:
            batches = instance.batches_until(workload.records * workload.passes, _TIMEOUT_S)
            instance.stop()
        rows, written = last_rows(bootstrap_servers, sink)
    check_totals(variant.name, expected, rows)
    return {
        **rates(batches, workload.records),
        "to_first_batch_s": round(batches[0]["began"] - instance.started, 2),
        "rows_written": written,
        "exact": True,
        "load_average_before": load_before,
    }


def ratios(figures: dict[str, Any], base: dict[str, Any] | None) -> dict[str, float | None]:
    """Return how many times a base's rates these are: cold to cold, warm to warm, and warm to the base's cold one."""
    pairs = {"cold_ratio": ("cold_rps",) * 2, "warm_ratio": ("warm_rps",) * 2}
    pairs["warm_to_cold_ratio"] = ("warm_rps", "cold_rps")
    return {name: round(figures[of] / base[to], 2) if base else None for name, (of, to) in pairs.items()}


def _warm_ratio(figures: dict[str, Any], base: dict[str, Any] | None) -> float | None:
    return ratios(figures, base)["warm_ratio"]


def rates(batches: list[dict[str, Any]], cold_records: int) -> dict[str, Any]:
    """Return the rates of the first pass and of the later ones, from an instance's reports of its batches."""
    taken = cold = 0
    for number, batch in enumerate(batches):
        taken += batch["rows"]
        if taken >= cold_records:
            cold = number
            break
    warm = batches[cold + 1 :]
    cold_seconds = batches[cold]["ended"] - batches[0]["began"]
    figures = {"cold_rps": round(taken / cold_seconds), "cold_s": round(cold_seconds, 2), "batches": len(batches)}
    if warm:
        warm_rows = sum(batch["rows"] for batch in warm)
        warm_seconds = warm[-1]["ended"] - batches[cold]["ended"]
        warm_cpu = warm[-1]["cpu_s"] - batches[cold]["cpu_s"]
        figures |= {
            "warm_rps": round(warm_rows / warm_seconds),
            "warm_s": round(warm_seconds, 2),
            "warm_records_per_cpu_s": round(warm_rows / max(warm_cpu, 0.01)),
        }
    return figures


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    names = ("cold_rps", "warm_rps", "cold_s", "warm_s", "warm_records_per_cpu_s", "to_first_batch_s", "batches")
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in names}
