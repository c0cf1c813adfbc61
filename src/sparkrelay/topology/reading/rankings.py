"""The best rows of each key: ``row_number()`` or ``rank()`` over a window, compared with a number, as in PySpark.

Of window functions these are there because little is kept for their answer: as many rows a key as are asked for, and
with ``rank()`` those that are equal to the last of them. The others look at every row there has been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import AtomicType, StringType, StructField, StructType

from sparkrelay import hidden_columns
from sparkrelay.catalyst.frames import alias, analyzed, as_attribute, attributes, frame_of, new_number, project
from sparkrelay.catalyst.jvm import catalyst, catalyst_object, items
from sparkrelay.catalyst.rewriting import all_of
from sparkrelay.catalyst.tree import read_plan
from sparkrelay.catalyst.words import words
from sparkrelay.errors import TopologyException
from sparkrelay.topology.nodes import AggregationNode
from sparkrelay.topology.reading.event_times import as_timestamp, event_time, event_time_of
from sparkrelay.topology.reading.regrouping import WINDOW, regrouped
from sparkrelay.topology.reading.running import running
from sparkrelay.topology.record import as_column, begin, spark_errors, unique, with_rows
from sparkrelay.topology.refusals import RANK_OF_TABLE
from sparkrelay.topology.schemas import check_groupable, check_packable, without_kafka, without_metadata
from sparkrelay.topology.spread import Spread
from sparkrelay.topology.structure import Aggregation, Order, Ranking

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from sparkrelay.catalyst.tree import Expression, Plan
    from sparkrelay.topology.reading.calls import Call, Reading
    from sparkrelay.topology.rows import Rows

#: Rows of a key that may be kept: each of them is read and written when a better one comes.
MOST: Final = 1_000
#: What a condition on a place is called while it is taken apart.
PLACED: Final = "sparkrelay_placed"
_FUNCTIONS: Final = {"RowNumber": "row_number", "Rank": "rank"}
_MIRRORED: Final = {
    "EqualTo": "EqualTo",
    "GreaterThan": "LessThan",
    "GreaterThanOrEqual": "LessThanOrEqual",
}


def ranked(reader: Reading, at: Plan, above: list[tuple[Plan, int]]) -> Rows:
    """Write down a table of the first rows of each key; return its rows, with the columns of the plan's node.

    Args:
        reader: of the plan.
        at: the ``Window``.
        above: the row-wise nodes above it, from the top down: the filter on the place is taken out.

    Raises:
        TopologyException: it is another function of a window, or nothing says how many rows are wanted.
    """
    call = reader.call
    where = call.where
    made, *more = at.by_field["windowExpressions"]
    function = None if more else _function(made)
    if function is None:
        return running(reader, at)
    partition, order = at.by_field.get("partitionSpec", ()), at.by_field.get("orderSpec", ())
    if not partition or not order:
        raise TopologyException(
            f"{where}: {words(made)}: the window needs partitionBy(...) for the key, and orderBy(...) for the order of "
            "its rows"
        )
    named = _name_above(made, above)
    count = _count(reader, made.number, made.name, above)
    rows = reader.rows(at.children[0])
    _check_kafka(call, rows, above)
    ties = function == "rank"
    if ties and rows.node.is_table:
        raise TopologyException(f"{where}: {RANK_OF_TABLE}")
    called = unique(one.name for one in partition)
    rows, _, _, decides = regrouped(reader.record, call, rows, partition, items(at.java.partitionSpec()), called)
    table, known = _table(reader, rows, partition, order, (made.number, named), count, decides, ties=ties)
    return _finished(reader, at, table, known)


def with_place(frame: DataFrame, before: DataFrame) -> DataFrame:
    """Return the rows for which a condition on a place holds, with the place.

    Args:
        frame: with the condition as its last column, ``PLACED``; Spark takes no function over a window in a filter.
        before: without it.
    """
    plan = read_plan(analyzed(frame))
    window = next((node for node in plan.below() if node.kind == "Window"), None)
    condition = next((one for node in plan.below() if (one := _placed(node)) is not None), None)
    if window is None or condition is None:
        raise ValueError("a condition with a function over a window compares it with a number: row_number() <= 10")
    made = window.by_field["windowExpressions"][0]
    kept = catalyst("plans.logical.Filter", condition, window.java)
    output = items(window.java.output())
    place = next(one for one in output if int(one.exprId().id()) == made.number)
    shown = items(analyzed(before).output())
    name = _function(made) or "place"
    return frame_of(project([*shown, alias(place, name, new_number())], kept), frame.sparkSession)


def _placed(node: Plan) -> Any:
    """Return the condition that a node makes a column of, in the JVM; None for another node."""
    for place, one in enumerate(node.by_field.get("projectList", ())):
        if one.kind == "Alias" and one.name == PLACED:
            return node.java.projectList().apply(place).child()
    return None


def _check_kafka(call: Call, rows: Rows, above: list[tuple[Plan, int]]) -> None:
    """Refuse what is made of Kafka's own columns behind the table, which does not keep them."""
    shown = without_kafka(rows.schema).fields
    kafka = {column.number for column in rows.columns if column.field not in shown}
    for node, _ in above:
        for one in node.expressions:
            if not one.is_attribute and not kafka.isdisjoint(one.references()):
                raise TopologyException(
                    f"{call.where}: {words(one)}: the table of the best rows does not keep Kafka's own columns; make a "
                    'column of it before, withColumn("at", F.col("kafka.timestamp"))'
                )


