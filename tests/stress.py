"""Run tests again and again on a busy machine, in another order each time: what is racy fails here first.

    python -m tests.stress                                       the test files that differ from the upstream branch
    python -m tests.stress tests/integration/runtime/test_life.py
    python -m tests.stress --repeats 10 tests/integration        each integration test of `make test` ten times

Busy loops take the cores away. Files, and the tests of a file unless it is marked `in_order`, are shuffled by a seed,
which is printed: `TEST_ORDER=SEED pytest ...` repeats an order. A table in `artifacts/stress/passed.tsv` counts how
often each test passed; a run adds to it, so that ten repeats can be ten runs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import os
import random
import subprocess
import sys
import time
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tests.parts import ROOT, WITH_SPARK, duration
from tests.reach import is_test
from tests.selection import change_since

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

FOLDER = ROOT / "artifacts" / "stress"
PASSED = FOLDER / "passed.tsv"

_BUSY = "while True: pass"


@contextlib.contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Keep cores busy with loops that end with this process."""
    from sparkrelay.devkafka.process import spawn_bound

    with (FOLDER / "loops.log").open("ab") as log:
        loops = [spawn_bound([sys.executable, "-c", _BUSY], log=log, cwd=FOLDER) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def outcomes(report: Path) -> Iterator[tuple[str, bool]]:
    """Give the tests of pytest's XML, and whether each passed; skipped ones are left out."""
    for case in ET.parse(report).getroot().iter("testcase"):  # written by ourselves
        kinds = {child.tag for child in case}
        if "skipped" not in kinds:
            yield f"{case.get('classname')}::{case.get('name')}", not kinds & {"failure", "error"}


def read_passed(file: Path = PASSED) -> collections.Counter[str]:
    """Return how often each test has passed so far."""
    rows = file.read_text().splitlines() if file.exists() else []
    return collections.Counter({name: int(count) for count, _, name in (row.partition("\t") for row in rows)})


def write_passed(passed: collections.Counter[str], file: Path = PASSED) -> None:
    """Leave the counts, the rarest first."""
    file.write_text("".join(f"{count}\t{name}\n" for name, count in sorted(passed.items(), key=lambda row: row[::-1])))


def run(tests: Iterable[str], *, repeats: int, loops: int, seed: int) -> int:
    """Run the tests; return the exit status."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    passed, failed, ran = read_passed(), collections.Counter(), 0
    with busy_loops(loops):
        for number in range(repeats):
            order, report, began = str(seed + number), FOLDER / "last.xml", time.monotonic()
            report.unlink(missing_ok=True)
            print(f"=== repeat {number + 1} of {repeats}, TEST_ORDER={order}", flush=True)
            command = [sys.executable, "-m", "pytest", *WITH_SPARK, "-q", "-m", "not long", f"--junitxml={report}"]
            status = subprocess.run(
                [*command, *tests], cwd=ROOT, env={**os.environ, "TEST_ORDER": order}, check=False
            ).returncode
            if not report.exists():
                return status or 1
            for name, good in outcomes(report):
                (passed if good else failed)[name] += 1
                ran += 1
            write_passed(passed)
            print(f"=== exit {status} after {duration(time.monotonic() - began)}", flush=True)
    for name, count in failed.items():
        print(f"failed {count} of {repeats} times: {name}")
    if not ran:
        print("No test ran: is the path right, and is not every test marked `long`?")
    return 1 if failed or not ran else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description="Tests on a busy machine.")
    parser.add_argument("tests", nargs="*", help="files, folders or ids of tests; else the test files that changed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--loops", type=int, default=2, help="how many busy loops run beside the tests")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30), help="of the first order")
    chosen = parser.parse_args(arguments)
    if chosen.repeats < 1:
        parser.error(f"--repeats {chosen.repeats}: once is the least")
    if not (tests := chosen.tests):
        change = change_since(ROOT, None)
        tests = sorted(path for path in change.changed - change.deleted if is_test(path))
        if not tests:
            parser.error(f"no test file differs from {change.base}: name some")
    return run(tests, repeats=chosen.repeats, loops=chosen.loops, seed=chosen.seed)


if __name__ == "__main__":
    sys.exit(main())
