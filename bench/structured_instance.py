"""One Structured Streaming query, the peer: Spark's Kafka connector, RocksDB state store, update mode, Kafka sink.

See ``bench.instance`` for how it reports. It is set up as its users would for this machine: a state partition for
each input partition instead of the 200 of the default.
"""

from __future__ import annotations

import datetime as dt
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession, functions as F  # noqa: N812 - everybody writes it so

from bench.connector import connector_jars
from bench.instance import Reporter, Stopping, run_instance
from bench.workload import CONDITION, PARTITIONS, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

#: In real-time mode, how long a micro-batch lasts; rows go out meanwhile.
_CHECKPOINT_SECONDS = 5
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def start_query(spark: SparkSession, orders: dict[str, Any]) -> StreamingQuery:
    """Start the query: filter, count and sum by user, write updates."""
    kafka = {"kafka.bootstrap.servers": orders["bootstrap_servers"]}
    source = spark.readStream.format("kafka").options(**kafka, subscribe=orders["source"], startingOffsets="earliest")
    if orders.get("max_batch_records"):
        source = source.option("maxOffsetsPerTrigger", orders["max_batch_records"])
    records = (
        source.load().select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("record")).select("record.*")
    )
    totals = records.where(CONDITION).groupBy("user").agg(F.count("*").alias("orders"), F.sum("amount").alias("total"))
    rows = totals.select(F.col("user").alias("key"), F.to_json(F.struct("user", "orders", "total")).alias("value"))
    sink = rows.writeStream.format("kafka").options(**kafka, topic=orders["sink"]).outputMode("update")
    if orders.get("real_time"):
        sink = sink.trigger(realTime=f"{_CHECKPOINT_SECONDS} seconds")
    return sink.option("checkpointLocation", orders["folder"]).start()


def run(orders: dict[str, Any], report: Reporter, stopping: Stopping) -> None:
    """Run until asked to stop."""
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
    query = start_query(spark, orders)
    seen = -1
    live = False
    while query.isActive and not stopping.wait(max(0.1, orders["look_s"])):
        stopping.answer(spark, report)
        if not live and query.status["message"] != "Initializing sources":
            live = True
            report("live", at=time.time())
        last = query.lastProgress
        if last is None or last["batchId"] == seen:
            continue
        for batch in query.recentProgress:
            if batch["batchId"] > seen and batch["numInputRows"]:
                seen = batch["batchId"]
                _report_batch(json.loads(batch.json), report)
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
        rows=batch["numInputRows"],
        began=began,
        ended=began + millis["triggerExecution"] / 1000,
        millis=millis,
    )


if __name__ == "__main__":
    sys.exit(run_instance(run))
