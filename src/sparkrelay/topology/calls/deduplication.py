"""Streams without duplicates: what ``KStream.dropDuplicates`` and its like write down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.errors import TopologyException
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.topology.columns import parse_path
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import EmittingNode, watermark_before

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node, Record

__all__ = ["deduplicate", "subset_of"]


def subset_of(method: str, subset: Any, call_site: CallSite) -> tuple[str, ...]:
    """Return the names of the columns that are equal in rows of which only the first goes on.

    Raises:
        TopologyException: it is no list of names.
    """
    if subset is None or (isinstance(subset, list | tuple) and not subset):
        raise TopologyException(
            f'{call_site}: name the columns: {method}(["id"]); of all of them together every row would be remembered '
            "whole"
        )
    if isinstance(subset, str):
        raise TopologyException(f"{call_site}: {method}() takes a list of names: {method}([{subset!r}])")
    if not (isinstance(subset, list | tuple) and all(isinstance(name, str) and name.strip() for name in subset)):
        raise TopologyException(f'{call_site}: {method}() takes a list of names, such as ["id"], not {subset!r}')
    if len({name.lower() for name in subset}) < len(subset):
        raise TopologyException(
            f"{call_site}: {method}({list(subset)}) names a column twice; of two whose names differ in case alone, "
            "rename one first"
        )
    return tuple(subset)


def deduplicate(  # noqa: PLR0917 - as they are written
    record: Record,
    node: Node,
    columns: tuple[str, ...],
    located: tuple[str, ...],
    method: str,
    name: Any,
    logged: Any,
    call_site: CallSite,
) -> EmittingNode:
    """Write down that only the first row of each key goes on.

    Args:
        record: of the builder.
        node: where rows come from, spread by some of the columns.
        columns: names of those that make the key.
        located: those of them that the rows' message key is made of.
        method: as the user calls it.
        name: of the store, or None.
        logged: False for a store without changelog.
        call_site: the line that wrote it.

    Raises:
        TopologyException: an argument is of the wrong kind, or nothing says when keys may be forgotten that are to be.
    """
    if not isinstance(logged, bool):
        raise TopologyException(f"{call_site}: {method}() takes logged=True or logged=False, not {logged!r}")
    within = method == "dropDuplicatesWithinWatermark"
    watermark = watermark_before(node)
    if within and watermark is None:
        raise TopologyException(
            f"{call_site}: {method}() remembers a row for as long as its duplicates may be late: put "
            'withWatermark("time", "10 minutes") before it, with the column of event times and that delay; behind a '
            "union, an aggregation or a join of streams it is said anew"
        )
    if not within and watermark is not None:
        time = parse_path(watermark[0])
        if time is None or len(time) > 1 or time[0].lower() not in {column.lower() for column in columns}:
            watermark = None
    text = f"{method}({', '.join(columns if logged else (*columns, 'logged=False'))})"
    step = Deduplication("", columns, within, watermark, logged, call_site, text)
    return record.add(EmittingNode(node, step, check_name(name, call_site), located))
