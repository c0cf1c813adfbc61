"""Drains: how fast a full topic is read, worked on, and the results written.

Every system reads the same topic, which holds the workload several times, and starts with empty state in a process of
its own. The first pass is the cold one: JIT, first plans, an empty store. The passes after it are warm. A rate is
records read over wall time, from the first batch's start to the commit of the pass's last; what the process needs
before its first batch is counted apart (``to_first_batch_s``), and so is the time in which a table is read before any
record may look something up in it. Records per second of processor time, over all of an instance's processes, hardly
depend on what else the machine does. A run counts only if what it wrote is exact.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.children import Instance
from bench.machine import load_average
from bench.results import check_totals
from bench.systems import RELAY, STREAMS_AT_LEAST_ONCE, STREAMS_EXACTLY_ONCE, STRUCTURED, Variant
from bench.topics import run_topics
from bench.windows import WindowWorkload

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from bench.results import Totals
    from bench.systems import System
    from bench.workload import Workload

__all__ = ["Case", "compared", "drain", "rates", "ratios", "run_rounds"]

_TIMEOUT_S = 600.0
_FIGURES = ("cold_rps", "warm_rps", "cold_s", "warm_s", "warm_records_per_cpu_s", "to_first_batch_s", "batches")


@dataclass(frozen=True, slots=True)
class Case:
    """What is run: a system with its settings, and a query on the workload."""

    name: str
    variant: Variant
    workload: Workload


def drain(
    bootstrap_servers: str,
    *,
    workload: Workload,
    systems: Collection[System],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
    name: str = "drain",
) -> list[dict[str, Any]]:
    """Run each variant in turn, ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: what to drain.
        systems: which ones to run.
        repeats: rounds.
        on_figures: called with each run's figures.
        name: of the part.

    Returns:
        A line of medians for each variant, with its ratios to Structured Streaming that takes a pass in one batch, and
        of its warm rate to that of Kafka Streams with each guarantee.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    # What comes behind the last pass is no batch of its own.
    one_batch = workload.a_pass + workload.closing
    peer = Variant(STRUCTURED, one_batch)
    every = (
        Variant(RELAY, one_batch),
        Variant(RELAY, workload.a_pass // 5 + workload.closing),
        peer,
        Variant(STRUCTURED, workload.a_pass // 10 + workload.closing),
        STREAMS_EXACTLY_ONCE,
        STREAMS_AT_LEAST_ONCE,
    )
    cases = [Case(variant.name, variant, workload) for variant in every if variant.system in systems]
    runs = run_rounds(bootstrap_servers, name, cases, repeats=repeats, on_figures=on_figures)
    medians = {case.variant: _median(runs[case]) for case in cases}
    return [
        {
            "bench": name,
            "variant": variant.name,
            "runs": repeats,
            **figures,
            **ratios(figures, medians.get(peer)),
            "to_exactly_once": _warm_ratio(figures, medians.get(STREAMS_EXACTLY_ONCE)),
            "to_at_least_once": _warm_ratio(figures, medians.get(STREAMS_AT_LEAST_ONCE)),
        }
        for variant, figures in medians.items()
    ]


def run_rounds(
    bootstrap_servers: str,
    name: str,
    cases: Sequence[Case],
    *,
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> dict[Case, list[dict[str, Any]]]:
    """Write the topic, and drain it with each case in turn.

    Args:
        bootstrap_servers: the broker.
        name: of the part, and of the topic.
        cases: whose workloads have the same records and the same answer.
        repeats: rounds; each round runs every case once, so that a slow minute hits all alike, and begins with another.
        on_figures: called with each run's figures.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    workload = cases[0].workload
    on_figures({"bench": name, "loaded": dict(workload.load(bootstrap_servers, name)), "keys": workload.keys})
    expected = workload.expected()
    runs: dict[Case, list[dict[str, Any]]] = {case: [] for case in cases}
    for number in range(repeats):
        first = number % len(cases)
        for case in (*cases[first:], *cases[:first]):
            figures = _run(bootstrap_servers, name, case, expected)
            runs[case].append(figures)
            on_figures({"bench": name, "variant": case.name, "run": number + 1, **figures})
    workload.unload(bootstrap_servers, name)
    return runs


def compared(name: str, runs: dict[Case, list[dict[str, Any]]], base: Case, *others: Case) -> list[dict[str, Any]]:
    """Return a line of medians for each case; the others' have ratios to the base, as medians of the rounds.

    Args:
        name: of the part.
        runs: what :func:`run_rounds` returned.
        base: what the others are compared with.
        others: whose rates are compared.
    """
    rates = ("warm_rps", "warm_records_per_cpu_s")
    lines: list[dict[str, Any]] = [
        {
            "bench": name,
            "variant": case.name,
            "runs": len(runs[case]),
            **{rate: round(statistics.median(run[rate] for run in runs[case])) for rate in rates},
        }
        for case in (base, *others)
    ]
    for line, other in zip(lines[1:], others, strict=True):
        pairs = list(zip(runs[other], runs[base], strict=True))
        for rate in rates:
            line[f"{rate}_ratio"] = round(statistics.median(one[rate] / beside[rate] for one, beside in pairs), 2)
    return lines


def _run(bootstrap_servers: str, source: str, case: Case, expected: Totals) -> dict[str, Any]:
    """Start an instance on an empty state, let it drain the topic, check what it wrote."""
    load_before = load_average()
    variant, workload = case.variant, case.workload
    with (
        run_topics(bootstrap_servers, f"{source}-out") as (sink,),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        orders = variant.orders(
            bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=Path(folder), look_s=0.01
        )
        with Instance(variant.system.module, orders | workload.orders(source)) as instance:
            batches = instance.batches_until(workload.taken, _TIMEOUT_S)
            if variant.system is STRUCTURED and isinstance(workload, WindowWorkload) and workload.delay_s is not None:
                # It writes what is over with the batch after the one that moved the watermark.
                instance.wait_for("batch", _TIMEOUT_S)
            instance.stop()
        found, written = workload.found(bootstrap_servers, sink)
    check_totals(case.name, expected, found)
    # Batches without records read a table.
    batches = list(dropwhile(lambda batch: not batch["rows"], batches))
    return {
        **rates(batches, workload.a_pass),
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
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in _FIGURES}
