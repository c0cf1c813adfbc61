"""``python -m bench.tpch --check [QUERY...]``: a line for each query."""

from __future__ import annotations

import argparse
import sys
import time

from bench.tpch.check import QUERIES, check
from bench.tpch.tables import changes
from sparkrelay import spark_session


def main() -> int:
    """Check queries; exit code 1 if an answer is not exact."""
    parser = argparse.ArgumentParser(prog="python -m bench.tpch", description="The 22 queries of TPC-H")
    parser.add_argument("--check", action="store_true", required=True, help="compare each answer with Spark SQL's")
    parser.add_argument("--scale", type=float, default=0.01, help="of the tables: 1 is 1.5 million orders (0.01)")
    parser.add_argument("--seed", type=int, default=0, help="of the rows, and of where micro-batches are cut (0)")
    parser.add_argument("queries", nargs="*", metavar="QUERY", help=f"of {', '.join(QUERIES)}; default: all")
    options = parser.parse_args()
    if unknown := set(options.queries) - set(QUERIES):
        parser.error(f"unknown query {min(unknown)!r}; use {', '.join(QUERIES)}")
    spark = spark_session("tpch", **{"spark.master": "local[2]", "spark.ui.enabled": "false"})
    spark.sparkContext.setLogLevel("OFF")
    exact, started = True, time.perf_counter()
    try:
        made = changes(options.scale, options.seed)
        for verdict in check(spark, made, options.queries or [*QUERIES], seed=options.seed):
            print(verdict.query, verdict.text, flush=True)
            print(f"{verdict.query}: {verdict.rows} rows, {time.perf_counter() - started:.1f} s", file=sys.stderr)
            exact, started = exact and verdict.exact, time.perf_counter()
    finally:
        spark.stop()
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
