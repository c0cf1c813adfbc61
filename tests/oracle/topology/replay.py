"""Run recorded topologies on our test driver and compare with Kafka Streams' answers.

    python -m tests.oracle.topology.replay CASES.jsonl...
    python -m tests.oracle.topology.replay --together 8 CASES.jsonl...

Says what differs, and ends with ``N passed, M failed``. ``specs.py`` has the format.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

from tests.oracle.topology.ours import differences, differences_together
from tests.short_spark import SHORT_LIVED

from sparkrelay import spark_session


def main(arguments: list[str]) -> int:
    """Replay the files; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.topology.replay")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument(
        "--together", type=int, default=1, help="make so many cases one pipeline, which is cut at random and no more"
    )
    options = parser.parse_args(arguments)
    spark = spark_session("oracle", **{"spark.master": "local[2]", **SHORT_LIVED})
    spark.sparkContext.setLogLevel("OFF")
    passed = failed = 0
    cases = (json.loads(line) for file in options.files for line in file.read_text().splitlines())
    while some := list(itertools.islice(cases, options.together)):
        wrong = differences(some[0], spark) if options.together == 1 else differences_together(some, spark)
        passed, failed = passed + (0 if wrong else len(some)), failed + (len(some) if wrong else 0)
        for difference in wrong:
            sys.stdout.write(f"{difference}\n")
        sys.stdout.flush()
    spark.stop()
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
