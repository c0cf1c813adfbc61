"""The bench's queries for Structured Streaming, as its users would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - everybody writes it so

from bench.lookups import TABLE_SCHEMA
from bench.workload import CONDITION, SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["start_query"]

#: In real-time mode, how long a micro-batch lasts; rows go out meanwhile.
_CHECKPOINT_SECONDS = 5


def start_query(spark: SparkSession, orders: dict[str, Any]) -> StreamingQuery:
    """Start the query that the orders want."""
    kafka = {"kafka.bootstrap.servers": orders["bootstrap_servers"]}
    source = _read(spark, orders, orders["source"])
    rows, mode = _QUERIES[orders.get("query", "totals")](source, spark, orders)
    values = rows.select(F.col("user").alias("key"), F.to_json(F.struct("*")).alias("value"))
    sink = values.writeStream.format("kafka").options(**kafka, topic=orders["sink"]).outputMode(mode)
    if orders.get("real_time"):
        sink = sink.trigger(realTime=f"{_CHECKPOINT_SECONDS} seconds")
    return sink.option("checkpointLocation", orders["folder"]).start()


def _read(spark: SparkSession, orders: dict[str, Any], topic: str) -> DataFrame:
    source = spark.readStream.format("kafka").options(
        **{"kafka.bootstrap.servers": orders["bootstrap_servers"]}, subscribe=topic, startingOffsets="earliest"
    )
    if orders.get("max_batch_records"):
        topics = 2 if "answers" in orders else 1
        source = source.option("maxOffsetsPerTrigger", orders["max_batch_records"] // topics)
    return source.load()


def _totals(source: DataFrame, spark: SparkSession, orders: dict[str, Any]) -> tuple[DataFrame, str]:
    """Filter, count and sum by user, write updates."""
    del spark, orders
    records = _parsed(source, SCHEMA).where(CONDITION)
    return records.groupBy("user").agg(F.count("*").alias("orders"), F.sum("amount").alias("total")), "update"


def _lookup(source: DataFrame, spark: SparkSession, orders: dict[str, Any]) -> tuple[DataFrame, str]:
    """Join with the table as it is at the start: a stream has no other way to look something up.

    Parsed once, and kept in memory; a broadcast spares the records the shuffle.
    """
    kafka = {"kafka.bootstrap.servers": orders["bootstrap_servers"], "subscribe": orders["table"]}
    topic = spark.read.format("kafka").options(**kafka).load()
    value = F.from_json(F.col("value").cast("string"), TABLE_SCHEMA)
    profiles = topic.select(F.col("key").cast("string").alias("user"), value.alias("row"))
    profiles = profiles.select("user", "row.country", "row.points").cache()
    profiles.count()
    joined = _parsed(source, SCHEMA).join(F.broadcast(profiles), "user")
    return joined.select("user", "amount", "n", "country", "points"), "append"


def _join(source: DataFrame, spark: SparkSession, orders: dict[str, Any]) -> tuple[DataFrame, str]:
    """Join each record with what was answered to its user at about the same time."""
    schema, delay = f"{SCHEMA}, time timestamp", f"{orders['delay_s']} seconds"
    answers = _parsed(_read(spark, orders, orders["answers"]), schema)
    answers = answers.select(F.col("user").alias("to"), F.col("n").alias("answer"), F.col("time").alias("answered"))
    records, answers = (
        _parsed(source, schema).withWatermark("time", delay),
        answers.withWatermark("answered", delay),
    )
    within = F.expr(f"INTERVAL {orders['within_s']} SECONDS")
    near = F.col("answered").between(F.col("time") - within, F.col("time") + within)
    joined = records.join(answers, (F.col("user") == F.col("to")) & near)
    return joined.select("user", "amount", "n", "answer"), "append"


def _windows(source: DataFrame, spark: SparkSession, orders: dict[str, Any]) -> tuple[DataFrame, str]:
    """Filter, count and sum by user and window, write updates or the final rows."""
    del spark
    records = _parsed(source, f"{SCHEMA}, time timestamp").where(CONDITION)
    if orders["delay_s"] is not None:
        records = records.withWatermark("time", f"{orders['delay_s']} seconds")
    totals = records.groupBy("user", F.window("time", f"{orders['window_s']} seconds")).agg(
        F.count("*").alias("orders"), F.sum("amount").alias("total")
    )
    rows = totals.select("user", F.unix_millis("window.start").alias("start"), "orders", "total")
    return rows, "append" if orders["final"] else "update"


def _parsed(source: DataFrame, schema: str) -> DataFrame:
    return source.select(F.from_json(F.col("value").cast("string"), schema).alias("record")).select("record.*")


_QUERIES = {"totals": _totals, "lookup": _lookup, "join": _join, "windows": _windows}
