"""How fast each system drains the events with each query, beside one another, and whether its answer is SQL's.

The topics are written once and all read them. An instance is a process of its own and starts with empty state. The
first third of the work is the cold part, the rest the warm one, to the end of the last micro-batch (:mod:`bench.drain`
has the same for its queries). What has been read is the measure of work, of topics between as well: a system that reads
far ahead of them has most of its work left when it has read the events. Queries whose rows come when a time is over are
run last, once later events have been written behind the others.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.children import BenchError, Instance
from bench.drain import rates
from bench.machine import load_average
from bench.nexmark.answers import differing_files, keep_answer
from bench.nexmark.check import closing_events, stamped
from bench.nexmark.load import load, write_events
from bench.nexmark.query import KEYS
from bench.nexmark.structured_queries import STRUCTURED_QUERIES
from bench.nexmark.truth import keep_truth, views_of_files
from bench.processes import MemoryPeak
from bench.systems import RELAY, STREAMS, STREAMS_EXACTLY_ONCE, STRUCTURED, System, Variant
from bench.topics import run_topics
from bench.workload import NEVER_DELETED, PARTITIONS
from sparkrelay import KTable, StreamsBuilder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark.sql import SparkSession

    from bench.nexmark.events import Event
    from bench.nexmark.query import Query

__all__ = ["PEERS", "drains", "medians_of", "ratios_of", "shares_of_work", "variant_of"]

_MODULES: Final = {
    RELAY: "bench.nexmark.relay_instance",
    STRUCTURED: "bench.nexmark.structured_instance",
    STREAMS: STREAMS.module,
}
#: The queries that each peer has.
PEERS: Final[dict[System, frozenset[str]]] = {
    STRUCTURED: frozenset(STRUCTURED_QUERIES),
    STREAMS: frozenset({"q3", "q4", "q5", "q7", "q8", "q11", "q12", "q13"}),
}
#: Of what a peer writes the last row of each key counts; of SparkRelay's it depends on what the pipeline returns.
_TABLES: Final[dict[System, frozenset[str]]] = {
    STRUCTURED: frozenset({"q17"}),
    STREAMS: frozenset({"q4", "q5", "q7", "q8", "q11", "q12"}),
}
_PARTS: Final = 3
_MOST_A_BATCH: Final = 1_000_000
_START_S: Final = 120.0
_LEAST_RATE: Final = 2000.0
_FIGURES: Final = ("cold_rps", "warm_rps", "warm_records_per_cpu_s", "to_first_batch_s", "rss_mb", "pss_mb")


@dataclass(frozen=True, slots=True)
class _Stage:
    """What all runs have in common: the broker, the session of the truth, topics and how many records are in each."""

    servers: str
    spark: SparkSession
    topics: dict[str, str]
    counts: dict[str, int]


def drains(
    bootstrap_servers: str,
    spark: SparkSession,
    events: Iterable[Event],
    queries: Collection[Query],
    *,
    systems: Collection[System],
    repeats: int,
    on_figures: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Run each query with each system that has it, in turn.

    Args:
        bootstrap_servers: the broker.
        spark: a session, for SQL's answers.
        events: in the order in which they arrive; they are never all in memory.
        queries: which ones.
        systems: which ones.
        repeats: runs of each.
        on_figures: called with each run's figures.

    Returns:
        A line for each query and system: medians, the most memory of all runs, and ratios; or why there are none.
    """
    runs: defaultdict[tuple[str, System], list[dict[str, Any]]] = defaultdict(list)
    with (
        run_topics(bootstrap_servers, *(f"nexmark-{kind}" for kind in KEYS), config=NEVER_DELETED) as names,
        tempfile.TemporaryDirectory(prefix="bench-nexmark-") as folder,
    ):
        topics = dict(zip(KEYS, names, strict=True))
        counts, last = load(bootstrap_servers, topics, stamped(events), Path(folder))
        on_figures({"bench": "nexmark", "loaded": counts})
        views_of_files(spark, Path(folder))
        stage = _Stage(bootstrap_servers, spark, topics, counts)
        closed = False
        for query in sorted(queries, key=lambda query: query.final):
            if query.final and not closed:
                closed = True
                for closing in closing_events(last):
                    for topic, count in write_events(bootstrap_servers, topics, closing).items():
                        counts[next(kind for kind, name in topics.items() if name == topic)] += count
            for system in systems:
                for number in range(repeats if query.name in PEERS.get(system, {query.name}) else 0):
                    figures = _guarded(stage, query, system)
                    runs[query.name, system].append(figures)
                    on_figures(
                        {"bench": "nexmark", "query": query.name, "variant": system.name, "run": number + 1, **figures}
                    )
    medians = {key: medians_of(figures) for key, figures in runs.items()}
    order = [query.name for query in queries]
    return [
        {
            "bench": "nexmark",
            "query": name,
            "variant": system.name,
            "runs": repeats,
            **medians[name, system],
            **ratios_of(medians[name, system], {peer.name: medians.get((name, peer)) for peer in PEERS}),
        }
        for name, system in sorted(medians, key=lambda key: order.index(key[0]))
    ]


