"""The judge of the demo: a plain Spark batch over the same CSV, in a process of its own, with nothing of ours in it.

Run as ``python -m sparkrelay.demo.batch JSON`` by the demo. It writes the two tables as JSON:
``{topic: [[row key, flights, total delay, mean delay], ...]}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession, functions as F  # noqa: N812 - everybody writes it so

from sparkrelay.demo.children import open_reports
from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def _main(argument: str) -> None:
    """Count the flights of ``csv`` and write the tables to ``out``."""
    options = json.loads(argument)
    open_reports(options["log"])
    builder = SparkSession.builder.master(options["master"]).appName("demo: plain batch")
    settings = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "sql.session.timeZone": "UTC"}
    for name, value in {**settings, "sql.shuffle.partitions": "2"}.items():
        builder = builder.config(f"spark.{name}", value)
    spark = builder.getOrCreate()
    flights = (
        spark.read.csv(options["csv"], header=True, nullValue="NA")
        .where("dep_delay is not null")
        .selectExpr("carrier", "origin", "int(dep_delay) delay", "string(to_date(timestamp(time_hour))) day")
        .cache()
    )
    tables = {BY_CARRIER.topic: _rows(flights, "carrier", "day"), BY_ORIGIN.topic: _rows(flights, "origin")}
    Path(options["out"]).write_text(json.dumps(tables))
    spark.stop()


def _rows(flights: DataFrame, *keys: str) -> list[list[Any]]:
    totals = flights.groupBy(*keys).agg(F.count("*"), F.sum("delay"), F.avg("delay")).collect()
    return [[list(row[: len(keys)]), *row[len(keys) :]] for row in totals]


if __name__ == "__main__":
    _main(sys.argv[1])
