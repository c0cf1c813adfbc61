"""Steps that keep a store and emit the rows that come to them: how they are written down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import analyzed
from sparkrelay.catalyst.jvm import items, seq
from sparkrelay.catalyst.tree import Expression
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import EmittingNode
from sparkrelay.topology.reading.regrouping import regrouped
from sparkrelay.topology.record import attribute, begin, named, spark_errors, unique
from sparkrelay.topology.schemas import check_groupable, without_metadata
from sparkrelay.topology.spread import Spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column

    from sparkrelay.operators.emitting.step import EmittingStep
    from sparkrelay.topology.reading.calls import Call
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


class Keyed(NamedTuple):
    """Rows of which those of one key are in one task.

    Attributes:
        rows: the rows.
        places: places of the key's columns.
        located: places of the columns that make the message key, in its order.
    """

    rows: Rows
    places: tuple[int, ...]
    located: tuple[int, ...]


def keyed(record: Record, call: Call, rows: Rows, numbers: Sequence[int]) -> Keyed:
    """Return rows of which those of one key are in one task, after a repartition topic if necessary.

    Args:
        record: of the builder.
        call: of the user's.
        rows: the rows of a stream.
        numbers: Catalyst's numbers of the columns that make the key.

    Raises:
        TopologyException: a column cannot be a key.
    """
    columns = [rows.column(number) for number in numbers]
    with spark_errors(call.call_site):
        check_groupable(StructType([column.field for column in columns]), call.where)
    fields = ({"exprId": {"id": column.number}, "name": column.name} for column in columns)
    given = [Expression("AttributeReference", (), one) for one in fields]
    keys = [attribute(rows, number) for number in numbers]
    found = regrouped(record, call, rows, given, keys, unique(column.name for column in columns))
    order = [column.number for column in found.rows.columns]
    places = tuple(order.index(number) for number in numbers)
    located = places if found.decides is None else tuple(places[index] for index in found.decides)
    return Keyed(found.rows, places, located)


def emitting(
    record: Record,
    call: Call,
    taken: Keyed,
    make: Callable[[tuple[str, ...], StructType], EmittingStep],
    micros: Column | None = None,
) -> Rows:
    """Write down a step that keeps something for each key and emits rows as they came; return the rows after it.

    Args:
        record: of the builder.
        call: of the user's.
        taken: the rows that come to the step.
        make: makes the step, given the names of the key's columns and the columns of the rows.
        micros: of a step with event times: those of the rows, in µs since 1970.
    """
    rows = taken.rows
    given = named(rows, *(() if micros is None else (micros.alias(hidden_columns.EVENT_MICROS),)))
    made = without_metadata(StructType(given.schema.fields[: len(rows.columns)]))
    return with_step(record, call, taken, given, make(tuple(made.names[place] for place in taken.places), made))


def with_step(  # noqa: PLR0917 - what is known of one step
    record: Record, call: Call, taken: Keyed, given: Rows, step: EmittingStep, more: Sequence[Any] = ()
) -> Rows:
    """Write down a step that emits rows with the columns that came to it; return the rows after it.

    Args:
        record: of the builder.
        call: of the user's.
        taken: the rows that come to the step.
        given: the same rows, with the hidden columns that the step reads.
        step: the step.
        more: the attributes of further columns that it makes.
    """
    output = items(analyzed(taken.rows.frame).output())
    node = EmittingNode(
        call_site=call.call_site,
        text=step.text,
        given=given,
        step=step,
        name=check_name(call.name, call.call_site),
        located=taken.located,
        origins={place: (given, column.number) for place, column in enumerate(given.columns[: len(output)])},
    )
    # Behind a stateful step nothing is located: a leg has one of them, the next one needs a topic between.
    return begin(record.add(node, seq([*output, *more]), Spread({}), names=step.made.names))
