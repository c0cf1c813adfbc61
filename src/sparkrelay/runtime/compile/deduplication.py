"""Streams without duplicates on DataFrames: what a leg gives to the step that drops them, and what comes out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import named
from sparkrelay.runtime.compile.column_names import columns_there_are
from sparkrelay.runtime.compile.grouping import brief, key_text, spread
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.compile.schemas import arrow_schema, check_groupable, hidden_fields
from sparkrelay.runtime.compile.watermarks import event_time
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.emitting_specs import DeduplicationSpec
from sparkrelay.topology.columns import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Deduplication, Leg

__all__ = ["deduplicated_columns", "deduplication_input", "deduplication_output", "deduplication_spec"]


def deduplicated_columns(first: Deduplication, columns: StructType) -> StructType:
    """Return the columns of a stream, which are the same behind the step.

    Raises:
        TopologyException: one that makes the key is missing, or can be no key; or two have one name.
    """
    where = f"{first.call_site}: {first.text}"
    for name in first.columns:
        if name not in columns.names:
            there_are = columns_there_are(columns.names, name)
            raise TopologyException(f"{where}: the stream has no column {name!r}; it has {there_are}")
    twice = [name for name in columns.names if columns.names.count(name) > 1]
    if twice:
        raise TopologyException(f"{where}: two columns of the stream have the name {twice[0]!r}; use alias() before it")
    check_groupable(StructType([columns[name] for name in first.columns]), where)
    return columns


def deduplication_input(
    first: Deduplication, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]
) -> DataFrame:
    """Return the rows that the step takes in: keys, columns that are read behind it, hidden columns, and times."""
    hidden = [name for name in hidden if name not in {hidden_columns.PARTITION_TIME, hidden_columns.TOMBSTONE}]
    kept = [name for name in rows.columns if name in read or name in first.columns]
    times = []
    if first.watermark is not None:
        times.append(F.unix_micros(event_time(first, rows)).alias(hidden_columns.EVENT_MICROS))
    return checked(str(first.call_site), lambda: rows.select(*named((*kept, *hidden)), *times))


def deduplication_output(columns: StructType, read: frozenset[str]) -> StructType:
    """Return the columns that leave the step: those that anything reads, and hidden ones."""
    return StructType([*(field for field in columns if field.name in read), *hidden_fields(EMITTED)])


def deduplication_spec(
    leg: Leg,
    first: Deduplication,
    taken: DataFrame,
    output: StructType,
    computed: Mapping[str, str],
    *,
    legs: Sequence[Leg],
    fields: Mapping[str, Any],
) -> DeduplicationSpec:
    """Return the step that drops a leg's duplicates.

    Args:
        leg: the leg.
        first: its stateful step.
        taken: the rows that it takes in.
        output: those that leave it.
        computed: what the columns in front of it are computed from.
        legs: of the topology.
        fields: what every step knows that goes by event times (``watermarks.timed_fields``).
    """
    return DeduplicationSpec(
        **fields,
        contents=_contents(first, taken, computed, spread(leg, legs)),
        output=arrow_schema(output),
        keys=first.columns,
        input=arrow_schema(taken.schema),
        within=first.within,
    )


def _contents(first: Deduplication, taken: DataFrame, computed: Mapping[str, str], by: str) -> str:
    """Say what the store holds: a pipeline that says something else of it is refused."""
    until = "for ever"
    if first.watermark is not None:
        path = parse_path(first.watermark[0])
        time = first.watermark[0] if path is None else computed.get(path[0], first.watermark[0])
        until = f"{'within the watermark of' if first.within else 'until the watermark has passed'} {time}"
    keys = ", ".join(key_text(taken.schema[name], computed) for name in first.columns)
    without = "" if first.logged else ", without changelog"
    return brief(f"first rows by {keys} {until}{without}{by}")
