"""How the rows of a group come into one task: they are there already, or go through a repartition topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.errors import TopologyException
from sparkrelay.topology.calls.row_steps import check_expression, make_step
from sparkrelay.topology.columns import (
    argument_text,
    column_path,
    is_column,
    is_session_window,
    output_name,
    parse_path,
    quoted,
)
from sparkrelay.topology.lineage import Lineage
from sparkrelay.topology.nodes import RepartitionNode, StepNode, watermark_before

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node, Record


def grouping_columns(method: str, cols: tuple[Any, ...], call_site: CallSite) -> tuple[Any, ...]:
    """Return the columns that rows are grouped by.

    Raises:
        TopologyException: there are none, or one is of the wrong kind.
    """
    if not cols:
        raise TopologyException(
            f"{call_site}: {method}() names no columns; one group over everything has no task of its own"
        )
    for col in cols:
        if not (is_column(col) or (isinstance(col, str) and col.strip() and col.strip() != "*")):
            hint = "; use partitions=" if isinstance(col, int) and method == "repartition" else ""
            raise TopologyException(f"{call_site}: {method}() takes names and Columns, not {col!r}{hint}")
        check_expression(method, col, call_site)
    return cols


def key_words(keys: tuple[Any, ...]) -> tuple[str, ...]:
    """Return what grouping columns add to an automatic name."""
    return tuple(output_name(key) or argument_text(key) for key in keys)


def spread_by(  # noqa: PLR0917 - as they are needed
    record: Record,
    node: Node,
    lineage: Lineage,
    keys: tuple[Any, ...],
    words: tuple[str, ...],
    name: str | None,
    call_site: CallSite,
) -> tuple[Node, tuple[Any, ...]]:
    """Return where rows come from once those of one key are in one task, and the keys there.

    Args:
        record: of the builder.
        node: where the rows come from.
        lineage: what is known of their partitions.
        keys: names and Columns.
        words: what an automatic name of a repartition topic is made of.
        name: what the user called it, or None.
        call_site: the line that wrote it.

    Raises:
        TopologyException: a key goes through a repartition topic and has no name there.
    """
    # Behind a stateful step nothing is located: a leg has one of them, the next one needs a topic between.
    located = lineage.locate(keys)
    if located is None:
        return repartition_for(record, node, keys, words, name, call_site)
    for path in located.not_null:
        node = _not_null(record, node, path, call_site)
    return node, keys


def repartition_for(  # noqa: PLR0917 - as they are needed
    record: Record,
    node: Node,
    keys: tuple[Any, ...],
    words: tuple[str, ...],
    name: str | None,
    call_site: CallSite,
    *,
    changes: bool = False,
) -> tuple[Node, tuple[Any, ...]]:
    """Add the repartition topic that a grouping needs; return what follows it and the grouping keys there.

    Any part of the grouping key will do for the topic's key, because equal groups have equal parts. So plain columns
    are taken if there are some (a window would only spread one user's rows over the tasks), and expressions are
    computed here only if there is nothing else. But not sessions: which one a row is in only the rows beside it say.

    Args:
        record: of the builder.
        node: where the rows come from.
        keys: names and Columns.
        words: what an automatic name is made of.
        name: what the user called the topic, or None.
        call_site: the line that wrote it.
        changes: True for the rows of a table, each as it was and as it is.

    Raises:
        TopologyException: a key has no name there.
    """
    plain = [path[0] for key in keys if (path := column_path(key)) is not None and len(path) == 1]
    partitions = None
    if not plain:
        if watermark_before(node) and all(_is_window(key) for key in keys):
            # A task whose clock sees only windows of its own would never know that they are over.
            partitions = 1
        if all(map(is_session_window, keys)):
            plain = [_time_column(node, call_site)]
        else:
            node, keys, plain = _computed_keys(record, node, keys, call_site)
    plain = list(dict.fromkeys(plain))
    if len(plain) == 1:
        node = _not_null(record, node, (plain[0],), call_site)
    repartition = RepartitionNode(node, tuple(plain), name, words, partitions, False, call_site, changes)
    return record.add(repartition), keys


def table_lineage(node: Node, located: tuple[str, ...] | None, keys: tuple[Any, ...]) -> Lineage:
    """Return the lineage of a table of groups: its key, if that is what decides in which task a group is; else none.

    Args:
        node: in front of the grouping.
        located: the columns that decide it where there is no repartition topic; None where there is one, or others do.
        keys: the grouping columns, as the user wrote them.
    """
    columns = node.columns if isinstance(node, RepartitionNode) else located
    plain = tuple(path[0] if (path := column_path(key)) is not None and len(path) == 1 else None for key in keys)
    names = tuple(output_name(key) for key in keys)
    return Lineage.of_repartition(columns) if columns is not None and plain == columns == names else Lineage()


def _computed_keys(
    record: Record, node: Node, keys: tuple[Any, ...], call_site: CallSite
) -> tuple[Node, tuple[Any, ...], list[str]]:
    """Add grouping expressions as columns, under the names that Spark would give them."""
    names: dict[int, str] = {}
    nested = [index for index, key in enumerate(keys) if column_path(key) is not None]
    for index in nested or [index for index, key in enumerate(keys) if not is_session_window(key)]:
        name = output_name(keys[index])
        if name is None:
            raise TopologyException(
                f"{call_site}: groupBy() by {argument_text(keys[index])} goes through a repartition topic and "
                'needs a name there: add .alias("name")'
            )
        names[index] = name
    made = [keys[index].alias(name) if is_column(keys[index]) else keys[index] for index, name in names.items()]
    step = make_step("select", ("*", *made), call_site)
    after = tuple(quoted((names[index],)) if index in names else key for index, key in enumerate(keys))
    return record.add(StepNode(node, step, call_site)), after, list(names.values())


def _time_column(node: Node, call_site: CallSite) -> str:
    """Return the column of event times: something to send all rows to the one task of sessions of everything by."""
    watermark = watermark_before(node)
    path = None if watermark is None else parse_path(watermark[0])
    if path is None or len(path) > 1:
        raise TopologyException(
            f'{call_site}: groupBy() by sessions alone needs withWatermark("time", "10 minutes") before it, with a '
            f"column of the stream, not {None if watermark is None else watermark[0]!r}"
        )
    return path[0]


def _is_window(key: Any) -> bool:
    """Return whether a grouping column is ``F.window(...)`` or ``F.session_window(...)``."""
    return is_column(key) and argument_text(key).lower().startswith(("window(", "session_window("))


def _not_null(record: Record, node: Node, path: tuple[str, ...], call_site: CallSite) -> Node:
    step = make_step("where", (f"{quoted(path)} is not null",), call_site)
    return record.add(StepNode(node, step, call_site))
