"""Tables whose rows stores hold: what ``table`` and ``to_table`` write down, and what is looked into or joined."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkrelay.errors import TopologyException
from sparkrelay.topology.calls.row_steps import make_step
from sparkrelay.topology.columns import column_path, quoted
from sparkrelay.topology.lineage import Lineage
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import AggregationNode, GroupingNode, StepNode, TableJoinNode

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node, Record, StoredTable
    from sparkrelay.topology.structure import Step


def keep_newest(  # noqa: PLR0917 - as they are written
    record: Record,
    node: Node,
    key: tuple[str, ...],
    name: Any,
    logged: Any,
    text: str,
    call_site: CallSite,
    *,
    is_global: bool = False,
    of_topic: bool = False,
    history: Any = None,
) -> AggregationNode:
    """Write down a table that holds the newest row of each key.

    Args:
        record: of the builder.
        node: where rows come from.
        key: names of the columns that hold the message key.
        name: of the store, or None.
        logged: False for a store without changelog.
        text: the step as people read it.
        call_site: the line that wrote it.
        is_global: True for a table that every process has whole.
        of_topic: True for another one that is read from a topic of the user's, as it is.
        history: for how long it also knows the rows before the newest ones, or None.

    Raises:
        TopologyException: an argument is of the wrong kind.
    """
    if history is not None and not (isinstance(history, str) and history.strip()):
        raise TopologyException(
            f'{call_site}: history= of {text} takes an interval such as "1 hour", not {history!r}; without it the '
            "table knows the newest row of each key alone"
        )
    if not isinstance(logged, bool):
        raise TopologyException(f"{call_site}: {text} takes logged=True or logged=False, not {logged!r}")
    if len(key) == 1:
        # As in Kafka Streams, a record without a key belongs to no row.
        step = make_step("where", (f"{quoted(key)} is not null",), call_site)
        node = record.add(StepNode(node, step, call_site))
    grouping = record.add(GroupingNode(node, tuple(map(_quoted, key)), ("table",), text, call_site))
    store = check_name(name, call_site)
    return record.add(
        AggregationNode(
            grouping,
            (),
            store,
            logged,
            text if history is None else f'{text[:-1]}{", " if text[-2] != "(" else ""}history="{history}")',
            call_site,
            newest=True,
            is_global=is_global,
            of_topic=of_topic,
            history=history,
        )
    )


def holds_rows(table: Node) -> bool:
    """Return whether a table holds rows as they came, the newest of each key: every version of one is known."""
    return isinstance(table, AggregationNode) and table.newest and table.ranking is None


def key_of(table: AggregationNode) -> tuple[str, ...]:
    """Return the names of the columns that a table of newest rows is keyed by."""
    paths = [column_path(column) for column in table.parent.keys]
    return tuple(path[0] for path in paths if path is not None)


def stored_table(record: Record, node: Node) -> tuple[StoredTable | None, StepNode | None]:
    """Return the table whose rows are those at ``node``, and the last step behind what is stored already.

    A table of newest rows with steps behind it becomes another one, whose rows go through the steps before they are
    kept: so each version of a row is known behind them too. What a filter does not let through deletes there. Of tables
    of another kind nothing holds what steps make of them: None.

    Args:
        record: of the builder.
        node: what the user's table stands for.
    """
    steps: list[StepNode] = []
    at = node
    while isinstance(at, StepNode) and at.step is not None:
        steps.append(at)
        at = at.parent
    if not isinstance(at, AggregationNode | TableJoinNode):
        return None, at if isinstance(at, StepNode) else None
    if not steps:
        return at, None
    # Behind steps, an answer to a foreign key could not be compared with the row that it is for.
    if not isinstance(at, AggregationNode) or not holds_rows(at) or at.answers is not None:
        return None, steps[0]
    if node not in record.stored:
        record.stored[node] = _behind(record, at, [one.step for one in reversed(steps) if one.step is not None])
    return record.stored[node], None


def _behind(record: Record, table: AggregationNode, steps: list[Step]) -> AggregationNode:
    """Write down the table that holds the rows of another one as they are behind steps.

    Raises:
        TopologyException: a step has lost a column of the key.
    """
    rows: Node = table.parent.parent
    lineage = Lineage.of_repartition(key_of(table))
    for step in steps:
        key = lineage.key()
        text = f"{step.text} of the table" if step.is_filter else step.text
        # Any copy of the key may be what is left of it behind further steps.
        behind = replace(step, table_key=lineage.copies(), text=text)
        rows = record.add(StepNode(rows, behind, step.call_site))
        # A table's key of one column is never null: there is nothing to fill.
        if step.kind != "fillna" or key is None or len(key) > 1:
            lineage = lineage.after(step)
        if lineage.key() is None:
            raise TopologyException(
                f"{step.call_site}: behind {step.text} no column holds the key of the table of {table.call_site} "
                f"unchanged, {', '.join(map(repr, key_of(table)))}, and it is looked into, or joined, by that: keep it"
                + (", and name the columns to fill, subset=[...]" if step.kind == "fillna" else "")
            )
    names = lineage.key()
    assert names is not None, "each step was looked at"
    text = ".".join((table.text, *(step.text for step in steps)))
    # A table that is behind steps itself has words for them.
    words = (*(() if table.name else table.parent.words), *(step.kind for step in steps))
    keys = tuple(map(_quoted, names))
    grouping = record.add(GroupingNode(rows, keys, words, text, table.call_site, of=table.name or table.parent.of))
    return record.add(
        AggregationNode(grouping, (), None, table.logged, text, table.call_site, newest=True, history=table.history)
    )


def _quoted(name: str) -> str:
    return quoted((name,))