def _name_above(made: Expression, above: list[tuple[Plan, int]]) -> str:
    """Return what the place is called: as the first that gives it another name does."""
    for node, _ in reversed(above):
        for one in node.expressions:
            if one.kind == "Alias" and one.children[0].is_attribute and one.children[0].number == made.number:
                return one.name
    return made.name


def _function(made: Expression) -> str | None:
    if made.kind != "Alias" or made.children[0].kind != "WindowExpression":
        return None
    return _FUNCTIONS.get(made.children[0].children[0].kind)


def _count(reader: Reading, number: int, name: str, above: list[tuple[Plan, int]]) -> int:
    """Return how many rows of each key are wanted; takes from ``above`` the condition that says so."""
    numbers = {number}
    for at in reversed(range(len(above))):
        node, place = above[at]
        if node.kind == "Filter":
            conditions = [*_conjuncts(node.expressions[0], node.java.condition())]
            compared = [(one, found) for one in conditions if (found := _compared(one[0], numbers)) is not None]
            if not compared:
                continue
            one, (kind, limit) = compared[0]
            count = limit - 1 if kind == "LessThan" else limit
            if (kind == "EqualTo" and limit != 1) or not 1 <= count <= MOST:
                raise TopologyException(
                    f"{reader.call.where}: {words(one[0])}: the first rows of each key are kept, at least 1 and at "
                    f'most {MOST:,}: where("{name} <= 10"); one of them alone is chosen behind the table, '
                    f'where("{name} = 3")'
                )
            conditions.remove(one)
            if conditions:
                rest = all_of(java for _, java in conditions)
                node.java = catalyst("plans.logical.Filter", rest, node.children[0].java)
                above[at] = node, place
            else:
                del above[at]
            return count
        if node.kind not in {"Project", "SubqueryAlias", "PipeOperator", "View"}:
            break
        copies = (one for one in node.expressions if one.kind == "Alias" and one.children[0].is_attribute)
        numbers |= {one.number for one in copies if one.children[0].number in numbers}
    raise _unlimited(reader.call, name)


def _conjuncts(condition: Expression, java: Any) -> Iterator[tuple[Expression, Any]]:
    if condition.kind == "And":
        for child, of in zip(condition.children, items(java.children()), strict=True):
            yield from _conjuncts(child, of)
    else:
        yield condition, java


class Unlimited(TopologyException):
    """Nothing says yet how many rows of each key are wanted."""


def _unlimited(call: Call, name: str) -> Unlimited:
    return Unlimited(
        f'{call.where}: behind {name!r}, a row\'s place among those of its key, stands where("{name} <= 10"), how many '
        "rows of each key are kept"
    )


def _compared(condition: Expression, numbers: set[int]) -> tuple[str, int] | None:
    """Return how a condition compares the place, and with what; None for another condition."""
    if condition.kind not in {"EqualTo", "LessThan", "LessThanOrEqual", *_MIRRORED}:
        return None
    left, right = condition.children
    kind = condition.kind
    if left.kind == "Literal":
        left, right, kind = right, left, _MIRRORED.get(kind, "")
    if not kind or not left.is_attribute or left.number not in numbers or right.kind != "Literal":
        return None
    return kind, int(right.fields["value"])


