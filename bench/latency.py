"""Latency: from handing a record to the producer until a ``read_committed`` reader has its effect in hand.

1,000 records a second, or as many as asked for, with 10,000 keys, after a warm-up at the same rate. Every record that
the query keeps is measured, whichever row it came out with: rows of one user that share a micro-batch share a row. So
do those that share a commit of Kafka Streams, unless it has no cache. A lookup writes a row for each record; its table
is loaded before, and has more rows than users come. The part ``tasks`` is the same with more partitions and instances.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.children import BenchError, Instance
from bench.feed import Feed
from bench.lookups import LookupWorkload, found_rows, load_table
from bench.machine import load_average
from bench.results import check_totals, committed_reader, last_rows
from bench.systems import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    NO_CACHE,
    REAL_TIME,
    RELAY,
    SHORT_COMMIT,
    SHORT_LINGER,
    STREAMS,
    STREAMS_EXACTLY_ONCE,
    STRUCTURED,
    Variant,
)
from bench.topics import run_topics
from bench.workload import PARTITIONS
from sparkrelay.devkafka.topics import delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from bench.feed import Sent
    from bench.systems import System

__all__ = ["MANY_TASKS", "OF_TASKS", "QUERIES", "latency"]

QUERIES = ("totals", "lookup")
_KEYS = 10_000
_TABLE = "latency-table"
_START_TIMEOUT_S = 180.0
_TAIL_S = 60.0
#: Kafka Streams as it comes, with its producers' linger as every other producer has it, and as fast as it can be. At
#: least once with the cache it comes with would be no contest: updates wait for a commit every 30 s.
_VARIANTS = (
    Variant(RELAY),
    Variant(RELAY, summary="commit.interval.ms 100", settings=(("commit.interval.ms", "100"),)),
    Variant(STRUCTURED),
    REAL_TIME,
    STREAMS_EXACTLY_ONCE,
    Variant(STREAMS, summary="exactly once, commit.interval.ms 10", settings=EXACTLY_ONCE + SHORT_COMMIT),
    Variant(STREAMS, summary="exactly once, linger 5 ms", settings=EXACTLY_ONCE + SHORT_LINGER),
    Variant(STREAMS, summary="at least once, linger 5 ms, no cache", settings=AT_LEAST_ONCE + SHORT_LINGER + NO_CACHE),
)
#: What the part ``tasks`` compares, with default settings: partitions and instances.
OF_TASKS = (Variant(RELAY), STREAMS_EXACTLY_ONCE)
MANY_TASKS = ((4, 1), (16, 1), (64, 1), (256, 1), (64, 2), (64, 4))


def latency(
    bootstrap_servers: str,
    *,
    systems: Collection[System],
    seconds: float,
    warm_up: float,
    repeats: int,
    rates: Collection[int],
    on_figures: Callable[[dict[str, Any]], None],
    queries: Sequence[str] = QUERIES[:1],
    table: int = 0,
    name: str = "latency",
    variants: Sequence[Variant] = _VARIANTS,
    shapes: Sequence[tuple[int, int]] = ((PARTITIONS, 1),),
) -> list[dict[str, Any]]:
    """Measure each variant in turn, ``repeats`` times at each rate.

    Args:
        bootstrap_servers: the broker.
        systems: which ones to run.
        seconds: how long to measure.
        warm_up: seconds before that.
        repeats: runs of each variant; each runs every query, so that a slow minute hits all alike.
        rates: records a second.
        on_figures: called with each run's figures.
        queries: of :data:`QUERIES`; the first is what the others are compared with.
        table: rows of the table of lookups.
        name: the part's.
        variants: to measure.
        shapes: partitions of the topics, and instances that share them.

    Returns:
        A line of medians for each rate, shape, variant and query.

    Raises:
        BenchError: an instance failed, a record never came out, or the output is not exact.
    """
    if "lookup" in queries:
        load_table(bootstrap_servers, _TABLE, LookupWorkload(keys=table).users())
    results = []
    for rate, (partitions, instances), variant in itertools.product(rates, shapes, variants):
        # A table that is read as a whole has no place among tasks that stay.
        asked = [query for query in queries if query == "totals" or not variant.real_time]
        if variant.system not in systems or not asked:
            continue
        runs: dict[str, list[dict[str, Any]]] = {query: [] for query in asked}
        for number, query in itertools.product(range(1, repeats + 1), asked):
            figures = _run(
                *(bootstrap_servers, variant, query),
                rate=rate,
                partitions=partitions,
                instances=instances,
                seconds=seconds,
                warm_up=warm_up,
            )
            runs[query].append(figures)
            on_figures({"bench": name, "variant": variant.name, "query": query, "run": number, **figures})
        results += [
            {
                "bench": name,
                "variant": variant.name,
                "query": query,
                "rate": rate,
                "partitions": partitions,
                "instances": instances,
                "runs": repeats,
                **_medians(runs[query]),
                **(above(runs[query], runs[asked[0]]) if query != asked[0] else {}),
            }
            for query in asked
        ]
    if "lookup" in queries:
        delete_topic(bootstrap_servers, _TABLE)
    return results


def _medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    names = [name for name in runs[0] if name.endswith(("_ms", "_cores"))]
    return {name: round(float(np.median([run[name] for run in runs])), 2) for name in names}


def above(runs: Sequence[Mapping[str, Any]], base: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return by how many milliseconds a query is above another one: medians of what lies between runs side by side."""
    return {
        f"{name}_above_ms": round(
            float(
                np.median([run[f"{name}_ms"] - beside[f"{name}_ms"] for run, beside in zip(runs, base, strict=True)])
            ),
            1,
        )
        for name in ("p50", "p99")
    }


