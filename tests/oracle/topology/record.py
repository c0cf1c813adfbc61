"""Draw random topologies and write them down with Kafka Streams' answers.

    python -m tests.oracle.topology.record --seed 1 --count 100 > cases.jsonl

Needs a JDK; the jars are fetched the first time.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.oracle.topology.java import KafkaStreamsOracle
from tests.oracle.topology.specs import random_case


def main() -> None:
    """Write one line a case."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.topology.record")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; each next one has the next")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    with KafkaStreamsOracle() as oracle:
        for seed in range(options.seed, options.seed + options.count):
            case = random_case(seed)
            sys.stdout.write(json.dumps({**case, "expected": oracle.answer(case)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
