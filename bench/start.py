"""Start: from the start of an instance's process until a ``read_committed`` reader has its first row in hand.

The topic holds its records before; state and group are new, so internal topics are made as well. What an instance of
ours has done by when is reported by its phases (``bench.relay_phases``), in seconds since the process was started. The
page cache is as it comes: the first round may find files that nobody has read yet.
"""

from __future__ import annotations

import compileall
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparkrelay
from bench.children import BenchError, Instance
from bench.machine import load_average
from bench.results import check_totals, committed_reader, last_rows
from bench.systems import RELAY, STREAMS_EXACTLY_ONCE, STRUCTURED, Variant
from bench.topics import run_topics
from bench.workload import Workload
from sparkrelay.devkafka.topics import delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bench.results import Totals
    from bench.systems import System

__all__ = ["median_start", "start"]

_WORKLOAD = Workload(records=20_000, passes=1)
_SOURCE = "start"
_TIMEOUT_S = 180.0
_POLL_S = 0.05
_VARIANTS = (Variant(RELAY), Variant(STRUCTURED), STREAMS_EXACTLY_ONCE)


def start(
    bootstrap_servers: str,
    *,
    systems: Collection[System],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Start each system in turn, ``repeats`` times; returns a line of medians for each.

    Raises:
        BenchError: an instance failed, or its output is not exact.
    """
    # As pip leaves a package; a checkout has no byte code where PYTHONDONTWRITEBYTECODE is set.
    compileall.compile_dir(Path(sparkrelay.__file__).parent, quiet=1)
    _WORKLOAD.load(bootstrap_servers, _SOURCE)
    expected = _WORKLOAD.expected()
    runs: dict[Variant, list[dict[str, Any]]] = {variant: [] for variant in _VARIANTS if variant.system in systems}
    for number in range(1, repeats + 1):
        for variant, so_far in runs.items():
            so_far.append(_run(bootstrap_servers, variant, expected))
            on_figures({"bench": "start", "variant": variant.name, "run": number, **so_far[-1]})
    delete_topic(bootstrap_servers, _SOURCE)
    return [
        {"bench": "start", "variant": variant.name, "runs": repeats, **median_start(so_far)}
        for variant, so_far in runs.items()
    ]


def median_start(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the medians of the runs' figures; of the phases, those that every run has."""
    names = [name for name in runs[0]["phases"] if all(name in run["phases"] for run in runs)]
    return {
        "to_output_s": round(statistics.median(run["to_output_s"] for run in runs), 2),
        "cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 2),
        "phases": {name: round(statistics.median(run["phases"][name] for run in runs), 2) for name in names},
    }


def _run(bootstrap_servers: str, variant: Variant, expected: Totals) -> dict[str, Any]:
    load_before = load_average()
    with (
        run_topics(bootstrap_servers, f"{_SOURCE}-out") as (sink,),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        orders = variant.orders(
            bootstrap_servers=bootstrap_servers, source=_SOURCE, sink=sink, folder=Path(folder), look_s=0.1
        )
        if variant.system is RELAY:
            orders["phases"] = True
        consumer = committed_reader(bootstrap_servers, sink)
        try:
            with Instance(variant.system.module, orders) as instance:
                figures = _until_output(instance, consumer)
                instance.stop()
        finally:
            consumer.close()
        rows, _ = last_rows(bootstrap_servers, sink)
    check_totals(variant.name, expected, rows)
    return {**figures, "exact": True, "load_average_before": load_before}


def _until_output(instance: Instance, consumer: Any) -> dict[str, Any]:
    """Wait for the first row, then until the instance says that it took every record."""
    deadline = time.monotonic() + _TIMEOUT_S
    seen = cpu = 0.0
    phases: dict[str, float] = {}
    taken = 0
    while taken < _WORKLOAD.records or not seen:
        if time.monotonic() > deadline:
            raise BenchError(
                f"{taken} of {_WORKLOAD.records} records were taken in {_TIMEOUT_S:g} s; log: {instance.log}"
            )
        if not seen:
            message = consumer.poll(_POLL_S)
            at = time.time()
            # Also while nothing comes: what a process that ends has used is known from the last look.
            cpu = instance.cpu.seconds()
            if message is not None and message.error() is None:
                seen = at
        while (report := instance.next_report(_POLL_S if seen else 0.0)) is not None:
            if report["event"] in {"spark", "live", "phase"}:
                phases.setdefault(report.get("name", report["event"]), report["at"] - instance.started)
            elif report["event"] == "batch":
                taken += report["rows"]
    return {
        "to_output_s": round(seen - instance.started, 2),
        "cpu_s": round(cpu, 2),
        "phases": {name: round(at, 2) for name, at in sorted(phases.items(), key=lambda phase: phase[1])},
    }
