"""The test suite in parts, each of which can be run alone and leaves its result in a file.

    python -m tests.parts --quick          what `make test` runs: the parts' tests that are not marked `long`
    python -m tests.parts                  what `make test-all` runs: every test
    python -m tests.parts kills-at-points  one part
    python -m tests.parts --files FILE...  some files' tests that are not marked `long`, as `make test-changed` does
    python -m tests.parts --list           the parts, and what is known of them
    python -m tests.parts --costs          a table of what each part took, for CONTRIBUTING.md

A run continues where an earlier one was interrupted: a part that passed on the same files is not run again, unless
it is named. If files change while a part runs, its result counts for no files. Results are in `artifacts/parts`, and
logs of failed tests in `artifacts/failed` (`tests/evidence.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tests import evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "artifacts" / "parts"

#: A part that takes longer is two parts.
LIMIT_SECONDS = 3600

#: pytest's exit status where nothing was selected.
NO_TESTS = 5

#: How a part ended that was ended from outside. No result of it is kept.
INTERRUPTED = "interrupted"

#: In place of a digest, where files changed while a part ran: such a result is good for no files.
CHANGED = "changed"

#: How long an interrupted part may take to end its brokers and sessions.
GRACE_SECONDS = 60


@dataclass(frozen=True)
class Part:
    """Some tests that run in one pytest, or a target of the Makefile.

    Args:
        name: as the command line names it.
        what: what it tests, in a few words.
        tests: files and folders below `tests`.
        options: pytest's options. `--dist loadfile` where tests share a Spark session or follow on one another.
        target: the Makefile's target, in place of tests.
        environment: more variables, for the whole suite only.
        needs: a program without which the part cannot run.
        may_be_empty: whether all its tests may be long ones.
    """

    name: str
    what: str
    tests: Sequence[str] = ()
    options: Sequence[str] = ()
    target: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    needs: str = ""
    may_be_empty: bool = False

    def command(self, *, quick: bool) -> list[str]:
        """Return the command that runs it."""
        if self.target:
            return ["make", "--no-print-directory", *self.target]
        chosen = ["-m", "not long"] if quick else []
        report = f"--junitxml={result_file(self.name, quick=quick).with_suffix('.xml')}"
        return [sys.executable, "-m", "pytest", *self.options, *chosen, report, *_below("tests", self.tests)]


#: Each process has a Spark session, and takes whole files: some hold tests that follow on one another.
WITH_SPARK = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
TWO = ("-n", "2")
#: They mostly wait.
THREE = ("-n", "3")

#: The interpreters that the package names, beside the one of `.venv`.
OTHER_PYTHONS = ("3.12", "3.13")
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")

BROKER = ("client", "devkafka", "doctor", "packaging", "records", "security")
INSTANCES = ("runtime", "datasources", "simulate", "topology")
FIRST_HOUR = ("demo", "new_project", "notebook", "readme", "tutorial")
POINTS = ("fault_points",)
MOMENTS = ("random_kills", "crowd", "takeover", "state_kill")
FEATURES = (
    "dead_letters",
    "foreach_batch",
    "front_door",
    "history",
    "programs",
    "queries",
    "statements",
    "transformations",
)
TOPICS = ("changing_topics",)
CLUSTERS = ("broker", "executor_kill", "older_transactions", "standalone", "yarn")


def _below(folder: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in names)


def _files(folder: str, names: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{folder}/test_{name}.py" for name in names)


#: The whole suite, in the order in which it runs: what fails soonest comes first.
PARTS = (
    Part("check", "lint, types, layers", target=("check",)),
    Part(
        "units",
        "units and the oracle's samples: no broker, no Spark",
        ("unit", "oracle"),
        TWO,
        environment={"HYPOTHESIS_PROFILE": "whole"},
    ),
    Part("driver", "pipelines on the test driver: Spark, no broker", ("integration/testing",), WITH_SPARK),
    Part(
        "statements",
        "random statements on the test driver, beside Spark batch",
        ("integration/statements",),
        WITH_SPARK,
    ),
    Part("consumer", "the consumer on a broker, with both group protocols", ("integration/consumer",), THREE),
    Part(
        "broker",
        "client, security, packaging; the consumer under faults",
        (*_below("integration", BROKER), "chaos/consumer"),
        THREE,
    ),
    Part("instances", "instances on a broker and a Spark session", _below("integration", INSTANCES), WITH_SPARK),
    Part("first-hour", "demo, README, tutorial, notebook, a new project", _files("integration", FIRST_HOUR), TWO),
    Part("kills-at-points", "instances and workers die between any two writes", _files("chaos", POINTS), WITH_SPARK),
    Part("kills-at-moments", "random kills, takeovers, a crowd, stores", _files("chaos", MOMENTS), WITH_SPARK),
    Part("kills-with-features", "kills of pipelines with one feature each", _files("chaos", FEATURES), WITH_SPARK),
    Part(
        "kills-with-topics", "kills while source topics grow or are created again", _files("chaos", TOPICS), WITH_SPARK
    ),
    Part(
        "kills-of-clusters", "executors, a standalone cluster, YARN, brokers die", _files("chaos", CLUSTERS), WITH_SPARK
    ),
    Part("fuzz", "damaged records by the hundred thousand", ("long",), environment={"FUZZ_INPUTS": "300_000"}),
    Part("browser", "the live page in a browser", target=("test-browser",), needs=CHROMIUM),
    Part("chart", "the Helm chart against Kubernetes' schemas", target=("chart",), needs="go"),
    *(
        Part(
            f"python-{version}",
            f"units on Python {version}",
            target=("unit", f"VENV=.venv-{version}", f"PYTHON=python{version}"),
            needs=f"python{version}",
        )
        for version in OTHER_PYTHONS
    ),
)


def _together(name: str, what: str, options: Sequence[str], parts: Iterable[Part]) -> Part:
    """Return parts as one: they share brokers, and sessions."""
    return Part(name, what, [test for part in parts for test in part.tests], options)


_SESSIONS = _together(
    "with-session",
    "one test a feature on a broker and Spark, one kill of an instance",
    WITH_SPARK,
    (part for part in PARTS if part.options == WITH_SPARK),
)
_NO_SESSIONS = _together(
    "without-session",
    "client and consumer on a broker; demo and README",
    THREE,
    (part for part in PARTS if part.name in {"consumer", "broker", "first-hour"}),
)

#: What `make test` runs, of which two run at a time: one keeps the cores busy while the other waits.
QUICK = ((_SESSIONS,), (PARTS[0], PARTS[1], _NO_SESSIONS))


def _of_files(files: Iterable[str]) -> Part:
    """Return a part that is some files."""
    tests = [file.removeprefix("tests/") for file in files]
    return Part("files", "the tests of some files", tests, WITH_SPARK, may_be_empty=True)


def result_file(name: str, *, quick: bool) -> Path:
    """Return where a part leaves its result."""
    return RESULTS / ("quick" if quick else "whole") / f"{name}.json"


@dataclass(frozen=True)
class Result:
    """How a part ended."""

    part: str
    outcome: str
    seconds: float
    #: How many tests had which outcome; nothing for a target of the Makefile.
    tests: Mapping[str, int]
    #: The files that were tested, by :func:`files_digest`; or CHANGED.
    files: str
    began: str

    @classmethod
    def read(cls, file: Path) -> Result | None:
        """Return what a file says; None if there is none, or it was cut off."""
        try:
            return cls(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, file: Path) -> None:
        """Leave the result, whole or not at all."""
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(vars(self), indent=2))
        new.rename(file)

    def __str__(self) -> str:
        tests = ", ".join(f"{count} {outcome}" for outcome, count in self.tests.items() if count)
        return f"{self.part:20} {self.outcome:8} {duration(self.seconds):>8}  {tests}"


def duration(seconds: float) -> str:
    """Return a time as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def files_digest(root: Path = ROOT) -> str:
    """Return a digest of all files that git tracks or would: what a result is good for."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    ).stdout
    digest = hashlib.sha256()
    for name in sorted(set(filter(None, listed.split(b"\0")))):
        file = root / os.fsdecode(name)
        if file.is_file():
            content = hashlib.sha256(file.read_bytes()).digest()
            digest.update(name + b"\0" + content)
    return digest.hexdigest()[:16]


def counts(report: Path) -> dict[str, int]:
    """Return how many tests passed, failed and were skipped, of pytest's XML; nothing where there is none."""
    try:
        suites = ET.parse(report).getroot().iter("testsuite")  # written by ourselves
    except (OSError, ET.ParseError):
        return {}
    found = {"passed": 0, "failed": 0, "skipped": 0}
    for suite in suites:
        ran, skipped = int(suite.get("tests", 0)), int(suite.get("skipped", 0))
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        found["passed"] += ran - failed - skipped
        found["failed"] += failed
        found["skipped"] += skipped
    return found


