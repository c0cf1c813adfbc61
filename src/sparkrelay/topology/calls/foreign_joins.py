"""Joins of tables by a foreign key: what ``KTable.join(KTable)`` writes down where the right one's key is a column.

The left table's changes go to the right one's tasks by the foreign key, and are kept there beside the rows that they
name; answers come back by the left table's key, and are kept if they are of the row as it is by then (KIP-213)::

    left table -> topic by foreign key -> its rows by foreign key, with the right table -> topic by key -> joined rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.topology.columns import quoted
from sparkrelay.topology.nodes import AggregationNode, GroupingNode, RepartitionNode, TableJoinNode, tables_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node, Record, StoredTable


def join_by_foreign_key(  # noqa: PLR0917 - as they are needed
    record: Record,
    tables: Sequence[StoredTable],
    of: tuple[Node, Node],
    keys: Sequence[tuple[str, ...]],
    how: str,
    call_site: CallSite,
) -> AggregationNode:
    """Write down a join by a foreign key; return the table of what is joined, which is keyed as the left one.

    Args:
        record: of the builder.
        tables: the left and the right one, as they are stored.
        of: what the user wrote for them.
        keys: of both; the left table has columns of the names of the right one's.
        how: ``inner``, ``left``, ``right`` or ``full``.
        call_site: the line that wrote it.

    Raises:
        TopologyException: rows of the right table alone are wanted, which have no key of the left one's.
    """
    (left, right), (own, foreign) = tables, keys
    names = ", ".join(map(repr, foreign))
    if how not in {"inner", "left"}:
        raise TopologyException(
            f'{call_site}: join() by a foreign key, {names}, takes how="inner" or how="left", not {how!r}: a row of '
            f"the right table alone has no {', '.join(map(repr, own))}, by which the joined rows are keyed; begin with "
            "the table whose rows all stay"
        )
    text = f"join({', '.join(foreign)}, {how})"
    sent = record.add(
        RepartitionNode(left, foreign, None, foreign, None, explicit=False, call_site=call_site, changes=True)
    )
    both = (*foreign, *(name for name in own if name not in foreign))
    words = ("by", *foreign)
    logged = all(table.logged for table in tables_of(right))
    referencing = _kept(record, sent, both, words, f"{text} by foreign key", call_site, logged=logged)
    join = record.add(TableJoinNode(referencing, right, of, foreign, how, text, call_site, left))
    answers = record.add(RepartitionNode(join, own, None, own, None, explicit=False, call_site=call_site, changes=True))
    logged = all(table.logged for table in tables_of(left))
    return _kept(record, answers, own, (), text, call_site, logged=logged, join=join)


def _kept(  # noqa: PLR0917 - as they are needed
    record: Record,
    node: RepartitionNode,
    key: tuple[str, ...],
    words: tuple[str, ...],
    text: str,
    call_site: CallSite,
    *,
    logged: bool,
    join: TableJoinNode | None = None,
) -> AggregationNode:
    """Write down the table of the newest rows of a repartition topic."""
    grouping = record.add(GroupingNode(node, tuple(quoted((name,)) for name in key), words, text, call_site))
    return record.add(AggregationNode(grouping, (), None, logged, text, call_site, newest=True, answers=join))
