"""One instance of the demo: a PySpark application as a user would write it, which also reports what it does.

Run as ``python -m sparkrelay.demo.instance JSON`` by the demo. Reports are JSON lines, each with ``event``:

    spark   the Spark session is up: version, at
    state   KafkaStreams changed its state: state
    tasks   several times a second: what each task does, lags, records read so far, batches
    log     the runtime logged what moves and why: text
    failed  what ended it: text
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - everybody writes it so

from sparkrelay.demo.children import open_reports
from sparkrelay.demo.flights import FLIGHTS_SCHEMA
from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN, FLIGHTS_TOPIC
from sparkrelay.records.formats import Json, String
from sparkrelay.runtime.instance.kafka_streams import KafkaStreams
from sparkrelay.runtime.instance.quick_session import spark_session
from sparkrelay.topology import StreamsBuilder

if TYPE_CHECKING:
    from sparkrelay.topology import Topology

__all__ = ["build_topology"]

_TICK_S: Final = 0.2
_STOP_S: Final = 45.0
_LEADER: Final = "sparkrelay.runtime.group.group_assignor"
#: Whose words are worth a line on the screen: the leader's plan, and what makes a member ask for another.
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
    """Writes reports, whole lines, from any thread; those of the logs that it is a handler of, too."""

    def __init__(self, log: str) -> None:
        super().__init__(logging.DEBUG)
        self._out = open_reports(log)
        self._writing = threading.Lock()

    def send(self, event: str, **what: Any) -> None:
        line = json.dumps({"event": event, "at": time.time(), **what}).encode() + b"\n"
        with self._writing:
            self._out.write(line)

    def emit(self, record: logging.LogRecord) -> None:
        self.send("log", text=record.getMessage())


class _Instance:
    """The instance at work, and what it has read so far: the runtime shows only the newest batches."""

    def __init__(self, options: dict[str, Any], reports: _Reports) -> None:
        self._reports = reports
        self._spark = spark_session(f"demo {options['name']}", **options["spark"])
        reports.send("spark", version=self._spark.version)
        self._streams = KafkaStreams(build_topology(), options["config"], spark=self._spark)
        self._streams.set_state_listener(lambda state, _: reports.send("state", state=state))
        self._next = self._batches = self._records = 0

    def run(self, stopping: threading.Event) -> None:
        self._streams.start()
        self._report()  # with our process id, before the leader names it
        while not stopping.wait(_TICK_S) and self._streams.isActive:
            self._report()
        if not self._streams.stop(_STOP_S):
            raise TimeoutError(f"the instance did not stop within {_STOP_S:g} s")
        self._report()
        self._streams.awaitTermination()  # raises what ended it
        self._spark.stop()

    def _report(self) -> None:
        for batch in self._streams.recentProgress:
            if batch["batchId"] >= self._next:
                self._next = batch["batchId"] + 1
                self._batches += 1
                rows = {source["description"]: source["numInputRows"] for source in batch["sources"]}
                self._records += rows.get(f"Kafka[{FLIGHTS_TOPIC}]", 0)
        threads = [
            {
                "process": thread.process_id,
                "executor": thread.executor_id,
                "tasks": {
                    task.task_id: [task.state, task.changelog_lag]
                    for task in (*thread.active_tasks, *thread.standby_tasks)
                },
            }
            for thread in self._streams.metadata_for_local_threads()
        ]
        self._reports.send(
            "tasks",
            threads=threads,
            behind=sum(self._streams.input_lags.values()),
            records=self._records,
            batches=self._batches,
            status=self._streams.status,
        )


def _main(argument: str) -> int:
    """Run one instance until SIGTERM; return the exit code."""
    options: dict[str, Any] = json.loads(argument)
    reports = _Reports(options["log"])
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
    )
    logging.getLogger("py4j").setLevel(logging.WARNING)
    for name in _SHOWN:
        logging.getLogger(name).addHandler(reports)
    # One line for each decision of the leader.
    logging.getLogger(_LEADER).setLevel(logging.DEBUG)
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
    sys.exit(_main(sys.argv[1]))
