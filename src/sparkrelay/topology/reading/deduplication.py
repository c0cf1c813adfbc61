"""Deduplications: ``Deduplicate``, ``DeduplicateWithinWatermark`` and ``Distinct`` of an analysed plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import analyzed, frame_of, project
from sparkrelay.catalyst.jvm import items
from sparkrelay.catalyst.tree import Expression
from sparkrelay.errors import TopologyException
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import EmittingNode
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of
from sparkrelay.topology.reading.regrouping import regrouped
from sparkrelay.topology.record import begin, named, spark_errors, unique, with_rows
from sparkrelay.topology.schemas import check_groupable, without_kafka, without_metadata
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
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
        raise TopologyException(
            f"{call.where}: {call.method}() is for streams: a table has one row of each group already; for the first "
            "of "
            "its changes put to_stream() before it"
        )
    if at.kind == "Distinct" or call.method == "distinct":
        # Kafka's own columns make each row another one.
        rows, given, keys = _of_all(rows)
    else:
        given, keys = at.by_field["keys"], items(at.java.keys())
    once = {one.number: place for place, one in reversed([*enumerate(given)])}
    given, keys = (
        tuple(given[place] for place in sorted(once.values())),
        [keys[place] for place in sorted(once.values())],
    )
    within = at.kind == "DeduplicateWithinWatermark"
    names = unique(one.name for one in given)
    numbers = [one.number for one in given]
    with spark_errors(call.call_site):
        check_groupable(StructType([rows.column(number).field for number in numbers]), call.where)
    found = regrouped(record, call, rows, given, keys, names)
    rows = found.rows
    time = event_time(rows)
    if within and time is None:
        raise TopologyException(
            f"{call.where}: {call.method}() remembers a row for as long as its duplicates may be late: put "
            'withWatermark("time", "10 minutes") before it, with the column of event times and that delay; behind a '
            "union, an aggregation or a join of streams it is said anew"
        )
    if not within and time is not None and time.number not in numbers:
        time = None
    places = [next(place for place, one in enumerate(rows.columns) if one.number == number) for number in numbers]
    micros = () if time is None else (F.unix_micros(as_timestamp(rows, time)).alias(hidden_columns.EVENT_MICROS),)
    given_rows = named(rows, *micros)
    called = given_rows.schema.names
    text = f"{call.method}({', '.join(names if call.logged else (*names, 'logged=False'))})"
    by = tuple(called[place] for place in places)
    watermark = None if time is None else event_time_of(rows, time)
    made = without_metadata(StructType(given_rows.schema.fields[: len(rows.columns)]))
    step = Deduplication("", by, within, made, watermark, call.logged, call.call_site, text)
    located = tuple(places) if found.decides is None else tuple(places[index] for index in found.decides)
    node = EmittingNode(
        call_site=call.call_site,
        text=text,
        given=given_rows,
        step=step,
        name=check_name(call.name, call.call_site),
        located=located,
        origins={place: (given_rows, column.number) for place, column in enumerate(given_rows.columns)},
    )
    # Behind a stateful step nothing is located: a leg has one of them, the next one needs a topic between.
    return begin(record.add(node, analyzed(rows.frame).output(), Spread({}), names=called[: len(rows.columns)]))


def _of_all(rows: Rows) -> tuple[Rows, tuple[Expression, ...], list[Any]]:
    """Return rows without Kafka's own columns, and all that are left as expressions, also in the JVM."""
    plan = analyzed(rows.frame)
    shown = without_kafka(rows.schema).fields
    kept = [one for one, field in zip(items(plan.output()), rows.schema, strict=True) if field in shown]
    if len(kept) < len(rows.columns):
        rows = with_rows(rows, frame_of(project(kept, plan), rows.frame.sparkSession))
    fields = ({"exprId": {"id": column.number}, "name": column.name} for column in rows.columns)
    return rows, tuple(Expression("AttributeReference", (), one) for one in fields), kept