class Run:
    """Parts of the suite that run, one or two at a time; interrupted as a whole."""

    def __init__(self, *, quick: bool) -> None:
        self._quick = quick
        self._files = files_digest()
        self._lock = threading.Lock()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._over = False
        self.results: dict[str, Result] = {}

    def passed_before(self, part: Part) -> Result | None:
        """Return the result of an earlier run on the same files, if it passed."""
        result = Result.read(result_file(part.name, quick=self._quick))
        return result if result and (result.outcome, result.files) == ("passed", self._files) else None

    def lane(self, parts: Iterable[Part], *, shown_at_once: bool) -> None:
        """Run parts one after another."""
        for part in parts:
            if self._over:
                return
            began, start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), time.monotonic()
            try:
                self._run(part, began, start, shown_at_once=shown_at_once)
            except (OSError, subprocess.SubprocessError) as error:
                # A full disk, say. A part without a result must not look like one that passed.
                result = Result(part.name, f"failed: {error}", round(time.monotonic() - start, 1), {}, "", began)
                self.results[part.name] = result
                with self._lock:
                    print(f"=== {result}", flush=True)

    def _run(self, part: Part, began: str, start: float, *, shown_at_once: bool) -> None:
        file = result_file(part.name, quick=self._quick)
        file.parent.mkdir(parents=True, exist_ok=True)
        for old in (file, file.with_suffix(".xml"), file.with_suffix(".log")):
            old.unlink(missing_ok=True)
        files = self._files
        if part.needs and shutil.which(part.needs) is None:
            outcome = f"left out: there is no {part.needs}"
        else:
            with self._lock:
                print(f"=== {part.name}: {part.what}", flush=True)
            files = files_digest()
            outcome = self._ended(part, file.with_suffix(".log"), shown_at_once=shown_at_once)
            if files_digest() != files:
                files = CHANGED
        seconds, tests = round(time.monotonic() - start, 1), counts(file.with_suffix(".xml"))
        result = Result(part.name, outcome, seconds, tests, files, began)
        self.results[part.name] = result
        if not self._over:
            result.write(file)
        with self._lock:
            if not shown_at_once and file.with_suffix(".log").exists():
                print(file.with_suffix(".log").read_text(errors="replace"))
            print(f"=== {result}", flush=True)

    def _ended(self, part: Part, log: Path, *, shown_at_once: bool) -> str:
        environment = {**os.environ, **({} if self._quick else part.environment)}
        with log.open("wb") as output, self._lock:
            if self._over:
                return INTERRUPTED
            process = subprocess.Popen(
                part.command(quick=self._quick),
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=None if shown_at_once else output,
                stderr=None if shown_at_once else subprocess.STDOUT,
            )
            self._processes.add(process)
        try:
            status = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            _end(process)
            return f"failed: it took more than {duration(LIMIT_SECONDS)}"
        finally:
            with self._lock:
                self._processes.discard(process)
        if self._over:
            return INTERRUPTED
        if part.may_be_empty and status == NO_TESTS:
            return "passed: no test ran, all of them are long (`make test-all` has them)"
        passed = status == 0
        return "passed" if passed else f"failed: exit {status}"

    def interrupt(self) -> None:
        """End what runs, as Ctrl-C does; no further part begins."""
        with self._lock:
            self._over = True
            running = list(self._processes)
        for process in running:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _raise(*_: object) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Keep a second run out of this checkout: it would remove the results and logs of the first one."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another run of tests.parts uses {RESULTS}: wait for it, or stop it") from None
        yield


