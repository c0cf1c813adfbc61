"""Tables that are kept once more, behind a repartition topic: with each version of a row, or by other columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.catalyst.frames import analyzed, frame_of, project, with_children
from sparkrelay.catalyst.jvm import items
from sparkrelay.catalyst.rewriting import Keyed
from sparkrelay.topology.nodes import AggregationNode, TableJoinNode, tables_of
from sparkrelay.topology.reading.repartition import sent_by
from sparkrelay.topology.reading.tables import keep_newest
from sparkrelay.topology.record import with_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology.nodes import StoredTable
    from sparkrelay.topology.reading.calls import Reading
    from sparkrelay.topology.rows import Rows


def kept_by(  # noqa: PLR0917 - what is known of one table
    reader: Reading,
    rows: Rows,
    taken: Rows,
    by: Sequence[int],
    key: Sequence[int],
    text: str,
    words: tuple[str, ...],
    *,
    to_all: bool = False,
) -> AggregationNode:
    """Record that the changes of a table go to a repartition topic; return the table that keeps its rows behind it.

    Args:
        reader: of the plan.
        rows: the table's.
        taken: the same with all columns that are kept.
        by: places of the columns that decide the partition.
        key: places of the columns of the kept table's key.
        text: the step for messages.
        words: of the names of the topic and of the store, without ``by``.
        to_all: whether each partition gets all rows.
    """
    record, call = reader.record, reader.call
    sent = sent_by(record, taken, by, call.call_site, text=text, words=words, changes=True, to_all=to_all)
    word, *others = words
    kept = keep_newest(
        record,
        sent,
        key,
        None,
        all(table.step.logged for table in tables_of(table_of(rows))),
        f"{text} {word}",
        call.call_site,
        words=(word, "by", *others),
        filters=False,
    ).node
    assert isinstance(kept, AggregationNode)
    return kept


def table_of(rows: Rows) -> StoredTable:
    """Return the table whose rows these are, perhaps behind steps."""
    assert isinstance(rows.node, AggregationNode | TableJoinNode), "the rows are a table's"
    return rows.node


def with_key(rows: Rows) -> tuple[Rows, list[int]]:
    """Return rows with all key columns of their table, and the indices of these columns."""
    node = table_of(rows)
    width = len(node.step.keys) if isinstance(node, AggregationNode) else node.width
    copies = rows.copies()
    held = {copy.place: place for place, copy in reversed(copies.items()) if not copy.fields}
    lost = [place for place in range(width) if place not in held]
    if not lost:
        return rows, [held[place] for place in range(width)]
    leaf = rows.leaf.java
    more = [leaf.output().apply(place) for place in lost]
    plan = leaf
    for step, _ in rows.steps:
        if step.kind == "Project":
            shown = {int(one.exprId().id()) for one in items(step.java.output())}
            further = [one for one in more if int(one.exprId().id()) not in shown]
            plan = project([*items(step.java.projectList()), *further], plan)
        else:
            plan = with_children(step.java, [plan])
    taken = with_rows(rows, frame_of(plan, rows.frame.sparkSession))
    numbers = [column.number for column in taken.columns]
    held |= {place: numbers.index(int(one.exprId().id())) for place, one in zip(lost, more, strict=True)}
    return taken, [held[place] for place in range(width)]


def keyed(rows: Rows) -> Keyed:
    """Return the plan of a table's rows, with all columns of its key."""
    taken, key = with_key(rows)
    output = items(analyzed(taken.frame).output())
    return Keyed(analyzed(taken.frame), [output[place] for place in key])
