"""Deduplications: ``Deduplicate``, ``DeduplicateWithinWatermark`` and ``Distinct`` of an analysed plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkrelay.errors import TopologyException
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.topology.reading.emitting import emitting, keyed
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of
from sparkrelay.topology.record import unique, without_kafka_columns
from sparkrelay.topology.refusals import ONE_ROW_EACH

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.catalyst.tree import Plan
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


def deduplicated(record: Record, call: Call, rows: Rows, at: Plan) -> Rows:
    """Write down that the first row of each key goes on; return the rows behind that.

    Raises:
        TopologyException: they are a table's, the watermark is missing, or a column cannot be a key.
    """
    if rows.node.is_table:
        raise TopologyException(f"{call.where}: {call.method}() is for streams: {ONE_ROW_EACH}")
    if at.kind == "Distinct" or call.method == "distinct":
        # Kafka's own columns make each row another one.
        rows = without_kafka_columns(rows)
        numbers = [column.number for column in rows.columns]
    else:
        numbers = [one.number for one in at.by_field["keys"]]
    numbers = [*dict.fromkeys(numbers)]
    within = at.kind == "DeduplicateWithinWatermark"
    names = unique(rows.column(number).name for number in numbers)
    taken = keyed(record, call, rows, numbers)
    time = event_time(taken.rows)
    if within and time is None:
        raise TopologyException(
            f"{call.where}: {call.method}() remembers a row for as long as its duplicates may be late: put "
            'withWatermark("time", "10 minutes") before it, with the column of event times and that delay; behind a '
            "union, an aggregation or a join of streams it is said anew"
        )
    if not within and time is not None and time.number not in numbers:
        time = None
    micros = None if time is None else F.unix_micros(as_timestamp(taken.rows, time))
    watermark = None if time is None else event_time_of(taken.rows, time)
    text = f"{call.method}({', '.join(names if call.logged else (*names, 'logged=False'))})"

    def step(columns: tuple[str, ...], made: StructType) -> Deduplication:
        return Deduplication("", columns, within, made, watermark, call.logged, call.call_site, text)

    return emitting(record, call, taken, step, micros)
