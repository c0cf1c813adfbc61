"""Streams whose rows wait, on DataFrames: what a leg gives to the step that keeps them, and what comes out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.carried_columns import EMITTED
from sparkrelay.runtime.compile.catalyst import named
from sparkrelay.runtime.compile.grouping import brief, spread
from sparkrelay.runtime.compile.row_steps import checked
from sparkrelay.runtime.compile.schemas import arrow_schema, check_packable, hidden_fields, without_kafka
from sparkrelay.runtime.compile.stream_joins import nullable
from sparkrelay.runtime.compile.watermarks import event_time
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.emitting_specs import DelaySpec
from sparkrelay.topology import RECORD_TIME
from sparkrelay.topology.columns import parse_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from sparkrelay.topology import Delay, Leg

__all__ = ["delay_input", "delay_spec", "delayed_columns"]


def delayed_columns(delay: Delay, columns: StructType) -> StructType:
    """Return the columns of a stream, which are the same behind the step, but for Kafka's own.

    Raises:
        TopologyException: two have one name.
    """
    columns = without_kafka(columns)
    twice = [name for name in columns.names if columns.names.count(name) > 1]
    if twice:
        raise TopologyException(
            f"{delay.call_site}: {delay.text}: two columns of the stream have the name {twice[0]!r}; use alias() "
            "before it"
        )
    return columns


def delay_input(delay: Delay, rows: DataFrame, read: frozenset[str], hidden: Iterable[str]) -> DataFrame:
    """Return the rows that the step takes in: columns that are read behind it, hidden columns, and times.

    A row without an event time has its record's timestamp.
    """
    hidden = [name for name in hidden if name != hidden_columns.PARTITION_TIME]
    kept = [name for name in rows.columns if name in read]
    time = F.coalesce(event_time(delay, rows), F.timestamp_millis(hidden_columns.TIMESTAMP))
    micros = F.unix_micros(time).alias(hidden_columns.EVENT_MICROS)
    return checked(str(delay.call_site), lambda: rows.select(*named((*kept, *hidden)), micros))


def delay_spec(  # noqa: PLR0917 - what is known of one step
    leg: Leg,
    delay: Delay,
    taken: DataFrame,
    columns: StructType,
    read: frozenset[str],
    computed: Mapping[str, str],
    *,
    legs: Sequence[Leg],
    fields: Mapping[str, Any],
) -> tuple[DelaySpec, StructType]:
    """Return the step that keeps a leg's rows, and the columns that leave it.

    Args:
        leg: the leg.
        delay: its stateful step.
        taken: the rows that it takes in.
        columns: every column behind it.
        read: those that anything reads.
        computed: what the columns in front of it are computed from.
        legs: of the topology.
        fields: what every step knows that goes by event times (``watermarks.timed_fields``).

    Raises:
        TopologyException: a column cannot be kept.
    """
    where = f"{delay.call_site}: {delay.text}"
    row = nullable(field for field in columns if field.name in read)
    check_packable(row, where, "wait in a store")
    output = StructType([*row, *hidden_fields(EMITTED)])
    name = delay.watermark[0]
    path = parse_path(name)
    time = "their timestamps" if name == RECORD_TIME else name if path is None else computed.get(path[0], name)
    spec = DelaySpec(
        **fields,
        contents=brief(f"waiting rows of {row.simpleString()} by {time}{spread(leg, legs)}"),
        output=arrow_schema(output),
        input=arrow_schema(taken.schema),
        row=arrow_schema(row),
    )
    return spec, output