def run(names: Sequence[str], *, quick: bool, files: Sequence[str] = ()) -> int:
    """Run parts, all of them unless some are named, or the quick tests of files; return the exit status."""
    with alone():
        return _run(names, quick=quick, files=files)


def _run(names: Sequence[str], *, quick: bool, files: Sequence[str]) -> int:
    shutil.rmtree(ROOT / evidence.FOLDER, ignore_errors=True)
    running, known = Run(quick=quick), {part.name: part for part in PARTS}
    lanes: Sequence[Sequence[Part]] = QUICK
    if files:
        lanes = [[_of_files(files)]]
    elif names:
        lanes = [[known[name] for name in names]]
    elif not quick:
        for part in PARTS:
            if before := running.passed_before(part):
                running.results[part.name] = before
        lanes = [[part for part in PARTS if part.name not in running.results]]
    signal.signal(signal.SIGTERM, _raise)
    # Not threads that are joined: in Python 3.11 a join that Ctrl-C ends takes the thread for ended, too.
    with ThreadPoolExecutor(len(lanes)) as pool:
        try:
            ends = [pool.submit(running.lane, lane, shown_at_once=len(lanes) == 1) for lane in lanes]
            for end in ends:
                end.result()
        except KeyboardInterrupt:
            running.interrupt()
    print("\n".join(["", *map(str, running.results.values())]), flush=True)
    # Who names a part means it: there, to be left out is to fail.
    good = ("passed",) if names else ("passed", "left out")
    bad = [result for result in running.results.values() if not result.outcome.startswith(good)]
    if bad and (ROOT / evidence.FOLDER).exists():
        print(f"Logs of the failed tests are in {evidence.FOLDER}.", flush=True)
    return 1 if bad or running._over else 0


