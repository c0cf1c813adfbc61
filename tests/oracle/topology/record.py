"""Draw random topologies and write them down with Kafka Streams' answers.

    python -m tests.oracle.topology.record --seed 1 --count 100 > cases.jsonl
    python -m tests.oracle.topology.record --seed 1 --count 100 --with gap > sessions.jsonl

Needs a JDK; the jars are fetched the first time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys

from tests.oracle.topology.java import KafkaStreamsOracle
from tests.oracle.topology.specs import random_case


def main() -> None:
    """Write one line a case."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.topology.record")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument(
        "--with",
        dest="fields",
        nargs="+",
        default=(),
        help="only cases that have a node with one of these, such as gap: sessions; or of such an op",
    )
    options = parser.parse_args()
    cases = (random_case(seed) for seed in itertools.count(options.seed))
    wanted = (
        case
        for case in cases
        if not options.fields or any(not {*node, node["op"]}.isdisjoint(options.fields) for node in case["spec"])
    )
    with KafkaStreamsOracle() as oracle:
        for case in itertools.islice(wanted, options.count):
            sys.stdout.write(json.dumps({**case, "expected": oracle.answer(case)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
