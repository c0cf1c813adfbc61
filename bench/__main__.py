"""``python -m bench [PART...] [--quick]``: figures as JSON lines, then tables."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING, Any

from bench.children import BenchError
from bench.journal import Journal
from bench.parts import PARTS, QUERIES_OF, RELAY_ONLY, WITHOUT_BROKER, Run
from bench.streams_instance import classpath
from bench.systems import RELAY, STREAMS, SYSTEMS
from bench.tables import tables
from sparkrelay.devkafka import DevKafka

if TYPE_CHECKING:
    from collections.abc import Callable

_DEFAULT = ("drain", "latency")
_BUSY = 0.5


def main() -> int:
    """Run what was asked for; exit code 1 if an output was not exact or an instance failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="SparkRelay beside its peers")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: drain latency")
    parser.add_argument("--quick", action="store_true", help="small and once: to see that it works, not to quote")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="leave the others out; may be repeated")
    parser.add_argument("--repeats", type=int, help="runs of each variant (3; 1 with --quick and for nexmark)")
    parser.add_argument(
        "--records",
        type=int,
        help="records of one drain pass (2,000,000; 200,000 with --quick), events of nexmark (1,000,000; 40,000)",
    )
    parser.add_argument("--keys", type=int, action="append", help="a size of state (10,000 to 10 M); may be repeated")
    parser.add_argument("--table", type=int, help="rows of the table of lookups (1,000,000; 20,000 with --quick)")
    parser.add_argument(
        "--query",
        choices=[name for names in QUERIES_OF.values() for name in names],
        metavar="QUERY",
        action="append",
        help=f"for latency {', '.join(QUERIES_OF['latency'])} (totals), for nexmark q0 to q23, for changes a statement "
        "(all); may be repeated",
    )
    parser.add_argument(
        "--rate",
        type=int,
        action="append",
        help="a second: records for latency (1,000), questions for queries (300, 1,000); may be repeated",
    )
    parser.add_argument(
        "--partitions", type=int, action="append", help="of the topics of tasks (4, 16, 64, 256); may be repeated"
    )
    parser.add_argument(
        "--instances", type=int, action="append", help="of tasks (1; 2 and 4 with 64 partitions); may be repeated"
    )
    parser.add_argument("--minutes", type=float, help="length of the steady run (12; 1 with --quick)")
    parser.add_argument("--windows", type=int, help="window lengths of flat that count (12; 5 with --quick)")
    parser.add_argument("--steps", type=int, help="steps of driver (500; 50 with --quick)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON lines there too")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}; use {', '.join(PARTS)}")
    if "steady" in options.parts and options.only and SYSTEMS[options.only[0]] is STREAMS:
        parser.error("steady measures what runs on Spark: --only relay or --only structured")
    asked = options.parts or _DEFAULT
    if unknown := set(options.query or ()) - {name for part in asked for name in QUERIES_OF.get(part, ())}:
        parser.error(f"--query {min(unknown)} is of another part: name latency or nexmark as well")
    alone = [part for part in options.parts if part in RELAY_ONLY]
    if alone and options.only and RELAY not in {SYSTEMS[name] for name in options.only}:
        parser.error(f"{' and '.join(alone)} measure SparkRelay alone: add --only relay")
    with Journal(options.json) as journal:
        machine = journal.machine
        if machine["load_average"] > _BUSY * machine["cores"]:
            others = f"load average {machine['load_average']}: others are at work here, figures will be low"
            print(others, file=sys.stderr)
        try:
            results = _run(options, journal.add)
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    print()
    print(tables(machine, results))
    return 1 if any(line.get("exact") is False for line in results) else 0


def _run(options: argparse.Namespace, on_figures: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    systems = [SYSTEMS[name] for name in options.only or SYSTEMS]
    asked = options.parts or _DEFAULT
    if STREAMS in systems and set(asked) - set(RELAY_ONLY):
        classpath()  # fetched and compiled now, not while it is measured
    run = Run(options, systems, on_figures)
    results: list[dict[str, Any]] = []
    for part in asked:
        # A broker for each part: the next starts with an empty disk and an idle log cleaner.
        with contextlib.nullcontext() if part in WITHOUT_BROKER else DevKafka() as kafka:
            results += PARTS[part](kafka.bootstrap_servers if kafka else "", run)
    for line in results:
        on_figures({**line, "result": True})
    return results


if __name__ == "__main__":
    sys.exit(main())
