"""Steady: what an instance costs when there is nothing to do, and whether it grows when there is, minute after minute.

Idle, before any record and after the work: all its processes together, as a share of one core, and whether Spark was
given a job. In between, 1,000 records a second; memory of the driver, the JVM and the workers is the median of half a
minute before minute 2 and before the last minute's end.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.children import BenchError, Instance
from bench.feed import Feed
from bench.machine import load_average
from bench.processes import ROLES, heap_mb, memory_mb
from bench.results import check_totals, last_rows
from bench.systems import Variant
from bench.topics import run_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.systems import System

__all__ = ["steady"]

_RATE = 1000
_KEYS = 10_000
_START_TIMEOUT_S = 180.0
_SAMPLE_S = 5.0
_WINDOW = 6
_CATCH_UP_S = 60.0
#: A heap that may still grow to its limit does so within minutes, and would hide what is looked for.
_FIXED_HEAP = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-Xms1g -XX:+AlwaysPreTouch"}

Sample = dict[str, tuple[float, float]]


def steady(
    bootstrap_servers: str,
    *,
    system: System,
    marks: tuple[float, float],
    pause: float,
    idle: float,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Run one instance: idleness, steady work, idleness again.

    Args:
        bootstrap_servers: the broker.
        system: whose instance.
        marks: minutes of the steady run whose memory is compared.
        pause: seconds before an idle measurement.
        idle: seconds of the idle measurement.
        on_figures: called with each minute's figures.

    Raises:
        BenchError: the instance failed, or the output is not exact.
    """
    with (
        run_topics(bootstrap_servers, "steady", "steady-out") as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        orders = Variant(system).orders(
            bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=Path(folder)
        )
        orders["spark"] |= _FIXED_HEAP
        with Instance(system.module, orders) as instance:
            instance.wait_for("live", _START_TIMEOUT_S)
            idle_cold = _idle(instance, pause, idle) | {"when": "before any record"}
            on_figures({"bench": "steady", **idle_cold})
            with Feed(bootstrap_servers, source, rate=_RATE, keys=_KEYS) as feed:
                instance.wait_for("batch", _START_TIMEOUT_S)
                grown = _work(instance, marks, on_figures)
                feed.stop()
            _wait_until_taken(instance)
            idle_warm = _idle(instance, pause, idle) | {"when": "after the work"}
            on_figures({"bench": "steady", **idle_warm})
            instance.stop()
        rows, _ = last_rows(bootstrap_servers, sink)
    check_totals("steady", feed.totals(), rows)
    return [{"bench": "steady", "variant": system.name, "exact": True, "idle": [idle_cold, idle_warm], **grown}]


def _idle(instance: Instance, pause: float, seconds: float) -> dict[str, Any]:
    """Measure a time without input."""
    time.sleep(pause)
    jobs, busy, began = instance.jobs(), instance.cpu.seconds(), time.perf_counter()
    time.sleep(seconds)
    share = (instance.cpu.seconds() - busy) / (time.perf_counter() - began)
    return {
        "idle_core_percent": round(share * 100, 2),
        "idle_seconds": seconds,
        "idle_jobs": instance.jobs() - jobs,
        "load_average": load_average(),
    }


def _work(
    instance: Instance, marks: tuple[float, float], on_figures: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Sample memory while the feed runs; returns what is compared."""
    began, busy = time.perf_counter(), instance.cpu.seconds()
    samples: list[tuple[float, Sample]] = []
    heaps: dict[float, dict[str, float] | None] = {}
    reported, batches = 0, []
    while (passed := time.perf_counter() - began) < marks[1] * 60:
        time.sleep(min(_SAMPLE_S, max(0.05, marks[1] * 60 - passed)))
        batches += instance.batches_so_far()
        samples.append((time.perf_counter() - began, memory_mb(instance.pid)))
        for mark in marks:
            if samples[-1][0] >= mark * 60 and mark not in heaps:
                heaps[mark] = heap_mb(instance.pid)
        minute = int(samples[-1][0] // 60)
        if minute > reported:
            reported = minute
            on_figures({"bench": "steady", "minute": minute, "memory_mb": _figures(samples, samples[-1][0])})
    elapsed = time.perf_counter() - began
    first, last = (_figures(samples, mark * 60) for mark in marks)
    return {
        "minutes": list(marks),
        "memory_mb": [first, last],
        "growth_mb": {kind: round(last[kind] - first[kind], 1) for kind in first},
        "heap_mb": [heaps.get(mark) for mark in marks],
        "busy_core_percent": round((instance.cpu.seconds() - busy) / elapsed * 100, 1),
        "batches": len(batches),
        "batch_p50_ms": statistics.median([batch["millis"]["triggerExecution"] for batch in batches]),
        "records_per_second": round(sum(batch["rows"] for batch in batches) / elapsed),
    }


def _figures(samples: list[tuple[float, Sample]], until: float) -> dict[str, float]:
    """Return medians of the last half minute before a moment, by role and kind."""
    window = [sample for at, sample in samples if at <= until + _SAMPLE_S][-_WINDOW:]
    return {
        f"{role}_{kind}": round(statistics.median(sample[role][place] for sample in window), 1)
        for role in ROLES
        for place, kind in enumerate(("rss", "pss"))
    }


def _wait_until_taken(instance: Instance) -> None:
    """Wait until no new batch has come for a second."""
    deadline = time.monotonic() + _CATCH_UP_S
    while time.monotonic() < deadline:
        report = instance.next_report(1.0)
        if report is None:
            return
    raise BenchError(f"the instance was still running batches {_CATCH_UP_S:g} s after the last record")
