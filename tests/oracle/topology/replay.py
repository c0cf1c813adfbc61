"""Run recorded topologies on our test driver and compare with Kafka Streams' answers.

    python -m tests.oracle.topology.replay CASES.jsonl...

Says what differs, and ends with ``N passed, M failed``. ``specs.py`` has the format.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.oracle.topology.ours import differences
from tests.short_spark import SHORT_LIVED

from sparkrelay import spark_session


def main(files: list[str]) -> int:
    """Replay the files; returns the exit code."""
    spark = spark_session("oracle", **{"spark.master": "local[2]", **SHORT_LIVED})
    spark.sparkContext.setLogLevel("OFF")
    passed = failed = 0
    for file in files:
        for line in Path(file).read_text().splitlines():
            case = json.loads(line)
            wrong = differences(case, spark)
            passed, failed = passed + (not wrong), failed + bool(wrong)
            for difference in wrong:
                sys.stdout.write(f"{case['name']}: {difference}\n")
            sys.stdout.flush()
    spark.stop()
    sys.stdout.write(f"{passed} passed, {failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
