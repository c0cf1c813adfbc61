"""One instance of SparkRelay running one of the bench's queries. See ``bench.instance`` for how it reports."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from bench.instance import Reporter, Stillness, Stopping, run_instance
from bench.relay_phases import PhaseLog
from bench.relay_queries import build_topology
from bench.relay_tasks import RelayTasks
from sparkrelay.runtime.instance.kafka_streams import KafkaStreams
from sparkrelay.runtime.instance.quick_session import spark_session
from sparkrelay.runtime.thread import stream_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sparkrelay.topology import Topology


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Run the query of the orders until asked to stop."""
    run_topology(lambda _: build_topology(orders), orders, report, stopping)


def run_topology(
    build: Callable[[SparkSession], Topology], orders: dict[str, Any], report: Reporter, stopping: Stopping
) -> None:
    """Run a topology until asked to stop; ``topics`` of the orders names its sources, if it is not one of the bench."""
    phases = bool(orders.get("phases"))
    if phases:
        report("phase", name="imported", at=time.time())
        PhaseLog(report)
    spark = spark_session("bench", **orders["spark"])
    report("spark", at=time.time(), version=spark.version)
    if "purge_s" in orders:
        # No setting: a short run looks at changelogs more often than they are cut.
        stream_thread._PURGE_SECONDS = orders["purge_s"]  # noqa: SLF001
    streams = KafkaStreams(build(spark), orders["config"], spark=spark)
    if phases:
        report("phase", name="compiled", at=time.time())
    if orders.get("paused"):
        streams.pause()
    if orders.get("tasks"):
        # Each decision of the leader, with its reason.
        logging.getLogger("sparkrelay.runtime.group.group_assignor").setLevel(logging.DEBUG)
    streams.start()
    if phases:
        report("phase", name="started", at=time.time())
    tasks = RelayTasks(streams, report) if orders.get("tasks") else None
    topics = orders.get("topics") or [orders[name] for name in ("source", "answers") if name in orders]
    sources = {f"Kafka[{topic}]" for topic in topics}
    seen = -1
    counted = 0
    live = False
    stillness = Stillness(report, time.monotonic()) if orders.get("still") else None
    while streams.isActive and not stopping.wait(orders["look_s"]):
        stopping.answer(spark, report)
        if tasks is not None:
            tasks.look()
        if streams.is_paused and stopping.go.is_set():
            streams.resume()
        if not live and streams.state == "RUNNING":
            live = True
            report("live", at=time.time())
        last = streams.lastProgress
        if last is None or last["batchId"] == seen:
            if stillness is not None:
                stillness.look(time.monotonic(), busy=not counted or bool(sum(streams.input_lags.values())))
            continue
        if stillness is not None:
            stillness.look(time.monotonic(), busy=True)
        now = time.time()
        recent = streams.recentProgress
        # Tasks whose part was not committed, as of a batch that outlasted its transaction, take it again.
        totals = streams.snapshot().totals.records
        committed = sum(totals.get(topic, 0) for topic in topics)
        for batch in recent:
            if batch["batchId"] > seen:
                seen = batch["batchId"]
                began = now - batch["durationMs"]["triggerExecution"] / 1000
                # Rows of a table do not count.
                read = sum(topic["numInputRows"] for topic in batch["sources"] if topic["description"] in sources)
                rows = min(read, committed - counted)
                counted += rows
                # Also from topics between, whose rows do not count, and are work.
                read = batch["numInputRows"]
                report("batch", id=seen, rows=rows, read=read, began=began, ended=now, millis=batch["durationMs"])
    if not streams.stop(60.0):
        raise TimeoutError("the instance did not stop within 60 s")
    streams.awaitTermination()  # raises what ended it
    spark.stop()


if __name__ == "__main__":
    sys.exit(run_instance(run))
