"""The parts of ``python -m bench``, with the sizes that each is run with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bench.changes import Growth, changes
from bench.drain import drain
from bench.driver import driver
from bench.expiry import expiry
from bench.flat import flat
from bench.formats import FormatWorkload, formats
from bench.joins import JoinWorkload
from bench.latency import MANY_TASKS, OF_TASKS, QUERIES as LATENCY_QUERIES, latency
from bench.letters import LetterWorkload, letters
from bench.lookups import LookupWorkload
from bench.nexmark.drains import drains
from bench.nexmark.events import generated
from bench.nexmark.queries import QUERIES as NEXMARK_QUERIES
from bench.queries import queries
from bench.start import start
from bench.state import Sizes, state
from bench.statements import STATEMENTS
from bench.steady import steady
from bench.wide import WideWorkload, wide
from bench.windows import WindowWorkload
from bench.workload import Workload
from sparkrelay import spark_session

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from bench.systems import System

__all__ = ["PARTS", "QUERIES_OF", "RELAY_ONLY", "WITHOUT_BROKER", "Run"]

Lines = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Run:
    """What the command line asks of every part.

    Attributes:
        options: the rest of it.
        systems: which ones to run.
        on_figures: called with each run's figures.
    """

    options: argparse.Namespace
    systems: Sequence[System]
    on_figures: Callable[[dict[str, Any]], None]

    @property
    def quick(self) -> bool:
        """Small and once."""
        return bool(self.options.quick)

    @property
    def repeats(self) -> int:
        """Runs of each variant."""
        return self.options.repeats or (1 if self.quick else 3)

    @property
    def records(self) -> int:
        """Records of one drain pass."""
        return self.options.records or (200_000 if self.quick else 2_000_000)

    @property
    def table(self) -> int:
        """Rows of the table of lookups."""
        return self.options.table or (20_000 if self.quick else 1_000_000)

    def queries(self, part: str) -> list[str]:
        """Those that are asked for and that a part has; none if none is named."""
        return [name for name in dict.fromkeys(self.options.query or ()) if name in QUERIES_OF[part]]

    def drained(self, servers: str, name: str, workload: Workload) -> Lines:
        """Drain a workload."""
        return drain(
            servers,
            name=name,
            workload=workload,
            systems=self.systems,
            repeats=self.repeats,
            on_figures=self.on_figures,
        )


def _drain(servers: str, run: Run) -> Lines:
    return run.drained(servers, "drain", Workload(records=run.records))


def _lookup(servers: str, run: Run) -> Lines:
    return run.drained(servers, "lookup", LookupWorkload(records=run.records, keys=run.table))


def _join(servers: str, run: Run) -> Lines:
    return run.drained(servers, "join", JoinWorkload(records=run.records // 2, keys=run.table))


def _windows(servers: str, run: Run) -> Lines:
    return run.drained(servers, "windows", WindowWorkload(records=run.records))


def _expiry(servers: str, run: Run) -> Lines:
    # More passes: it is small differences that are looked for.
    workload = WindowWorkload(records=run.records, passes=3 if run.quick else 6)
    return expiry(servers, workload=workload, systems=run.systems, repeats=run.repeats, on_figures=run.on_figures)


def _letters(servers: str, run: Run) -> Lines:
    workload = LetterWorkload(records=run.records)
    return letters(servers, workload=workload, repeats=run.repeats, on_figures=run.on_figures)


def _formats(servers: str, run: Run) -> Lines:
    workload = FormatWorkload(records=run.records)
    return formats(servers, workload=workload, repeats=run.repeats, on_figures=run.on_figures)


def _queries(servers: str, run: Run) -> Lines:
    return queries(
        servers,
        workload=Workload(records=run.records),
        table=run.table,
        rates=run.options.rate or [300, 1000],
        seconds=5.0 if run.quick else 20.0,
        repeats=run.repeats,
        on_figures=run.on_figures,
    )


def _flat(servers: str, run: Run) -> Lines:
    keys = run.options.keys[0] if run.options.keys else 4000 if run.quick else 100_000
    windows = run.options.windows or (5 if run.quick else 12)
    pace = {"purge_s": 1.0} if run.quick else {}
    return flat(servers, keys=keys, windows=windows, on_figures=run.on_figures, **pace)


def _wide(servers: str, run: Run) -> Lines:
    workload = WideWorkload(records=run.options.records or (4_000 if run.quick else 60_000))
    repeats = run.options.repeats or 1
    return wide(servers, workload=workload, repeats=repeats, on_figures=run.on_figures)


def _driver(servers: str, run: Run) -> Lines:
    del servers
    steps = run.options.steps or (50 if run.quick else 500)
    return driver(steps=steps, repeats=run.repeats, on_figures=run.on_figures)


def _latency(servers: str, run: Run) -> Lines:
    seconds = 5.0 if run.quick else 30.0
    return latency(
        servers,
        systems=run.systems,
        seconds=seconds,
        warm_up=seconds,
        repeats=run.repeats,
        rates=run.options.rate or [1000],
        queries=run.queries("latency") or ["totals"],
        table=run.table,
        on_figures=run.on_figures,
    )


def _tasks(servers: str, run: Run) -> Lines:
    seconds = 5.0 if run.quick else 30.0
    return latency(
        servers,
        name="tasks",
        systems=run.systems,
        variants=OF_TASKS,
        shapes=_shapes(run.options),
        seconds=seconds,
        warm_up=seconds,
        repeats=run.repeats,
        rates=run.options.rate or [1000],
        on_figures=run.on_figures,
    )


def _shapes(options: argparse.Namespace) -> list[tuple[int, int]]:
    if not (options.partitions or options.instances):
        return list(MANY_TASKS)
    return [(count, instances) for instances in options.instances or [1] for count in options.partitions or [64]]


def _start(servers: str, run: Run) -> Lines:
    return start(servers, systems=run.systems, repeats=run.repeats, on_figures=run.on_figures)


def _steady(servers: str, run: Run) -> Lines:
    last = run.options.minutes or (1.0 if run.quick else 12.0)
    pause, idle = (2.0, 5.0) if run.quick else (30.0, 60.0)
    marks = (min(2.0, last / 2), last)
    # A peer only when asked for: it would double a quarter of an hour.
    return steady(servers, system=run.systems[0], marks=marks, pause=pause, idle=idle, on_figures=run.on_figures)


def _state(servers: str, run: Run) -> Lines:
    sizes = Sizes((2000, 20_000), fill=40_000, records=40_000) if run.quick else Sizes()
    sizes = replace(sizes, keys=tuple(run.options.keys)) if run.options.keys else sizes
    return state(servers, sizes=sizes, systems=run.systems, repeats=run.repeats, on_figures=run.on_figures)


def _changes(servers: str, run: Run) -> Lines:
    growth = Growth((500, 5000), changes=1000) if run.quick else Growth()
    growth = replace(growth, keys=tuple(run.options.keys)) if run.options.keys else growth
    spark = spark_session("changes", **{"spark.master": "local[2]", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    try:
        return changes(
            servers,
            spark,
            growth=growth,
            names=run.queries("changes") or list(STATEMENTS),
            repeats=run.options.repeats or 1,
            on_figures=run.on_figures,
        )
    finally:
        spark.stop()


def _nexmark(servers: str, run: Run) -> Lines:
    names = run.queries("nexmark") or list(NEXMARK_QUERIES)
    # For the answers that SQL has: no work while an instance runs. Long ones do not fit into the usual heap of 1 GB.
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.driver.memory": "4g"}
    spark = spark_session("nexmark", **settings)
    spark.sparkContext.setLogLevel("OFF")
    try:
        return drains(
            servers,
            spark,
            generated(run.options.records or (40_000 if run.quick else 1_000_000)),
            [NEXMARK_QUERIES[name] for name in names],
            systems=run.systems,
            repeats=run.options.repeats or 1,
            on_figures=run.on_figures,
        )
    finally:
        spark.stop()


PARTS: dict[str, Callable[[str, Run], Lines]] = {
    "drain": _drain,
    "latency": _latency,
    "tasks": _tasks,
    "start": _start,
    "steady": _steady,
    "state": _state,
    "lookup": _lookup,
    "join": _join,
    "windows": _windows,
    "expiry": _expiry,
    "letters": _letters,
    "formats": _formats,
    "queries": _queries,
    "flat": _flat,
    "wide": _wide,
    "driver": _driver,
    "changes": _changes,
    "nexmark": _nexmark,
}
#: The parts that have several queries.
QUERIES_OF = {"latency": tuple(LATENCY_QUERIES), "changes": tuple(STATEMENTS), "nexmark": tuple(NEXMARK_QUERIES)}
#: What no peer has.
RELAY_ONLY = ("letters", "formats", "queries", "flat", "wide", "driver", "changes")
WITHOUT_BROKER = ("driver",)
