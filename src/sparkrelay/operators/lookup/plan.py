"""Lookups on DataFrames."""

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


def behind_lookup(lookup: Lookup, rows: DataFrame, table: StructType) -> tuple[StructType, StructType]:
    """Return a lookup's visible output columns, and those of them that come from the table.

    Args:
        lookup: the step.
        rows: its input.
        table: the table's columns, key first.

    Raises:
        TopologyException: a column is missing, differs in type from the table's, or exists on both sides.
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
                f"{field.dataType.simpleString()} in the table, so their encoded keys differ; cast one of them"
            )
    both = [name for name in given.names if name.lower() in {column.lower() for column in columns.names}]
    if both:
        raise TopologyException(
            f"{where}: both sides have a column {both[0]!r}; rename or drop one of them before the join"
        )
    return StructType([*columns, *given]), given


def with_times(lookup: Lookup, rows: DataFrame) -> DataFrame:
    """Return rows with the hidden column of each lookup's time, for tables with a history.

    Raises:
        TopologyException: the watermark's column is missing or not a time.
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
    """Return the runner of a lookup.

    Args:
        lookup: the step in the topology.
        rows: its input.
        given: columns from the table.
        output: output columns.
        held: contents of the table's store in words; and length of its history in ms, or None.
        step: fields of ``StepSpec``.

    Raises:
        TopologyException: rows are delayed for longer than the history.
    """
    contents, history_ms = held
    if lookup.grace is not None and history_ms is not None:
        grace_ms = interval_ms(rows, lookup.grace, f"{lookup.call_site}: {lookup.text}, read as a delay")
        if grace_ms > history_ms:
            raise TopologyException(
                f"{lookup.call_site}: {lookup.text}: rows are delayed by {grace_ms} ms, but the table's history is "
                f"{history_ms} ms: the versions of their time are deleted before the lookup. Use a shorter grace=, or "
                "a longer history= of the table"
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
    """Return a frame for Catalyst that reads the lookup's inputs and has its columns; it never runs."""
    read = named(lookup.columns)
    if lookup.watermark is not None:
        read.append(event_time(lookup, rows))
    # Catalyst can neither fold nor prune this: it must read every key column. It also infers nothing about them, as a
    # row with a null key may pass.
    text = F.concat_ws("", *(column.cast("string") for column in read))
    made = {of: F.get(F.array(null_column(of)), F.length(text)) for of in {field.dataType for field in given}}
    columns = {field.name: made[field.dataType] for field in given}
    rows = rows.where(F.length(text) >= 0)
    return rows.withColumns(columns) if columns else rows


def by_lookup(
    steps: Sequence[Step | Lookup], *, collected: bool
) -> Iterator[tuple[tuple[Step, ...], Lookup | Step | None]]:
    """Yield the steps before each lookup with it, and those after the last one.

    Args:
        steps: the steps of a leg.
        collected: True to treat joins with collected DataFrames as lookups; they are opaque to Catalyst.
    """
    some: list[Step] = []
    for step in steps:
        if isinstance(step, Lookup) or (collected and step.refresh is not None):
            yield tuple(some), step
            some = []
        else:
            some.append(step)
    yield tuple(some), None
