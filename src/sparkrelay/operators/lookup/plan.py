"""Lookups on DataFrames: what a stream's rows are behind a join with a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.operators.lookup.run import LookupRunner
from sparkrelay.runtime.compile.catalyst import named, null_column
from sparkrelay.runtime.compile.column_names import columns_there_are
from sparkrelay.runtime.compile.row_steps import visible
from sparkrelay.runtime.compile.schemas import arrow_schema
from sparkrelay.runtime.compile.watermarks import event_time, interval_ms
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.topology import Lookup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Step

__all__ = ["behind_lookup", "by_lookup", "in_words", "lookup_spec", "with_times"]


def behind_lookup(lookup: Lookup, rows: DataFrame, table: StructType) -> tuple[StructType, StructType]:
    """Return the columns behind a lookup, without hidden ones, and those of them that the table gives.

    Args:
        lookup: the step.
        rows: in front of it.
        table: the table's columns, its key's first.

    Raises:
        TopologyException: a column is missing, has another type than the table's, or stands on both sides.
    """
    where = f"{lookup.call_site}: {lookup.text}"
    columns = visible(rows)
    given = StructType(table.fields[len(lookup.columns) :])
    for field in table.fields[: len(lookup.columns)]:
        if field.name not in columns.names:
            raise TopologyException(
                f"{where}: the stream has no column {field.name!r}; it has "
                f"{columns_there_are(columns.names, field.name)}"
            )
        if columns[field.name].dataType != field.dataType:
            raise TopologyException(
                f"{where}: {field.name!r} is {columns[field.name].dataType.simpleString()} in the stream and "
                f"{field.dataType.simpleString()} in the table, so equal values have other bytes; cast one of them"
            )
    both = [name for name in given.names if name.lower() in {column.lower() for column in columns.names}]
    if both:
        raise TopologyException(
            f"{where}: both sides have a column {both[0]!r}; rename or drop one of them before the join"
        )
    return StructType([*columns, *given]), given


def with_times(lookup: Lookup, rows: DataFrame) -> DataFrame:
    """Return rows with the hidden column that says as of when each of them looks into a table with a history.

    Raises:
        TopologyException: the column of the watermark is not there any more, or is no time.
    """
    if lookup.watermark is None:
        return rows
    return rows.withColumn(hidden_columns.EVENT_TIME, F.unix_millis(event_time(lookup, rows)))


def lookup_spec(
    lookup: Lookup,
    rows: DataFrame,
    given: StructType,
    output: StructType,
    *,
    held: tuple[str, int | None],
    step: Mapping[str, Any],
) -> LookupRunner:
    """Return the lookup step.

    Args:
        lookup: what the topology says of it.
        rows: in front of it.
        given: the columns that the table gives.
        output: the rows that leave the step.
        held: what the table's store holds, in words; and how far back its history goes, in milliseconds, or None.
        step: what every step of the leg knows.

    Raises:
        TopologyException: rows wait for longer than the history is.
    """
    contents, history_ms = held
    if lookup.grace is not None and history_ms is not None:
        grace_ms = interval_ms(rows, lookup.grace, f"{lookup.call_site}: {lookup.text}, read as a delay")
        if grace_ms > history_ms:
            raise TopologyException(
                f"{lookup.call_site}: {lookup.text}: rows wait for {grace_ms} ms, and the table's history is "
                f"{history_ms} ms: what was there at their time is gone when they look. Give a shorter grace=, or the "
                "table a longer history="
            )
    return LookupRunner(
        **step,
        store=lookup.store,
        contents=contents,
        columns=lookup.columns,
        how=lookup.how,
        row=arrow_schema(given),
        output=arrow_schema(output),
        is_global=lookup.is_global,
        history_ms=history_ms,
        time=hidden_columns.TIMESTAMP if lookup.watermark is None else hidden_columns.EVENT_TIME,
    )


def in_words(rows: DataFrame, lookup: Lookup, given: StructType) -> DataFrame:
    """Return a frame that reads what the lookup reads and has its columns, for Catalyst to look at; it never runs."""
    read = named(lookup.columns)
    if lookup.watermark is not None:
        read.append(event_time(lookup, rows))
    # Something that Catalyst can neither fold nor leave out: it must read every column of the key. Nor does it learn
    # anything of them: a row whose key is null may go on, so that what is asked of it behind counts.
    text = F.concat_ws("", *(column.cast("string") for column in read))
    made = {of: F.get(F.array(null_column(of)), F.length(text)) for of in {field.dataType for field in given}}
    columns = {field.name: made[field.dataType] for field in given}
    rows = rows.where(F.length(text) >= 0)
    return rows.withColumns(columns) if columns else rows


def by_lookup(
    steps: Sequence[Step | Lookup], *, collected: bool
) -> Iterator[tuple[tuple[Step, ...], Lookup | Step | None]]:
    """Yield the steps in front of each lookup with it, and those behind the last one.

    Args:
        steps: of a leg.
        collected: True to take joins with collected DataFrames for lookups too, which Catalyst does not see through.
    """
    some: list[Step] = []
    for step in steps:
        if isinstance(step, Lookup) or (collected and step.refresh is not None):
            yield tuple(some), step
            some = []
        else:
            some.append(step)
    yield tuple(some), None
