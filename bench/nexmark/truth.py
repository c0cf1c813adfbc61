"""What must come out of a query: Spark SQL over all events at once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from bench.nexmark.compare import Answer
from bench.nexmark.events import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from bench.nexmark.events import Event
    from bench.nexmark.query import Query

__all__ = ["make_views", "truth"]

_TYPES: Final = {"long": pa.int64(), "string": pa.string()}
_TIMES: Final = ("dateTime", "expires", "arrived")
#: Rows become JSON as SparkRelay writes them.
_JSON: Final = (
    "map('timeZone', 'UTC', 'timestampFormat', 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSSXXX', 'ignoreNullFields', 'false')"
)


def make_views(spark: SparkSession, events: Sequence[Event]) -> None:
    """Make the views ``person``, ``auction`` and ``bid``."""
    for kind, schema in SCHEMAS.items():
        fields = [(name, _TYPES[type_]) for name, type_ in (field.split() for field in schema.split(", "))]
        if kind == "bid":
            fields.append(("arrived", pa.int64()))
        of_kind = [event for event in events if event["type"] == kind]
        rows = pa.table({name: pa.array([event.get(name) for event in of_kind], type_) for name, type_ in fields})
        columns = [f"timestamp_millis({name}) AS {name}" if name in _TIMES else name for name, _ in fields]
        spark.createDataFrame(rows).selectExpr(*columns).cache().createOrReplaceTempView(kind)


def truth(spark: SparkSession, query: Query) -> Answer:
    """Return the rows of a query's SQL."""
    frame = spark.sql(query.truth)
    inexact = {name for name, type_ in frame.dtypes if type_ in {"double", "float"} or type_.startswith("decimal")}
    rows = frame.selectExpr(f"to_json(struct(*), {_JSON}) AS row").toArrow().column("row").to_pylist()
    return Answer(tuple(frame.columns), frozenset(inexact), [json.loads(row) for row in rows])
