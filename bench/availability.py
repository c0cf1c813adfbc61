"""``python -m bench.availability [SCENARIO ...] [--quick]``: how long a task stands still when something happens.

Figures as JSON lines, a table at the end. ``docs/benchmarks.md`` says what each scenario does.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from bench.availability_parts import SCENARIOS
from bench.availability_tables import availability_table
from bench.children import BenchError
from bench.group import Scale
from bench.journal import Journal
from bench.streams_instance import classpath
from bench.systems import SYSTEMS
from sparkrelay.devkafka import DevKafka

_KEYS, _FEW_KEYS = 1_000_000, 40_000


def main() -> int:
    """Run what was asked for; exit code 1 if a result was not exact or an instance failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.availability", description=__doc__.partition(":")[2].strip())
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="few keys: to see that it works, not to quote")
    parser.add_argument("--only", choices=SYSTEMS, action="append", help="leave the others out; may be repeated")
    parser.add_argument("--keys", type=int, help=f"keys of state ({_KEYS:,}; {_FEW_KEYS:,} with --quick)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each")
    parser.add_argument("--json", metavar="FILE", help="write the JSON lines there too")
    parser.add_argument("--logs", metavar="FOLDER", type=Path, help="keep the instances' logs there")
    options = parser.parse_args()
    if unknown := set(options.scenarios) - set(SCENARIOS):
        parser.error(f"unknown scenario {min(unknown)!r}; use {', '.join(SCENARIOS)}")
    if options.logs:
        options.logs.mkdir(parents=True, exist_ok=True)
    scale = Scale(keys=options.keys or (_FEW_KEYS if options.quick else _KEYS), logs=options.logs)
    failed = False
    with Journal(options.json) as journal:
        if not options.only or "streams" in options.only:
            classpath()  # fetched and compiled now, not while it is measured
        for name in options.scenarios or SCENARIOS:
            failed = _run(name, options, scale, journal.add) or failed
    print()
    print(availability_table(journal.machine, [line for line in journal.lines if line["bench"] == "availability"]))
    return 1 if failed else 0


def _run(name: str, options: argparse.Namespace, scale: Scale, on_figures: Any) -> bool:
    """Run a scenario with each system that has it; return whether one failed. A failure does not end the others."""
    scenario, systems = SCENARIOS[name]
    wanted = [SYSTEMS[only] for only in options.only or SYSTEMS]
    failed = False
    for system in (system for system in systems if system in wanted):
        for number in range(1, options.repeats + 1):
            began = time.monotonic()
            line = {"bench": "availability", "scenario": name, "system": system.name, "run": number, "keys": scale.keys}
            try:
                # A broker for each: the next starts with an empty disk and an idle log cleaner.
                with DevKafka() as kafka:
                    figures = scenario(kafka.bootstrap_servers, system, scale)
            except BenchError as error:
                failed = True
                print(f"bench: {name}, {system.name}: {error}", file=sys.stderr)
                figures = {"failed": str(error).partition("\n")[0]}
            on_figures({**line, **figures, "seconds": round(time.monotonic() - began, 1)})
    return failed


if __name__ == "__main__":
    sys.exit(main())
