"""The queries of Nexmark that Structured Streaming can do, as its users would write them.

Most are the SQL that says what must come out, over the topics as streaming views. What SQL does not take to a stream is
written with DataFrames: q5, q7 and q8 group by the window itself, so that Spark sees when a group is over. The others
(q4, q6, q9, q15, q16, q18, q19) need what a stream of Spark does not have: a grouping of groups whose rows change,
``row_number``, or ``count(DISTINCT ...)``.
"""

# ruff: noqa: N812 - everybody writes `functions as F`

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from bench.nexmark.events import SCHEMAS
from bench.nexmark.queries import QUERIES
from bench.nexmark.query import LATE
from bench.nexmark.truth import JSON_OPTIONS, columns_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["STRUCTURED_QUERIES", "start_query"]

_TENS: Final = "10 seconds"
#: Windows by when a record arrived have a watermark of that.
_EVENT_TIME: Final = {"q12": "arrived"}
#: The columns that are a table's key; other rows have their first column as the key.
_TABLES: Final = {"q17": ("auction", "day")}


def start_query(spark: SparkSession, orders: dict[str, Any]) -> StreamingQuery:
    """Start the query that the orders want."""
    name = orders["nexmark"]
    kafka = {"kafka.bootstrap.servers": orders["bootstrap_servers"]}
    for kind, topic in orders["sources"].items():
        source = spark.readStream.format("kafka").options(
            **kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=orders["limits"][kind]
        )
        event = F.from_json(F.col("value").cast("string"), SCHEMAS[kind]).alias("event")
        records = source.load().select(event, F.unix_millis("timestamp").alias("arrived"))
        rows = records.select("event.*", "arrived").selectExpr(*columns_of(kind))
        watermark = _EVENT_TIME.get(name, "dateTime") if kind == "bid" else "dateTime"
        rows.withWatermark(watermark, LATE).createOrReplaceTempView(kind)
    answer = STRUCTURED_QUERIES[name](spark)
    key = F.to_json(F.struct(*_TABLES[name])) if name in _TABLES else F.col(answer.columns[0]).cast("string")
    values = answer.select(key.alias("key"), F.expr(f"to_json(struct(*), {JSON_OPTIONS})").alias("value"))
    sink = values.writeStream.format("kafka").options(**kafka, topic=orders["sink"])
    mode = "update" if name in _TABLES else "append"
    return sink.outputMode(mode).option("checkpointLocation", orders["folder"]).start()


def _sql(name: str) -> Callable[[SparkSession], DataFrame]:
    return lambda spark: spark.sql(QUERIES[name].truth)


def _q5(spark: SparkSession) -> DataFrame:
    """Hot items: every two seconds, the auctions with the most bids of the last ten seconds."""
    # Reused exchanges hide the watermark from the second grouping, whose windows never end then (Spark 4.3).
    spark.conf.set("spark.sql.exchange.reuse", "false")
    windows = spark.table("bid").groupBy("auction", F.window("dateTime", _TENS, "2 seconds").alias("window"))
    counts = windows.agg(F.count("*").alias("num"))
    most = counts.groupBy("window").agg(F.max("num").alias("num")).selectExpr("window.end AS ends", "num")
    ended = counts.selectExpr("auction", "num", "window.start AS starts", "window.end AS ends")
    return ended.join(most, ["ends", "num"]).select("auction", "num", "starts", "ends")


def _q7(spark: SparkSession) -> DataFrame:
    """Highest bids: of every ten seconds, the bids with the highest price."""
    bids = spark.table("bid")
    highest = bids.groupBy(F.window("dateTime", _TENS).alias("window")).agg(F.max("price").alias("price"))
    timed = bids.withColumn("ends", F.window("dateTime", _TENS)["end"])
    rows = timed.join(highest.selectExpr("window.end AS ends", "price"), ["ends", "price"])
    return rows.select("auction", "price", "bidder", "dateTime", "extra", "ends")


def _q8(spark: SparkSession) -> DataFrame:
    """Monitor new users: people who registered and opened an auction in the same ten seconds."""
    window = F.window("dateTime", _TENS).alias("window")
    registered = spark.table("person").groupBy("id", "name", window).agg(F.count("*").alias("people"))
    opened = spark.table("auction").groupBy(F.col("seller").alias("id"), window).agg(F.count("*").alias("auctions"))
    registered = registered.selectExpr("id", "name", "window.start AS starts")
    return registered.join(opened.selectExpr("id", "window.start AS starts"), ["id", "starts"])


_AS_SQL: Final = ("q0", "q1", "q2", "q3", "q10", "q11", "q12", "q13", "q14", "q17", "q20", "q21", "q22", "q23")
#: By their names; each returns its answer over the views person, auction and bid.
STRUCTURED_QUERIES: Final[dict[str, Callable[[SparkSession], DataFrame]]] = {
    **{name: _sql(name) for name in _AS_SQL},
    "q5": _q5,
    "q7": _q7,
    "q8": _q8,
}
