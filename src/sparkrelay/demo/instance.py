"""One instance of the demo's pipeline: a PySpark application like any user's, that also reports what it does.

Run as ``python -m sparkrelay.demo.instance JSON`` by the demo. Reports are JSON lines, each with ``event``:

    spark   the Spark session is up: version, at
    state   KafkaStreams changed its state: state
    tasks   several times a second: what each task does, lags, records read so far, batches
    told    the runtime told what moves and why: text
    failed  what ended it: text
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO

from pyspark.sql import functions as F  # noqa: N812 - everybody writes it so

from sparkrelay.demo.children import open_reports
from sparkrelay.demo.flights import FLIGHTS_SCHEMA
from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN, FLIGHTS_TOPIC
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.instance.kafka_streams import KafkaStreams
from sparkrelay.runtime.spark.session import spark_session
from sparkrelay.topology import StreamsBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.topology import Topology

__all__ = ["build_topology", "main"]

_TICK_S = 0.2
_STOP_S = 45.0
#: Whose words are worth a line on the screen: the leader's plan, and what makes a member ask for another.
_TELLERS = (
    "sparkrelay.runtime.group.group_assignor",
    "sparkrelay.runtime.thread.membership",
    "sparkrelay.runtime.group.assignment_log",
)


def build_topology() -> Topology:
    """Return the pipeline: delays by carrier and day, and by origin, which needs a repartition."""
    builder = StreamsBuilder()
    flights = builder.stream(FLIGHTS_TOPIC, key=String("carrier"), value=Json(FLIGHTS_SCHEMA))
    left = flights.where("dep_delay is not null")
    totals = (
        F.count("*").alias("flights"),
        F.sum("dep_delay").alias("total_delay"),
        F.avg("dep_delay").alias("mean_delay"),
    )
    left.groupBy("carrier", F.window("time", "1 day")).agg(*totals).to(BY_CARRIER.topic, value=Json())
    left.groupBy("origin").agg(*totals).to(BY_ORIGIN.topic, value=Json())
    return builder.build()


class _Reporter:
    """Writes reports, whole lines, from any thread."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._lock = threading.Lock()

    def __call__(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, "at": time.time(), **what}).encode() + b"\n"
        with self._lock:
            self._out.write(line)


class _Teller(logging.Handler):
    """Passes what the runtime tells on to the screen."""

    def __init__(self, report: _Reporter) -> None:
        super().__init__(logging.DEBUG)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report("told", text=record.getMessage())


class _Counter:
    """Sums micro-batches up; each is seen once, though the runtime shows only the newest."""

    def __init__(self) -> None:
        self._next = 0
        self.records = 0
        self.batches = 0

    def take(self, progress: list[dict[str, Any]]) -> None:
        for batch in progress:
            if batch["batchId"] < self._next:
                continue
            self._next = batch["batchId"] + 1
            self.batches += 1
            self.records += sum(
                source["numInputRows"]
                for source in batch["sources"]
                if source["description"] == f"Kafka[{FLIGHTS_TOPIC}]"
            )


def main(argument: str) -> int:
    """Run one instance until SIGTERM; return the exit code."""
    options: dict[str, Any] = json.loads(argument)
    report = _Reporter(open_reports(options["log"]))
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for teller in _TELLERS:
        logging.getLogger(teller).addHandler(_Teller(report))
    # One line for each decision of the leader.
    logging.getLogger(_TELLERS[0]).setLevel(logging.DEBUG)
    sys.path += [path for path in options["path"] if path not in sys.path]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        _run(options, report, stopping)
    except Exception as error:
        logging.getLogger(__name__).exception("the instance failed")
        report("failed", text=f"{type(error).__name__}: {error}")
        return 1
    return 0


def _run(options: dict[str, Any], report: _Reporter, stopping: threading.Event) -> None:
    spark = spark_session(f"demo {options['name']}", **options["spark"])
    report("spark", version=spark.version)
    streams = KafkaStreams(build_topology(), options["config"], spark=spark)
    streams.set_state_listener(lambda state, _: report("state", state=state))
    streams.start()
    counter = _Counter()
    _report_tasks(streams, counter, report)  # tells our process id before the leader names it
    while not stopping.wait(_TICK_S) and streams.isActive:
        _report_tasks(streams, counter, report)
    if not streams.stop(_STOP_S):
        raise TimeoutError(f"the instance did not stop within {_STOP_S:g} s")
    _report_tasks(streams, counter, report)
    streams.awaitTermination()  # raises what ended it
    spark.stop()


def _report_tasks(streams: KafkaStreams, counter: _Counter, report: _Reporter) -> None:
    counter.take(streams.recentProgress)
    report(
        "tasks",
        places=[
            {
                "process": thread.process_id,
                "executor": thread.executor_id,
                "tasks": {task.task_id: [task.state, task.changelog_lag] for task in _tasks(thread)},
            }
            for thread in streams.metadata_for_local_threads()
        ],
        behind=sum(streams.input_lags.values()),
        records=counter.records,
        batches=counter.batches,
        status=streams.status,
    )


def _tasks(thread: Any) -> Iterator[Any]:
    yield from thread.active_tasks
    yield from thread.standby_tasks


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
