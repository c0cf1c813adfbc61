"""The demo's judge: a plain Spark batch over the same CSV, in its own process, without any SparkRelay code.

The demo runs it as ``python -m sparkrelay.demo.batch JSON``. It writes the two tables as JSON:
``{topic: [[row key, flights, total delay, mean delay], ...]}``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession, functions as F  # noqa: N812 - everybody writes it so

from sparkrelay.demo.tables import BY_CARRIER, BY_ORIGIN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}


def _main(csv: str, out: str, master: str) -> None:
    spark = SparkSession.builder.master(master).appName("demo: plain batch").config(map=_SETTINGS).getOrCreate()
    flights = (
        spark.read.csv(csv, header=True, nullValue="NA")
        .where("dep_delay is not null")
        .selectExpr("carrier", "origin", "int(dep_delay) delay", "string(to_date(timestamp(time_hour))) day")
        .cache()
    )
    tables = {BY_CARRIER.topic: _rows(flights, "carrier", "day"), BY_ORIGIN.topic: _rows(flights, "origin")}
    Path(out).write_text(json.dumps(tables))
    spark.stop()


def _rows(flights: DataFrame, *keys: str) -> list[list[Any]]:
    totals = flights.groupBy(*keys).agg(F.count("*"), F.sum("delay"), F.avg("delay")).collect()
    return [[list(row[: len(keys)]), *row[len(keys) :]] for row in totals]


if __name__ == "__main__":
    _main(**json.loads(sys.argv[1]))
