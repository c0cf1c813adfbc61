"""``python -m tests.oracle.statements``: see the package."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.oracle.statements.checked import TOGETHER, outcomes
from tests.short_spark import SHORT_LIVED

from sparkrelay import spark_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from tests.oracle.statements.checked import Outcome


#: Statements between two lines about the progress.
_PROGRESS = 150


def main() -> int:
    """Run statements; exit code 1 if one is wrong or a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.statements")
    parser.add_argument("--count", type=int, default=100, help="how many statements (100)")
    parser.add_argument("--seed", default="0", help="what stands for them (0)")
    parser.add_argument("--first", type=int, default=0, help="number of the first one (0)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no more after so long")
    parser.add_argument("--show", action="store_true", help="show every statement")
    options = parser.parse_args()
    spark = spark_session("statements", **{"spark.master": "local[2]", **SHORT_LIVED})
    spark.sparkContext.setLogLevel("OFF")
    try:
        return _run(_in_time(spark, options), show=options.show)
    finally:
        spark.stop()


def _in_time(spark: SparkSession, options: argparse.Namespace) -> Iterator[Outcome]:
    end = time.monotonic() + 60 * options.minutes
    for first in range(options.first, options.first + options.count, TOGETHER):
        if time.monotonic() > end:
            return
        yield from outcomes(spark, options.seed, first, min(TOGETHER, options.first + options.count - first))


def _run(found: Iterator[Outcome], *, show: bool) -> int:
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    nodes: dict[str, Counter[str]] = {}
    failed = []
    for outcome in found:
        kinds[outcome.kind] += 1
        for node in outcome.statement.nodes:
            nodes.setdefault(node, Counter())[outcome.kind] += 1
        if outcome.kind in {"refused", "invalid"}:
            reasons[f"{outcome.kind}: {outcome.reason}"] += 1
        if outcome.failed:
            failed.append(outcome)
        if outcome.failed or show:
            print(outcome, flush=True)
        if kinds.total() % _PROGRESS == 0:
            print(f"{kinds.total()}: {_counted(kinds)}", file=sys.stderr, flush=True)
    print("\nBy what they are made of:")
    for node, counts in sorted(nodes.items()):
        print(f"  {node:45} {_counted(counts)}")
    print("\nReasons:")
    for reason, count in reasons.most_common():
        print(f"  {count:4} {reason}")
    print(f"\n{_counted(kinds)}")
    for outcome in failed:
        print(f"failed: --seed {outcome.seed} --first {outcome.number} --count 1")
    return 1 if failed else 0


def _counted(kinds: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))


if __name__ == "__main__":
    sys.exit(main())