def _table(  # noqa: PLR0917 - what is known of one step
    reader: Reading,
    rows: Rows,
    partition: tuple[Expression, ...],
    order: tuple[Expression, ...],
    made: tuple[int, str],
    count: int,
    decides: tuple[int, ...] | None,
    *,
    ties: bool,
) -> tuple[AggregationNode, dict[int, str]]:
    call, record = reader.call, reader.record
    where = call.where
    shown = without_kafka(rows.schema)
    numbers = [one.number for one in partition]
    keys = [next(place for place, c in enumerate(rows.columns) if c.number == number) for number in numbers]
    others = [place for place, field in enumerate(rows.schema) if field in shown.fields and place not in keys]
    names = unique([*(rows.columns[place].name for place in (*keys, *others)), made[1]])
    number = names.pop()
    called = dict(zip((*keys, *others), names, strict=True))
    by = [_order(one, rows, called, where) for one in order]
    output = items(analyzed(rows.frame).output())
    place_of = alias(catalyst_object("expressions.Literal").apply(1), number, new_number())
    columns = [as_column(output[place]).alias(name) for place, name in called.items()]
    time = event_time(rows)
    windows = [called[place] for place in keys if WINDOW in (rows.columns[place].field.metadata or {})]
    more = []
    if time is not None and windows:
        more = [F.unix_millis(as_timestamp(rows, time)).alias(hidden_columns.EVENT_TIME)]
    width = len(keys)
    first = columns[:width] if ties else [*columns[:width], as_column(place_of)]
    last = [*columns[width:], *([as_column(place_of)] if ties else [])]
    with spark_errors(call.call_site):
        taken = with_rows(rows, rows.frame.select(*first, *last, *more), unsaid=1)
    fields = taken.schema.fields[: len(first) + len(last)]
    key_names = tuple(field.name for field in fields[: len(first)])
    held = StructType([*fields[: len(first)], *(StructField(f.name, f.dataType) for f in fields[len(first) :])])
    check_groupable(StructType(held.fields[: len(first)]), where)
    check_packable(held, where, "be kept in a table")
    ranking = Ranking(number, tuple(by), count, ties)
    over = f"partition by {', '.join(called[place] for place in keys)} order by {', '.join(map(str, by))}"
    text = f"{'rank' if ties else 'row_number'}() over ({over}) <= {count}"
    step = Aggregation(
        store="",
        keys=key_names,
        columns=without_metadata(held),
        logged=call.logged,
        call_site=call.call_site,
        text=text,
        watermark=None if time is None or not windows else event_time_of(rows, time),
        window=windows[0] if windows else None,
        newest=True,
        ranking=ranking,
        decided_by=None if decides is None else tuple(called[keys[index]] for index in decides),
    )
    node = AggregationNode(
        call_site=call.call_site,
        text=text,
        given=taken,
        grouped=rows,
        step=step,
        name=call.name,
        words=("top", str(count), "by", *(called[place] for place in keys)),
        origins={index: (taken, column.number) for index, column in enumerate(taken.columns[: len(fields)])},
    )
    made_columns = StructType([StructField(f.name, f.dataType, f.nullable, _lasting(f)) for f in held])
    record.add(node, attributes(made_columns), Spread({}), streaming=False, names=held.names)
    numbered = {rows.columns[place].number: name for place, name in called.items()}
    return node, {**numbered, made[0]: number}


def _lasting(field: StructField) -> dict[str, Any]:
    return {name: value for name, value in (field.metadata or {}).items() if name == WINDOW}


def _order(one: Expression, rows: Rows, called: dict[int, str], where: str) -> Order:
    place = next(place for place, c in enumerate(rows.columns) if c.number == one.children[0].number)
    kind = rows.columns[place].field.dataType
    if not isinstance(kind, AtomicType) or (isinstance(kind, StringType) and not kind.isUTF8BinaryCollation()):
        raise TopologyException(
            f"{where}: rows cannot be ordered by {called[place]!r}, which is {kind.simpleString()}; order by a "
            "number, a "
            "time or a string"
        )
    descending = "Descending" in str(one.fields["direction"])
    return Order(called[place], descending, "NullsFirst" in str(one.fields["nullOrdering"]))


def _finished(reader: Reading, at: Plan, node: AggregationNode, known: dict[int, str]) -> Rows:
    """Return the table's rows with the columns of the plan's node, but for Kafka's own."""
    table = begin(node)
    plan = analyzed(table.frame)
    output = plan.output()
    places = {name: place for place, name in enumerate(node.leaf.columns.names)}
    literal = catalyst_object("expressions.Literal")
    columns = []
    for one in items(at.java.output()):
        name = known.get(int(one.exprId().id()))
        # Kafka's own columns are for the steps before.
        of = literal.create(None, one.dataType()) if name is None else output.apply(places[name])
        columns.append(as_attribute(of, one))
    node.finish = 1
    return with_rows(table, frame_of(project(columns, plan), reader.record.spark))
