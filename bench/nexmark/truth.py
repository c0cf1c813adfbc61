"""What must come out of a query: Spark SQL over all events at once, in memory or, however many they are, in files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from bench.nexmark.events import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from bench.nexmark.events import Event
    from bench.nexmark.query import Query

__all__ = ["JSON_OPTIONS", "columns_of", "event_table", "keep_truth", "make_views", "views_of_files"]

_TYPES: Final = {"long": pa.int64(), "string": pa.string()}
_TIMES: Final = ("dateTime", "expires", "arrived")
_TIME_FORMAT: Final = "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSXXX"
#: Rows become JSON as SparkRelay writes them.
JSON_OPTIONS: Final = f"map('timeZone', 'UTC', 'timestampFormat', '{_TIME_FORMAT}', 'ignoreNullFields', 'false')"


def make_views(spark: SparkSession, events: Sequence[Event]) -> None:
    """Make the views ``person``, ``auction`` and ``bid``."""
    for kind in SCHEMAS:
        rows = event_table(kind, [event for event in events if event["type"] == kind])
        spark.createDataFrame(rows).selectExpr(*columns_of(kind)).cache().createOrReplaceTempView(kind)


def event_table(kind: str, events: Sequence[Event]) -> pa.Table:
    """Return events of a type as rows, whose times are milliseconds since 1970."""
    fields = [(name, _TYPES[type_]) for name, type_ in _fields(kind)]
    return pa.table({name: pa.array([event.get(name) for event in events], type_) for name, type_ in fields})


def views_of_files(spark: SparkSession, folder: Path) -> None:
    """Make the views of Parquet files, a folder for each type, whose rows are those of :func:`event_table`."""
    for kind in SCHEMAS:
        spark.read.parquet(str(folder / kind)).selectExpr(*columns_of(kind)).createOrReplaceTempView(kind)


def columns_of(kind: str) -> list[str]:
    """Return the columns of a view, as SQL over the rows of :func:`event_table`."""
    return [f"timestamp_millis({name}) AS {name}" if name in _TIMES else name for name, _ in _fields(kind)]


def keep_truth(spark: SparkSession, query: Query, folder: Path) -> tuple[pa.Schema, frozenset[str]]:
    """Keep the rows of a query's SQL as Parquet files, times as text as in JSON, decimals as doubles.

    Args:
        spark: a session with the views.
        query: whose rows.
        folder: a new one, for the files.

    Returns:
        The schema of the rows, and which columns are doubles.
    """
    frame = spark.sql(query.truth)
    inexact = _inexact(frame)
    columns = [
        f"CAST({name} AS double) AS {name}"
        if name in inexact
        else f"date_format({name}, '{_TIME_FORMAT}') AS {name}"
        if type_ == "timestamp"
        else name
        for name, type_ in frame.dtypes
    ]
    frame.selectExpr(*columns).write.parquet(str(folder))
    # Without the remark that Spark's files have in their schemas.
    return pq.read_schema(next(folder.glob("*.parquet"))).remove_metadata(), inexact


def _fields(kind: str) -> list[list[str]]:
    return [field.split() for field in SCHEMAS[kind].split(", ")] + ([["arrived", "long"]] if kind == "bid" else [])


def _inexact(frame: DataFrame) -> frozenset[str]:
    return frozenset(
        name for name, type_ in frame.dtypes if type_ in {"double", "float"} or type_.startswith("decimal")
    )
