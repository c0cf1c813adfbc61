"""One Structured Streaming query, the peer: Spark's Kafka connector, RocksDB state store, Kafka sink.

See ``bench.instance`` for how it reports. It is set up as its users would for this machine: a state partition for
each input partition instead of the 200 of the default.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from bench.connector import connector_jars
from bench.instance import Reporter, Stillness, Stopping, run_instance
from bench.structured_queries import start_query
from bench.workload import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

#: How the message begins that a query has while it runs a batch, the other one without data.
_WORKING = ("Processing new data", "No new data but cleaning up state")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Run the query of the orders until asked to stop."""
    run_query(start_query, orders, report, stopping)


def run_query(
    start: Callable[[SparkSession, dict[str, Any]], StreamingQuery],
    orders: dict[str, Any],
    report: Reporter,
    stopping: Stopping,
) -> None:
    """Run a query until asked to stop."""
    settings = {
        "spark.jars": ",".join(map(str, connector_jars())),
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        **orders["spark"],
    }
    spark = SparkSession.builder.appName("bench").config(map=settings).getOrCreate()
    report("spark", at=time.time(), version=spark.version)
    query = start(spark, orders)
    seen = -1
    live = False
    stillness = Stillness(report, time.monotonic()) if orders.get("still") else None
    while query.isActive and not stopping.wait(max(0.1, orders["look_s"])):
        stopping.answer(spark, report)
        if not live and query.status["message"] != "Initializing sources":
            live = True
            report("live", at=time.time())
        if stillness is not None:
            # The trigger is always active, for a moment, to look for new data.
            stillness.look(time.monotonic(), busy=seen < 0 or query.status["message"].startswith(_WORKING))
        last = query.lastProgress
        if last is None or last["batchId"] == seen:
            continue
        for batch in query.recentProgress:
            # Reports of a query at rest have the number of the batch that is to come.
            if batch["batchId"] > seen and (batch["numInputRows"] or "addBatch" in batch["durationMs"]):
                seen = batch["batchId"]
                _report_batch(json.loads(batch.json), report)
                if stillness is not None:
                    stillness.look(time.monotonic(), busy=True)
    if (error := query.exception()) is not None:
        raise error
    query.stop()
    spark.stop()


def _report_batch(batch: dict[str, Any], report: Reporter) -> None:
    began = dt.datetime.fromisoformat(batch["timestamp"]).timestamp()
    millis = batch["durationMs"]
    report(
        "batch",
        id=batch["batchId"],
        rows=sum(map(records_of, batch["sources"])),
        began=began,
        ended=began + millis["triggerExecution"] / 1000,
        millis=millis,
    )


def records_of(source: dict[str, Any]) -> int:
    """Return how many records of a topic there were: a query that reads a topic twice has twice as many input rows."""
    ends, starts = source["endOffset"] or {}, source["startOffset"] or {}
    offsets = sum(
        end - starts.get(topic, {}).get(partition, 0)
        for topic, partitions in ends.items()
        for partition, end in partitions.items()
    )
    # Of a topic written in transactions, some offsets are no records.
    return min(source["numInputRows"], offsets)


if __name__ == "__main__":
    sys.exit(run_instance(run))
