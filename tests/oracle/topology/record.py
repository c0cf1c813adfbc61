"""Write random topologies, or those of Kafka Streams' own tests, with Kafka Streams' answers.

    python -m tests.oracle.topology.record --seed 1 --count 100 > cases.jsonl
    python -m tests.oracle.topology.record --seed 1 --count 100 --with gap > sessions.jsonl
    python -m tests.oracle.topology.record --kafkas-own > kafkas_own.jsonl

Needs a JDK; the jars are fetched the first time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys

from tests.oracle.topology import kafkas_own
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
    parser.add_argument("--kafkas-own", action="store_true", help="the cases of kafkas_own, in place of random ones")
    options = parser.parse_args()
    random_ones = (random_case(seed) for seed in itertools.count(options.seed))
    wanted = (
        case
        for case in random_ones
        if not options.fields or any(not {*node, node["op"]}.isdisjoint(options.fields) for node in case["spec"])
    )
    cases = kafkas_own.cases() if options.kafkas_own else itertools.islice(wanted, options.count)
    with KafkaStreamsOracle() as oracle:
        for case in cases:
            sys.stdout.write(json.dumps({**case, "expected": oracle.answer(case)}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
