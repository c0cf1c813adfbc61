"""``python -m bench.consumer [PART ...] [--quick]``: our consumer beside the others, in one run.

JSON lines while it runs, a table at the end. Every consumer is a process of its own, all read the same topics of one
broker, and each round runs every consumer once, so that a slow minute hits all alike. What is measured is described in
docs/benchmarks.md; how the broker is filled in ``consumer_data``, the consumers in ``consumer_readers``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.children import BenchError
from bench.consumer_parts import crowd, drain, latency, rebalance
from bench.consumer_readers import PYTHON_READERS
from bench.consumer_tables import consumer_tables
from bench.journal import Journal
from sparkrelay.devkafka import DevKafka

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Scale"]

_PARTS = ("drain", "latency", "idle", "crowd", "rebalance")
_JAVA = "Java"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done.

    Attributes:
        records: in the topic that is drained.
        repeats: rounds.
        seconds: how long latency and idleness are measured, each.
        members: consumers of the crowd.
        callback_s: length of the callback in the rebalance.
    """

    records: int
    repeats: int
    seconds: float
    members: int
    callback_s: float


_FULL = Scale(records=2_000_000, repeats=3, seconds=30.0, members=100, callback_s=30.0)
_QUICK = Scale(records=40_000, repeats=1, seconds=3.0, members=8, callback_s=4.0)


def main() -> int:
    """Run what was asked for; exit code 1 if a consumer failed or lost a record."""
    parser = argparse.ArgumentParser(prog="python -m bench.consumer", description="our consumer beside the others")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(_PARTS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="small and once: to see that it works, not to quote")
    parser.add_argument("--only", action="append", metavar="SYSTEM", help="one of them; may be repeated")
    parser.add_argument("--repeats", type=int, help="rounds (3; 1 with --quick)")
    parser.add_argument("--records", type=int, help="records to drain (2,000,000; 40,000 with --quick)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON lines there too")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(_PARTS):
        parser.error(f"unknown part {min(unknown)!r}; use {', '.join(_PARTS)}")
    systems = [*PYTHON_READERS, _JAVA]
    if unknown := set(options.only or ()) - set(systems):
        parser.error(f"unknown system {min(unknown)!r}; use {', '.join(systems)}")
    chosen = [name for name in options.only or systems if _installed(name)]
    scale = _QUICK if options.quick else _FULL
    scale = Scale(
        options.records or scale.records,
        options.repeats or scale.repeats,
        scale.seconds,
        scale.members,
        scale.callback_s,
    )
    versions = {name: importlib.metadata.version(name) for name in chosen if name in _DISTRIBUTIONS}
    with Journal(options.json, versions) as journal:
        try:
            results = run(options.parts or _PARTS, chosen, scale, journal.add)
        except BenchError as error:
            print(f"bench: {error}", file=sys.stderr)
            return 1
    print()
    print(consumer_tables(journal.machine, results))
    return 0


_DISTRIBUTIONS = ("confluent-kafka", "aiokafka", "kafka-python")


def _installed(system: str) -> bool:
    """Return whether a peer is here; aiokafka comes with ``pip install --group bench``."""
    if system == "aiokafka" and importlib.util.find_spec("aiokafka") is None:
        print("aiokafka is not installed (pip install --group bench), so it is left out", file=sys.stderr)
        return False
    return True


def run(
    parts: tuple[str, ...] | list[str], systems: list[str], scale: Scale, on_figures: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Run parts; returns a line of medians for each row of the table."""
    results: list[dict[str, Any]] = []
    # Tuned for full topics, which says nothing of the other parts.
    python = [name for name in systems if name not in {_JAVA, "confluent-kafka, tuned"}]
    for part in parts:
        # A broker for each part: the next starts with an empty disk and no old groups.
        with DevKafka() as kafka:
            servers = kafka.bootstrap_servers
            if part == "drain":
                results += drain(servers, systems, records=scale.records, repeats=scale.repeats, on_figures=on_figures)
            elif part == "latency":
                results += latency(servers, python, seconds=scale.seconds, repeats=scale.repeats, on_figures=on_figures)
            elif part == "idle":
                results += crowd(servers, python, members=1, seconds=scale.seconds, part="idle", on_figures=on_figures)
            elif part == "crowd":
                members = scale.members
                results += crowd(
                    servers, python, members=members, seconds=scale.seconds, part="crowd", on_figures=on_figures
                )
            elif "SparkRelay" in systems:
                results += rebalance(servers, callback_s=scale.callback_s, on_figures=on_figures)
    for line in results:
        on_figures({**line, "result": True})
    return results


if __name__ == "__main__":
    sys.exit(main())