def show(*, quick: bool) -> None:
    """Print the parts, and how each of them ended last."""
    files = files_digest()
    for part in [part for lane in QUICK for part in lane] if quick else PARTS:
        result = Result.read(result_file(part.name, quick=quick))
        state = "not run" if result is None else f"{result.outcome} in {duration(result.seconds)}"
        if result is not None and result.files != files:
            state += ", before the files changed"
        print(f"{part.name:20} {part.what:75} {state}")


def holder(classname: str) -> str | None:
    """Return the part that runs a test, by the class name that pytest's XML gives it: `tests.unit.test_parts`."""
    path = classname.removeprefix("tests.").replace(".", "/")
    for part in PARTS:
        for test in part.tests:
            if f"{path}/".startswith(f"{test.removesuffix('.py')}/"):
                return part.name
    return None


def quick_seconds() -> dict[str, tuple[int, float]]:
    """Return what `make test` ran of each part: how many tests, and the sum of their seconds."""
    found: dict[str, tuple[int, float]] = {}
    for report in (RESULTS / "quick").glob("*.xml"):
        for case in ET.parse(report).getroot().iter("testcase"):  # written by ourselves
            if part := holder(case.get("classname", "")):
                tests, seconds = found.get(part, (0, 0.0))
                found[part] = tests + 1, seconds + float(case.get("time", 0))
    return found


def costs() -> None:
    """Print what each part cost when it ran last, as a table in Markdown."""
    print("| part | what it tests | in `make test` | in `make test-all` |\n| --- | --- | ---: | ---: |")
    quick = quick_seconds()
    for part in PARTS:
        tests, seconds = quick.get(part.name, (0, 0.0))
        whole = Result.read(result_file(part.name, quick=False))
        cells = [
            f"{tests:,} tests, {duration(seconds)}" if tests else "",
            "" if whole is None else f"{sum(whole.tests.values()):,} tests, {duration(whole.seconds)}",
        ]
        print(f"| `{part.name}` | {part.what} | {' | '.join(cells)} |")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.parts", description="The test suite in parts.")
    parser.add_argument("parts", nargs="*", metavar="PART", help="run these alone; --list shows their names")
    parser.add_argument("--quick", action="store_true", help="leave out tests that are marked long")
    parser.add_argument("--files", nargs="+", metavar="FILE", default=(), help="run these files' tests, but long ones")
    parser.add_argument("--list", action="store_true", help="show the parts and how each ended last")
    parser.add_argument("--costs", action="store_true", help="print a table of what each part took")
    chosen = parser.parse_args(arguments)
    if unknown := set(chosen.parts) - {part.name for part in PARTS}:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; --list shows their names")
    if chosen.list:
        show(quick=chosen.quick)
    elif chosen.costs:
        costs()
    else:
        return run(chosen.parts, quick=chosen.quick or bool(chosen.files), files=chosen.files)
    return 0


if __name__ == "__main__":
    sys.exit(main())
