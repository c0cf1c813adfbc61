"""``python -m bench.nexmark --events FILE.jsonl --check [QUERY...]``: a line for each query.

Without ``--check`` it measures how fast each query drains the events, over a broker that it starts. Beside its peers
``python -m bench nexmark`` does that.
"""

from __future__ import annotations

import argparse
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from bench.journal import Journal
from bench.nexmark.check import check
from bench.nexmark.events import generated, parsed
from bench.nexmark.measure import measure
from bench.nexmark.queries import QUERIES
from bench.nexmark.sql import OWN
from sparkrelay import spark_session
from sparkrelay.devkafka import DevKafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from bench.nexmark.events import Event
    from bench.nexmark.query import Query


def main() -> int:
    """Run what was asked for; exit code 1 if an answer is not exact, or cannot be."""
    parser = argparse.ArgumentParser(prog="python -m bench.nexmark", description="The 24 queries of Nexmark")
    events = parser.add_mutually_exclusive_group(required=True)
    events.add_argument("--events", metavar="FILE", type=Path, help="lines of JSON, as Beam's generator has them")
    events.add_argument("--generate", metavar="COUNT", type=int, help="take so many events of our own generator")
    parser.add_argument("--seed", type=int, default=0, help="of our generator, and of where micro-batches are cut (0)")
    parser.add_argument("--first", metavar="COUNT", type=int, help="take no more than the first events")
    parser.add_argument("--check", action="store_true", help="compare each answer with Spark SQL's")
    parser.add_argument("--sql", action="store_true", help="check the queries as SQL text")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help=f"of {', '.join(QUERIES)}; default: all")
    options = parser.parse_args()
    if options.sql and not options.check:
        parser.error("--sql is for --check")
    if unknown := set(options.queries) - set(QUERIES):
        parser.error(f"unknown query {min(unknown)!r}; use {', '.join(QUERIES)}")
    queries = [QUERIES[name] for name in options.queries or QUERIES]
    spark = spark_session("nexmark", **{"spark.master": "local[2]", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    events = islice(_events(options), options.first)
    try:
        if options.check:
            return _check(spark, events, queries, options.seed, sql=options.sql)
        return _measure(spark, events, queries)
    finally:
        spark.stop()


def _check(spark: SparkSession, events: Iterator[Event], queries: list[Query], seed: int, *, sql: bool) -> int:
    exact, started = True, time.perf_counter()
    for verdict in check(spark, events, queries, seed=seed, sql=sql):
        why = OWN[verdict.query].why if sql and verdict.query in OWN else ""
        print(verdict.query, verdict.text, *([f"(not the benchmark's text: {why})"] if why else []), flush=True)
        print(f"{verdict.query}: {verdict.rows} rows, {time.perf_counter() - started:.1f} s", file=sys.stderr)
        exact, started = exact and verdict.exact, time.perf_counter()
    return 0 if exact else 1


def _measure(spark: SparkSession, events: Iterator[Event], queries: list[Query]) -> int:
    exact = True
    with Journal(None) as journal, DevKafka() as kafka:
        for figures in measure(kafka.bootstrap_servers, spark, events, queries):
            journal.add({"bench": "nexmark", **figures})
            exact = exact and figures.get("exact", False)
    return 0 if exact else 1


def _events(options: argparse.Namespace) -> Iterator[Event]:
    if options.generate is not None:
        yield from generated(options.generate, seed=options.seed)
        return
    with options.events.open(encoding="utf-8") as lines:
        yield from parsed(lines)


if __name__ == "__main__":
    sys.exit(main())
