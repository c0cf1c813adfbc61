"""The bench's queries for SparkRelay, as its users would write them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - everybody writes it so

from bench.formats import record_format
from bench.lookups import TABLE_SCHEMA
from bench.workload import CONDITION, SCHEMA
from sparkrelay.records.formats import Json, String
from sparkrelay.topology import StreamsBuilder

if TYPE_CHECKING:
    from sparkrelay.topology import Topology

__all__ = ["TOTALS_STORE", "WINDOW_STORE", "build_topology"]

TOTALS_STORE = "totals"
WINDOW_STORE = "windows"
_KEY = "user string, "


def build_topology(orders: dict[str, Any]) -> Topology:
    """Return the query that an instance's orders want: ``query``, ``source``, ``sink``, and what it takes besides."""
    builder = StreamsBuilder()
    _QUERIES[orders.get("query", "totals")](builder, orders)
    return builder.build()


def _totals(builder: StreamsBuilder, orders: dict[str, Any]) -> None:
    """Filter, count and sum by user (and keep the greatest ``note``), write updates."""
    records = builder.stream(orders["source"], key=String("user"), value=record_format(orders.get("format", "json")))
    results = [
        F.count("*").alias("orders"),
        F.sum("amount").alias("total"),
        *([F.max("note").alias("note")] if orders.get("note") else []),
    ]
    records.where(CONDITION).groupBy("user").agg(*results, name=TOTALS_STORE).to(orders["sink"], value=Json())


def _pass(builder: StreamsBuilder, orders: dict[str, Any]) -> None:
    """Pass the records on."""
    value = record_format("json")
    builder.stream(orders["source"], key=String("user"), value=value).to(orders["sink"], key="user", value=Json())


def _lookup(builder: StreamsBuilder, orders: dict[str, Any]) -> None:
    """Look each record's user up in a table."""
    value = Json(TABLE_SCHEMA.removeprefix(_KEY))
    profiles = builder.table(orders["table"], key=String("user"), value=value, name=orders["table"])
    records = builder.stream(orders["source"], key=String("user"), value=Json(SCHEMA.removeprefix(_KEY)))
    joined = records.join(profiles, "user")
    joined.select("user", "amount", "n", "country", "points").to(orders["sink"], value=Json())


def _join(builder: StreamsBuilder, orders: dict[str, Any]) -> None:
    """Join each record with what was answered to its user at about the same time."""
    schema = SCHEMA.removeprefix(_KEY) + ", time timestamp"
    delay, within = f"{orders['delay_s']} seconds", f"{orders['within_s']} seconds"
    records, answers = (
        builder.stream(orders[topic], key=String("user"), value=Json(schema)) for topic in ("source", "answers")
    )
    answers = answers.select("user", F.col("n").alias("answer"), F.col("time").alias("answered"))
    joined = records.withWatermark("time", delay).join(answers.withWatermark("answered", delay), "user", within=within)
    joined.select("user", "amount", "n", "answer").to(orders["sink"], value=Json())


def _windows(builder: StreamsBuilder, orders: dict[str, Any]) -> None:
    """Filter, count and sum by user and window, write updates or the final rows."""
    schema = SCHEMA.removeprefix(_KEY) + ", time timestamp"
    records = builder.stream(orders["source"], key=String("user"), value=Json(schema)).where(CONDITION)
    if orders["delay_s"] is not None:
        records = records.withWatermark("time", f"{orders['delay_s']} seconds")
    totals = records.groupBy("user", F.window("time", f"{orders['window_s']} seconds")).agg(
        F.count("*").alias("orders"), F.sum("amount").alias("total"), name=WINDOW_STORE
    )
    rows = totals.outputMode("append") if orders["final"] else totals
    start = F.unix_millis("window.start").alias("start")
    rows.select("user", start, "orders", "total").to(orders["sink"], value=Json())


_QUERIES = {"totals": _totals, "pass": _pass, "lookup": _lookup, "join": _join, "windows": _windows}
