"""``python -m bench [drain] [latency] [start] [steady] [state] [--quick]``: figures as JSON lines, then a table."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import Any

from bench.children import BenchError
from bench.drain import drain
from bench.journal import Journal
from bench.latency import latency
from bench.start import start
from bench.state import Sizes, state
from bench.steady import steady
from bench.streams_instance import classpath
from bench.systems import STREAMS, SYSTEMS
from bench.tables import tables
from bench.workload import Workload
from sparkrelay.devkafka import DevKafka

_PARTS = ("drain", "latency", "start", "steady", "state")
_DEFAULT = ("drain", "latency")
_BUSY = 0.5


def main() -> int:
    """Run what was asked for; exit code 1 if an output was not exact or an instance failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="SparkRelay beside its peers")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(_PARTS)}; default: drain latency")
    parser.add_argument("--quick", action="store_true", help="small and once: to see that it works, not to quote")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="leave the others out; may be repeated")
    parser.add_argument("--repeats", type=int, help="runs of each variant (3; 1 with --quick)")
    parser.add_argument("--records", type=int, help="records of one drain pass (2,000,000; 200,000 with --quick)")
    parser.add_argument("--keys", type=int, action="append", help="a size of state (10,000 to 10 M); may be repeated")
    parser.add_argument("--rate", type=int, action="append", help="records/s for latency (1,000); may be repeated")
    parser.add_argument("--minutes", type=float, help="length of the steady run (12; 1 with --quick)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON lines there too")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(_PARTS):
        parser.error(f"unknown part {min(unknown)!r}; use {', '.join(_PARTS)}")
    if "steady" in options.parts and options.only and SYSTEMS[options.only[0]] is STREAMS:
        parser.error("steady measures what runs on Spark: --only relay or --only structured")
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
    return 0


def _run(options: argparse.Namespace, on_figures: Any) -> list[dict[str, Any]]:
    quick = options.quick
    repeats = options.repeats or (1 if quick else 3)
    systems = [SYSTEMS[name] for name in options.only or SYSTEMS]
    if STREAMS in systems:
        classpath()  # fetched and compiled now, not while it is measured
    results: list[dict[str, Any]] = []
    for part in options.parts or _DEFAULT:
        # A broker for each part: the next starts with an empty disk and an idle log cleaner.
        with DevKafka() as kafka:
            servers = kafka.bootstrap_servers
            if part == "drain":
                workload = Workload(records=options.records or (200_000 if quick else 2_000_000))
                results += drain(servers, workload=workload, systems=systems, repeats=repeats, on_figures=on_figures)
            elif part == "latency":
                seconds = 5.0 if quick else 30.0
                results += latency(
                    servers,
                    systems=systems,
                    seconds=seconds,
                    warm_up=seconds,
                    repeats=repeats,
                    rates=options.rate or [1000],
                    on_figures=on_figures,
                )
            elif part == "start":
                results += start(servers, systems=systems, repeats=repeats, on_figures=on_figures)
            elif part == "state":
                sizes = Sizes((2000, 20_000), fill=40_000, records=40_000) if quick else Sizes()
                sizes = replace(sizes, keys=tuple(options.keys)) if options.keys else sizes
                results += state(servers, sizes=sizes, systems=systems, repeats=repeats, on_figures=on_figures)
            else:
                last = options.minutes or (1.0 if quick else 12.0)
                pause, idle = (2.0, 5.0) if quick else (30.0, 60.0)
                marks = (min(2.0, last / 2), last)
                # A peer only when asked for: it would double a quarter of an hour.
                results += steady(
                    servers, system=systems[0], marks=marks, pause=pause, idle=idle, on_figures=on_figures
                )
    for line in results:
        on_figures({**line, "result": True})
    return results


if __name__ == "__main__":
    sys.exit(main())