def ratios_of(figures: dict[str, Any], peers: dict[str, dict[str, Any] | None]) -> dict[str, float | None]:
    """Return how many times the warm rate of each peer this is; None where one of both has none."""
    names = {STRUCTURED.name: "to_structured", STREAMS.name: "to_streams"}
    rate = figures.get("warm_rps")
    return {
        names[peer]: round(rate / base["warm_rps"], 2) if rate and base and base.get("warm_rps") else None
        for peer, base in peers.items()
    }


def _guarded(stage: _Stage, query: Query, system: System) -> dict[str, Any]:
    """Run an instance; a failure is a figure, too, and does not end the others."""
    try:
        return _run(stage, query, system)
    except BenchError as error:
        return {"exact": False, "failed": str(error)}


def _run(stage: _Stage, query: Query, system: System) -> dict[str, Any]:
    load_before = load_average()
    with (
        run_topics(stage.servers, f"nexmark-{query.name}", config=NEVER_DELETED) as (sink,),
        tempfile.TemporaryDirectory(prefix="bench-state-") as folder,
    ):
        builder = StreamsBuilder()
        table = issubclass(query.write(builder, stage.spark, sink, stage.topics), KTable)
        if system in _TABLES:
            table = query.name in _TABLES[system]
        read = builder.build().source_topics
        sources = {type_: topic for type_, topic in stage.topics.items() if topic in read}
        wanted = sum(stage.counts[type_] for type_ in sources)
        variant = variant_of(system, wanted)
        orders = variant.orders(
            bootstrap_servers=stage.servers, source="", sink=sink, folder=Path(folder) / "state", look_s=0.01
        )
        most = variant.batch_records or wanted
        limits = {type_: -(-stage.counts[type_] * most // wanted) for type_ in sources}
        orders |= {"nexmark": query.name, "sources": sources, "limits": limits, "still": True}
        with Instance(_MODULES[system], orders) as instance, MemoryPeak(instance.pid) as memory:
            batches = instance.batches_until_still(wanted, _START_S + wanted / _LEAST_RATE)
            instance.stop()
        worked = shares_of_work(batches, wanted)
        # A bit less: partitions differ in size, so the first micro-batch may not be full.
        figures = rates(worked, round(wanted / _PARTS * 0.9))
        found = _compared(stage, query, sink, Path(folder), table=table)
    return {
        "events": wanted,
        **figures,
        "to_first_batch_s": round(worked[0]["began"] - instance.started, 2),
        "rss_mb": round(memory.rss_mb),
        "pss_mb": round(memory.pss_mb),
        **found,
        "load_average_before": load_before,
    }


def shares_of_work(batches: list[dict[str, Any]], records: int) -> list[dict[str, Any]]:
    """Return those batches that read something, each with as much of a query's records as it has of all that was read.

    Args:
        batches: an instance's reports; ``read`` has what comes of topics between, too, where there are any.
        records: how many the query reads.
    """
    read = [batch.get("read", batch["rows"]) for batch in batches]
    whole = sum(read)
    return [{**batch, "rows": records * part / whole} for batch, part in zip(batches, read, strict=True) if part]


def variant_of(system: System, records: int) -> Variant:
    """Return a system whose micro-batches have a third of the records, and a million at most."""
    if system is STREAMS:
        return STREAMS_EXACTLY_ONCE
    return Variant(system, min(_MOST_A_BATCH, -(-records // (_PARTS * PARTITIONS)) * PARTITIONS))


def _compared(stage: _Stage, query: Query, sink: str, folder: Path, *, table: bool) -> dict[str, Any]:
    found, wanted = folder / "found", folder / "wanted"
    schema, inexact = keep_truth(stage.spark, query, wanted)
    try:
        rows, written = keep_answer(stage.servers, sink, schema, found, table=table)
    except (pa.ArrowInvalid, ValueError) as error:
        return {"exact": False, "differs": [f"rows cannot be read: {error}"]}
    differences = differing_files(stage.spark, found, wanted, inexact)
    figures = {"rows": rows, "rows_written": written, "exact": not differences}
    return {**figures, **({"differs": differences} if differences else {})}


def medians_of(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return medians of those runs that came to an end, and of memory the most."""
    figures: dict[str, Any] = {"exact": all(run["exact"] for run in runs)}
    figures |= {name: run[name] for run in runs for name in ("failed", "differs") if name in run}
    for name in _FIGURES:
        if values := [run[name] for run in runs if name in run]:
            figures[name] = max(values) if name.endswith("_mb") else round(statistics.median(values), 2)
    return figures
