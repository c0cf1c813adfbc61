"""The steps of ``KStream.dropDuplicates`` and its variants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.errors import TopologyException
from sparkrelay.operators.dedup.step import Deduplication
from sparkrelay.topology.columns import parse_path
from sparkrelay.topology.nodes import watermark_before

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node


def subset_of(method: str, subset: Any, call_site: CallSite) -> tuple[str, ...]:
    """Return the names of the key columns.

    Raises:
        TopologyException: it is not a list of names.
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


def deduplication(node: Node, columns: tuple[str, ...], method: str, logged: Any, call_site: CallSite) -> Deduplication:
    """Return the step that emits only the first row of each key, for rows that come from ``node``.

    Raises:
        TopologyException: an argument has the wrong type, or the watermark is missing.
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
    return Deduplication("", columns, within, watermark, logged, call_site, text)
