"""Queries: how long a row of a running pipeline takes to be asked for, what that costs it, and reading a whole table.

The query counts and sums by user (``bench.workload``). A question is for one user's row, over HTTP.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.asker import Asker, is_there
from bench.children import BenchError, Instance
from bench.drain import Case, compared, run_rounds
from bench.feed import Feed
from bench.lookups import LookupWorkload, load_table
from bench.machine import load_average
from bench.relay_queries import TOTALS_STORE
from bench.systems import RELAY, Variant
from bench.topics import APPLICATION_PREFIX, run_topics
from sparkrelay import register_data_sources, spark_session
from sparkrelay.devkafka.ports import HeldPort
from sparkrelay.devkafka.topics import delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.workload import Workload

__all__ = ["queries"]

_RATE = 1000
_KEYS = 10_000
_START_TIMEOUT_S = 180.0
_TABLE = "queries-table"
_FIGURES = ("p50_ms", "p99_ms", "max_ms", "answered_rps", "busy_cores")


def queries(
    bootstrap_servers: str,
    *,
    workload: Workload,
    table: int,
    rates: Sequence[int],
    seconds: float,
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Ask instances, drain while one is asked, and read a table, each ``repeats`` times.

    Args:
        bootstrap_servers: the broker.
        workload: what to drain.
        table: rows of the table that is read.
        rates: questions a second, one after the other.
        seconds: how long to ask, after as long a warm-up.
        repeats: rounds.
        on_figures: called with each run's figures.

    Raises:
        BenchError: an instance failed, nobody answered, or an output is not exact.
    """
    lines: list[dict[str, Any]] = []
    for asked, instances in (("who has the row", 1), ("who has not", 2)):
        runs: dict[int, list[dict[str, Any]]] = {rate: [] for rate in rates}
        for number in range(1, repeats + 1):
            for rate, figures in _ask(bootstrap_servers, instances, rates, seconds):
                runs[rate].append(figures)
                on_figures({"bench": "queries", "asked": asked, "rate": rate, "run": number, **figures})
        for rate, some in runs.items():
            medians = {name: round(statistics.median(run[name] for run in some), 2) for name in _FIGURES}
            lines.append({"bench": "queries", "asked": asked, "rate": rate, "runs": repeats, **medians})
    lines += _drained(bootstrap_servers, workload, repeats, on_figures)
    took = _read(bootstrap_servers, table, repeats, on_figures)
    lines.append({"bench": "queries", "rows": table, "runs": repeats, "read_s": round(statistics.median(took), 2)})
    return lines


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Return so many free ports, which no other process gets until the context ends."""
    with ExitStack() as held:
        yield [held.enter_context(HeldPort()).number for _ in range(count)]


def _path(user: int) -> str:
    return f"/stores/{TOTALS_STORE}/u{user:06d}"


def _ask(
    bootstrap_servers: str, instances: int, rates: Sequence[int], seconds: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Ask the first of so many instances, of 1,000 records/s, for rows that it has if it is alone, and else has not.

    Yields each rate with its figures.
    """
    load_before = load_average()
    with (
        held_ports(instances) as ports,
        run_topics(bootstrap_servers, "queries", "queries-out") as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
        Feed(bootstrap_servers, source, rate=_RATE, keys=_KEYS) as feed,
    ):
        running = [_started(bootstrap_servers, source, sink, Path(folder) / str(port), port) for port in ports]
        try:
            for instance in running:
                instance.wait_for("batch", _START_TIMEOUT_S)
            questions = _questions(ports, time.monotonic() + _START_TIMEOUT_S)
            for rate in rates:
                with Asker(questions, rate=rate) as asker:
                    time.sleep(seconds)
                    asker.forget()
                    began, busy = time.perf_counter(), sum(instance.cpu.seconds() for instance in running)
                    time.sleep(seconds)
                    figures, took = asker.figures(), time.perf_counter() - began
                    cores = (sum(instance.cpu.seconds() for instance in running) - busy) / took
                answered = {"answered_rps": round(figures["answers"] / took), "busy_cores": round(cores, 2)}
                yield rate, {**figures, **answered, "load_average_before": load_before}
            feed.stop()
            for instance in running:
                instance.stop()
        finally:
            for instance in running:
                instance.__exit__(None, None, None)


def _started(bootstrap_servers: str, source: str, sink: str, folder: Path, port: int) -> Instance:
    variant = Variant(RELAY, settings=(("application.server", f"127.0.0.1:{port}"),))
    orders = variant.orders(bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=folder)
    return Instance(RELAY.module, orders)


def _questions(ports: Sequence[int], until: float) -> list[tuple[int, str]]:
    """Return what to ask the first one, once they share the rows as they should.

    Raises:
        BenchError: they do not in time.
    """
    some = range(0, _KEYS, _KEYS // 200)
    while time.monotonic() < until:
        here, *elsewhere = ({user for user in some if is_there(port, _path(user))} for port in ports)
        others = set().union(*elsewhere)
        if (here | others) == set(some) and (others or len(ports) == 1):
            return [(ports[0], _path(user)) for user in sorted(others if elsewhere else here)]
        time.sleep(0.5)
    raise BenchError(f"{len(ports)} instances do not share the rows")


def _drained(
    bootstrap_servers: str, workload: Workload, repeats: int, on_figures: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Drain with an instance that is asked all the time, and with one that is not."""
    with held_ports(2) as ports:
        left, asked = (
            Case(
                f"{RELAY.name}: {what}",
                Variant(RELAY, workload.records // 5, settings=(("application.server", f"127.0.0.1:{port}"),)),
                workload,
            )
            for what, port in zip(("no questions", f"{_RATE:,} questions/s"), ports, strict=True)
        )
        questions = [(ports[1], _path(user)) for user in range(0, workload.keys, max(1, workload.keys // 1000))]
        with Asker(questions, rate=_RATE):
            runs = run_rounds(bootstrap_servers, "queries", [left, asked], repeats=repeats, on_figures=on_figures)
    return compared("queries", runs, left, asked)


def _read(bootstrap_servers: str, rows: int, repeats: int, on_figures: Callable[[dict[str, Any]], None]) -> list[float]:
    """Return how long a session that is up takes to read a table of so many rows, in seconds."""
    load_table(bootstrap_servers, _TABLE, LookupWorkload(keys=rows).users())
    took = []
    with (
        run_topics(bootstrap_servers, "queries", "queries-out") as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        orders = Variant(RELAY).orders(
            bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=Path(folder)
        )
        orders |= {"query": "lookup", "table": _TABLE, "topics": [_TABLE]}
        with Instance(RELAY.module, orders) as instance:
            instance.batches_until(rows, _START_TIMEOUT_S)
            instance.stop()
        spark = spark_session("bench", **{"spark.master": "local[2]", "spark.ui.enabled": "false"})
        try:
            register_data_sources(spark)
            read = spark.read.format("sparkrelay-state").option("kafka.bootstrap.servers", bootstrap_servers)
            read = read.option("application.id", APPLICATION_PREFIX + sink).option("storeName", _TABLE)
            for number in itertools.count(1):
                began = time.perf_counter()
                found = read.load().count()
                took.append(time.perf_counter() - began)
                if found != rows:
                    raise BenchError(f"{found} rows were read of a table of {rows}")
                on_figures({"bench": "queries", "rows": rows, "run": number, "read_s": round(took[-1], 2)})
                if number == repeats:
                    break
        finally:
            spark.stop()
    delete_topic(bootstrap_servers, _TABLE)
    return took
