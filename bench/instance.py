"""What the systems' processes have in common: how they report, and when they end.

An instance is a process of its own (``python -m bench.relay_instance``, ``bench.structured_instance`` or, in Java,
``bench.streams_instance``) that gets its orders as one JSON argument, writes reports as JSON lines to standard output,
and ends when its standard input does: also when the bench itself is killed. Reports, times in seconds since 1970:

    spark   the Spark session is up: at, version (Kafka Streams: up, at)
    live    the query takes input: at
    phase   ours has done a part of its start, if the orders want that: name, at
    batch   a micro-batch was committed: id, rows, began, ended, and where its time went: millis
            (Kafka Streams: what was processed since the last report; millis is empty). Where topics between are
            part of the query, read is how many records of all topics there were
    still   nothing was done for a while, and nothing is left to do, if the orders want that (``still``)
    jobs    how many Spark jobs there have been, when a line came in: count
    tasks   what it has, if the orders want that and it changed: at, places (see ``bench.member``)
    restored  records of changelogs that tasks were restored from, if the orders want that: count, began, ended
    failed  what ended it: text
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["Reporter", "Stillness", "Stopping", "run_instance"]

_STILL_S = 2.0


class Reporter:
    """Writes reports, whole lines."""

    def __init__(self) -> None:
        # What libraries print must not end up between reports.
        self._out = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)

    def __call__(self, event: str, **what: Any) -> None:
        """Write one report."""
        self._out.write(json.dumps({"event": event, **what}).encode() + b"\n")


class Stopping:
    """Says when the bench wants the instance to end, to begin its work, or asks for a count of jobs."""

    def __init__(self) -> None:
        self._event = threading.Event()
        #: An instance that waits with its work (order ``paused``) may begin.
        self.go = threading.Event()
        self._asked = threading.Event()
        threading.Thread(target=self._watch, name="bench-stdin", daemon=True).start()

    def wait(self, seconds: float) -> bool:
        """Wait that long at most; True once the instance should end."""
        return self._event.wait(seconds)

    def answer(self, spark: SparkSession, report: Reporter) -> None:
        """Report how many jobs Spark was given, if the bench has asked."""
        if self._asked.is_set():
            self._asked.clear()
            scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # noqa: SLF001 - no public count of all jobs
            report("jobs", count=scheduler.numTotalJobs())

    def _watch(self) -> None:
        while line := os.read(0, 4096):
            (self.go if b"go" in line else self._asked).set()
        self._event.set()


class Stillness:
    """Reports ``still`` once nothing was done for two seconds, and again when that is so after more work.

    Args:
        report: takes it.
        now: seconds, of a clock that is never set back.
    """

    def __init__(self, report: Callable[[str], None], now: float) -> None:
        self._report = report
        self._since = now
        self._reported = False

    def look(self, now: float, *, busy: bool) -> None:
        """Note whether there is anything to do now, or was since the last look."""
        if busy:
            self._since, self._reported = now, False
        elif not self._reported and now - self._since >= _STILL_S:
            self._reported = True
            self._report("still")


def run_instance(body: Callable[[dict[str, Any], Reporter, Stopping], None]) -> int:
    """Run an instance with the orders of the command line; return the exit code."""
    report, stopping = Reporter(), Stopping()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    try:
        body(json.loads(sys.argv[1]), report, stopping)
    except Exception as error:  # noqa: BLE001 - the bench reports it, with the log
        traceback.print_exc()
        report("failed", at=time.time(), text=f"{type(error).__name__}: {error}")
        return 1
    return 0
