"""Tables whose rows stores hold as they came: ``table``, ``to_table``, and what is looked into or joined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from sparkrelay.catalyst.frames import analyzed
from sparkrelay.catalyst.jvm import items, seq
from sparkrelay.errors import TopologyException
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import AggregationNode, BehindNode, StreamNode, TableJoinNode
from sparkrelay.topology.record import as_column, begin, filtered, over, spark_errors, unique, with_rows
from sparkrelay.topology.schemas import check_groupable, check_packable, without_kafka, without_metadata
from sparkrelay.topology.spread import Spread
from sparkrelay.topology.step_words import step_words
from sparkrelay.topology.structure import Aggregation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import StoredTable
    from sparkrelay.topology.record import Record
    from sparkrelay.topology.rows import Rows


def key_places(rows: Rows) -> tuple[int, ...] | None:
    """Return the places of the columns that hold the message key; None if they are not all there."""
    return rows.spread.key(column.name for column in rows.columns)


def keep_newest(  # noqa: PLR0917 - as they are written
    record: Record,
    rows: Rows,
    key: Sequence[int],
    name: Any,
    logged: Any,
    text: str,
    call_site: CallSite,
    *,
    is_global: bool = False,
    of_topic: bool = False,
    history: Any = None,
    words: tuple[str, ...] = ("table",),
    of: str | None = None,
    answers: TableJoinNode | None = None,
    filters: bool = True,
) -> Rows:
    """Write down a table that holds the newest row of each key; return its rows.

    Args:
        record: of the builder.
        rows: that come to it.
        key: places of the columns that hold the message key.
        name: of the store, or None.
        logged: False for a store without changelog.
        text: the step as people read it.
        call_site: the line that wrote it.
        is_global: True for a table that every process has whole.
        of_topic: True for another one that is read from a topic of the user's, as it is.
        history: for how long it also knows the rows before the newest ones, or None.
        words: what an automatic name of the store ends with.
        of: what it begins with, where that is not the stream's name.
        answers: of a table of rows that are joined by a foreign key: the join, whose answers come in.
        filters: False where rows with a null key are not there, or belong to a row.

    Raises:
        TopologyException: an argument is of the wrong kind, or a column cannot be stored.
    """
    if history is not None and not (isinstance(history, str) and history.strip()):
        raise TopologyException(
            f'{call_site}: history= of {text} takes an interval such as "1 hour", not {history!r}; without it the '
            "table knows the newest row of each key alone"
        )
    if not isinstance(logged, bool):
        raise TopologyException(f"{call_site}: {text} takes logged=True or logged=False, not {logged!r}")
    store = check_name(name, call_site)
    if filters and len(key) == 1:
        # As in Kafka Streams, a record without a key belongs to no row.
        rows = filtered(rows, rows.columns[key[0]].number)
    shown = without_kafka(rows.schema)
    places = [*key, *(place for place, field in enumerate(rows.schema) if field in shown.fields and place not in key)]
    output = items(analyzed(rows.frame).output())
    names = unique(rows.columns[place].name for place in places)
    if names != [rows.columns[place].name for place in places]:
        twice = next(name for name, place in zip(names, places, strict=True) if name != rows.columns[place].name)
        raise TopologyException(
            f"{call_site}: two columns of the table have the name {twice.rpartition('_')[0]!r}; rename or drop one"
        )
    with spark_errors(call_site):
        given = with_rows(rows, rows.frame.select(*(as_column(output[place]) for place in places)), unsaid=1)
    fields = given.schema.fields
    keys = tuple(names[: len(key)])
    columns = StructType([*fields[: len(key)], *(StructField(one.name, one.dataType) for one in fields[len(key) :])])
    check_groupable(StructType(columns.fields[: len(key)]), str(call_site))
    check_packable(columns, str(call_site), "be kept in a table")
    if history is not None and "history=" not in text:
        text = f'{text[:-1]}{", " if text[-2] != "(" else ""}history="{history}")'
    step = Aggregation(
        store="",
        keys=keys,
        columns=without_metadata(columns),
        logged=logged,
        call_site=call_site,
        text=text,
        newest=True,
        is_global=is_global,
        of_topic=of_topic,
        history=history,
        decided_by=keys,
    )
    node = AggregationNode(
        call_site=call_site,
        text=text,
        given=given,
        grouped=rows,
        step=step,
        name=store,
        words=words,
        of=of,
        answers=answers,
        origins={place: (given, column.number) for place, column in enumerate(given.columns)},
    )
    # A single column of a key has no nulls here, and no name for them: fillna() leaves it as it is.
    never = filters and len(key) == 1
    nullable = (
        output[place].withNullability(not never if index < len(key) else True) for index, place in enumerate(places)
    )
    return begin(
        record.add(node, seq(nullable), Spread.of_key(range(len(key)), keys), streaming=False, timed=False, names=names)
    )


def holds_rows(node: object) -> bool:
    """Return whether a table holds rows as they came, the newest of each key: every version of one is known."""
    return isinstance(node, AggregationNode) and node.step.newest and node.step.ranking is None


def stored_table(record: Record, rows: Rows) -> StoredTable | None:
    """Return the table whose rows these are; None if no store holds them.

    A table of newest rows with steps behind it becomes another one, whose rows go through the steps before they are
    kept: so each version of a row is known behind them too. What a filter does not let through deletes there. Of tables
    of another kind nothing holds what steps make of them.

    Args:
        record: of the builder.
        rows: of a table.

    Raises:
        TopologyException: a step has lost a column of the key.
    """
    node = rows.node
    if not isinstance(node, AggregationNode | TableJoinNode):
        return None
    if rows.only_renames:
        return node
    # Behind steps, an answer to a foreign key could not be compared with the row that it is for.
    if not isinstance(node, AggregationNode) or not holds_rows(node) or node.answers is not None:
        return None
    steps = node, step_words(rows), tuple(rows.schema.names)
    if steps not in record.stored:
        record.stored[steps] = _behind(record, node, rows)
    return record.stored[steps]


def as_stream(record: Record, rows: Rows, text: str, call_site: CallSite, *, final: bool = False) -> Rows:
    """Return the changes of a table as a stream; ``final``: each row once, when no more can come."""
    node = StreamNode(call_site=call_site, text=text, given=rows, final=final)
    names = unique(column.name for column in rows.columns)
    record.add(node, analyzed(rows.frame).output(), Spread({}), names=names)
    return begin(node)


def _behind(record: Record, table: AggregationNode, rows: Rows) -> AggregationNode:
    """Write down the table that holds the rows of another one as they are behind steps."""
    step = table.step
    node = BehindNode(call_site=rows.written[-1].call_site, text="", given=table.given)
    width = len(step.keys)
    # Of a join with itself, the steps know the columns by numbers of their own.
    record.add(node, rows.leaf.java.output(), Spread.of_key(range(width), step.keys), streaming=False)
    behind = over(begin(node), [*reversed(rows.steps)])
    behind = type(rows)(node, behind.frame, rows.written)
    key = key_places(behind)
    if key is None:
        raise TopologyException(
            f"{rows.written[-1].call_site}: behind {rows.written[-1].method}() no column holds the key of the table of "
            f"{table.call_site} unchanged, {', '.join(map(repr, step.keys))}, and it is looked into, or joined, by "
            "that: keep it, and name the columns to fill, subset=[...]"
        )
    text = ".".join((step.text, *(one.method + "(...)" for one in rows.written)))
    # A table that is behind steps itself has words for them.
    words = (*(() if table.name else table.words), *(one.method for one in rows.written))
    made = keep_newest(
        record,
        behind,
        key,
        None,
        step.logged,
        text,
        table.call_site,
        history=step.history,
        words=words,
        of=table.name or table.of,
    )
    assert isinstance(made.node, AggregationNode)
    return made.node
