"""An instance of the demo: a PySpark application as a user would write it, which also reports its progress.

The demo runs it as ``python -m sparkrelay.demo.instance JSON REPORTS``. It appends JSON lines to the file REPORTS,
each with ``event`` and ``at``:

    spark   the Spark session is up: version
    state   KafkaStreams changed its state: state
    tasks   several times a second: the tasks of each thread, input lag, records read, micro-batches, status
    log     the runtime logged an assignment decision: text
    failed  the error that ended it: text
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - everybody writes it so

from sparkrelay.demo.flights import FLIGHTS_SCHEMA
from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN, FLIGHTS_TOPIC
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.instance.kafka_streams import KafkaStreams
from sparkrelay.runtime.instance.quick_session import spark_session
from sparkrelay.topology import StreamsBuilder

if TYPE_CHECKING:
    from sparkrelay.topology import Topology

_TICK_S: Final = 0.2
_STOP_S: Final = 45.0
_LEADER: Final = "sparkrelay.runtime.group.group_assignor"
#: Loggers that the screen shows: the leader's decisions, and why a member asks for a rebalance.
_SHOWN: Final = (_LEADER, "sparkrelay.runtime.thread.membership", "sparkrelay.runtime.group.assignment_log")


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
    by_day = left.withWatermark("time", "2 days").groupBy("carrier", F.window("time", "1 day"))
    by_day.agg(*totals).to(BY_CARRIER.topic, value=Json())
    left.groupBy("origin").agg(*totals).to(BY_ORIGIN.topic, value=Json())
    return builder.build()


class _Reports(logging.Handler):
    """Writes reports from any thread, also as the handler of loggers."""

    def __init__(self, path: str) -> None:
        super().__init__(logging.DEBUG)
        self._out = Path(path).open("ab", buffering=0)  # noqa: SIM115 - for the life of the process
        self._writing = threading.Lock()

    def send(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, "at": time.time(), **what}).encode() + b"\n"
        with self._writing:
            self._out.write(line)

    def emit(self, record: logging.LogRecord) -> None:
        self.send("log", text=record.getMessage())


class _Instance:
    """A running instance, and its progress so far: the runtime only keeps that of the newest batches."""

    def __init__(self, options: dict[str, Any], reports: _Reports) -> None:
        self._reports = reports
        self._spark = spark_session(f"demo {options['name']}", **options["spark"])
        reports.send("spark", version=self._spark.version)
        self._streams = KafkaStreams(build_topology(), options["config"], spark=self._spark)
        self._streams.set_state_listener(lambda state, _: reports.send("state", state=state))
        self._next = self._batches = self._records = 0

    def run(self, stopping: threading.Event) -> None:
        self._streams.start()
        self._report()  # with our process id, before the leader logs it
        while not stopping.wait(_TICK_S) and self._streams.isActive:
            self._report()
        if not self._streams.stop(_STOP_S):
            raise TimeoutError(f"the instance did not stop within {_STOP_S:g} s")
        self._report()
        self._streams.awaitTermination()  # raises the error that ended it, if any
        self._spark.stop()

    def _report(self) -> None:
        streams = self._streams
        for batch in streams.recentProgress:
            if batch["batchId"] >= self._next:
                self._next = batch["batchId"] + 1
                self._batches += 1
                rows = {source["description"]: source["numInputRows"] for source in batch["sources"]}
                self._records += rows.get(f"Kafka[{FLIGHTS_TOPIC}]", 0)
        threads = []
        for thread in streams.metadata_for_local_threads():
            tasks = {t.task_id: [t.state, t.changelog_lag] for t in (*thread.active_tasks, *thread.standby_tasks)}
            threads.append({"process": thread.process_id, "executor": thread.executor_id, "tasks": tasks})
        self._reports.send(
            "tasks",
            threads=threads,
            behind=sum(streams.input_lags.values()),
            records=self._records,
            batches=self._batches,
            status=streams.status,
        )


def _main(argument: str, report_path: str) -> int:
    """Run an instance until SIGTERM; return the exit code."""
    options: dict[str, Any] = json.loads(argument)
    reports = _Reports(report_path)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in _SHOWN:
        logging.getLogger(name).addHandler(reports)
    logging.getLogger(_LEADER).setLevel(logging.DEBUG)  # one line per decision
    sys.path += [path for path in options["path"] if path not in sys.path]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    try:
        _Instance(options, reports).run(stopping)
    except Exception as error:
        logging.getLogger(__name__).exception("the instance failed")
        reports.send("failed", text=f"{type(error).__name__}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