def _run(
    bootstrap_servers: str,
    variant: Variant,
    query: str,
    *,
    rate: int,
    partitions: int,
    instances: int,
    seconds: float,
    warm_up: float,
) -> dict[str, Any]:
    load_before = load_average()
    lookup = query == "lookup"
    with (
        run_topics(bootstrap_servers, "latency", "latency-out", partitions=partitions) as (source, sink),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        with contextlib.ExitStack() as running:
            members = []
            for number in range(instances):
                own = Path(folder) / str(number)
                orders = variant.orders(bootstrap_servers=bootstrap_servers, source=source, sink=sink, folder=own)
                orders |= {"query": query, "table": _TABLE}
                members.append(running.enter_context(Instance(variant.system.module, orders)))
            feed = running.enter_context(Feed(bootstrap_servers, source, rate=rate, keys=_KEYS, every=lookup))
            # Once each has committed a batch the tasks are shared.
            for member in members:
                member.wait_for("batch", _START_TIMEOUT_S)
            consumer = committed_reader(bootstrap_servers, sink)
            try:
                seen = functools.partial(_seen, consumer, field="n" if lookup else "orders")
                waits, batches, cores = _measure(seen, feed, members, seconds=seconds, warm_up=warm_up)
            finally:
                consumer.close()
            for member in members:
                member.stop()
        rows, _ = (found_rows if lookup else last_rows)(bootstrap_servers, sink)
    check_totals(variant.name, feed.totals(), rows)
    millis = np.array(waits) * 1000
    p50, p99, worst = (round(float(value), 1) for value in np.percentile(millis, (50, 99, 100)))
    # Kafka Streams has no micro-batches.
    took = [batch["millis"]["triggerExecution"] for batch in batches if batch["millis"]]
    return {
        "rate": rate,
        "partitions": partitions,
        "instances": instances,
        "p50_ms": p50,
        "p99_ms": p99,
        "max_ms": worst,
        **({"batch_p50_ms": round(float(np.median(took)), 1)} if took else {}),
        "busy_cores": round(cores, 2),
        "records": len(waits),
        "batches": len(batches),
        "exact": True,
        "load_average_before": load_before,
    }


def _measure(
    seen: Callable[[Sent], list[float]], feed: Feed, members: Sequence[Instance], *, seconds: float, warm_up: float
) -> tuple[list[float], list[dict[str, Any]], float]:
    """Read the sink while the feed runs; returns each record's wait in seconds, the batches, and the busy cores."""
    until = time.perf_counter() + warm_up
    while time.perf_counter() < until:
        seen({})
    for member in members:
        member.batches_so_far()
    waits: list[float] = []
    feed.remember()
    began, busy = time.perf_counter(), sum(member.cpu.seconds() for member in members)
    while time.perf_counter() < began + seconds:
        waits += seen(feed.unseen)
    cores = (sum(member.cpu.seconds() for member in members) - busy) / (time.perf_counter() - began)
    batches = [batch for member in members for batch in member.batches_so_far()]
    feed.stop()
    until = time.perf_counter() + _TAIL_S
    while any(feed.unseen.values()):
        if time.perf_counter() > until:
            left = sum(map(len, feed.unseen.values()))
            raise BenchError(f"{left} records have no effect in the sink {_TAIL_S:g} s after the last was sent")
        waits += seen(feed.unseen)
    return waits, batches, cores


def _seen(consumer: Any, unseen: Sent, *, field: str) -> list[float]:
    """Take what arrives next; returns the waits of the records whose effect it shows, by that field of its rows."""
    waits = []
    # poll() wakes up with the first row, where consume() would wait for more.
    first = consumer.poll(0.1)
    for message in [first, *consumer.consume(1000, 0.0)] if first is not None else ():
        if message.error() is not None:
            continue  # the end of a partition, again and again
        now = time.perf_counter()
        row = json.loads(message.value())
        sent = unseen.get(row["user"], ())
        while sent and sent[0][0] <= row[field]:
            waits.append(now - sent.popleft()[1])
    return waits
