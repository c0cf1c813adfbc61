"""Streams that look into tables and DataFrames: what ``KStream.join`` with one of them writes down."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkrelay.errors import TopologyException
from sparkrelay.operators.delay.step import RECORD_TIME, Delay
from sparkrelay.topology.calls.row_steps import flat, make_step
from sparkrelay.topology.calls.stored_tables import holds_rows, key_of, stored_table
from sparkrelay.topology.columns import is_column, quoted
from sparkrelay.topology.lineage import Lineage
from sparkrelay.topology.naming import check_name
from sparkrelay.topology.nodes import (
    AggregationNode,
    EmittingNode,
    LookupNode,
    RepartitionNode,
    StepNode,
    TableJoinNode,
    behind_state,
    watermark_before,
    ways_back,
)

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.nodes import Node, Record

_HOW: Final = {"inner": "inner", "left": "left", "leftouter": "left", "left_outer": "left"}


def look_up(  # noqa: PLR0917 - as they are written
    record: Record,
    node: Node,
    lineage: Lineage,
    table: Node,
    on: Any,
    how: Any,
    name: Any,
    grace: Any,
    call_site: CallSite,
) -> tuple[LookupNode, Lineage]:
    """Write down that a stream looks into a table; returns what follows it, and its lineage.

    A table stays where it is. The stream goes through a repartition topic unless its rows are where the table's are;
    those of a global table are everywhere.

    Args:
        record: of the builder.
        node: where the stream's rows come from.
        lineage: of the stream.
        table: what the KTable stands for.
        on: names of the columns that the table is keyed by.
        how: ``inner`` or ``left``, or another of PySpark's words for it.
        name: of the repartition topic, if one is needed; with ``grace`` of the store of the rows that wait, too.
        grace: for how long rows wait, of a table with a history; or None.
        call_site: the line that wrote it.

    Raises:
        TopologyException: an argument is of the wrong kind, or the table cannot be looked into.
    """
    how = _how(how, "a table", call_site)
    of, (found, behind) = table, stored_table(record, table)
    if behind is not None:
        raise TopologyException(
            f"{call_site}: join() looks into the table as it is stored, in front of {behind.text} at "
            f"{behind.call_site}: builder.table() and to_table() take steps before a join, tables of agg() and of "
            "joins do not; put that step behind the join"
        )
    if isinstance(found, TableJoinNode):
        raise TopologyException(
            f"{call_site}: the join of {found.call_site} keeps no table of its own; join with its tables one after the "
            f'other, stream.join(left, ...).join(right, ...), or write it with to("topic"), and look into '
            'builder.table("topic", ...)'
        )
    if found is None or not holds_rows(found):
        raise TopologyException(
            f"{call_site}: the table of {of.call_site} has one version for a whole micro-batch, so what a row finds "
            'would depend on how the stream happens to be cut; write it with to("topic"), and look into '
            'builder.table("topic", ...)'
        )
    table = found
    key = key_of(table)
    columns = shared_columns(on, call_site)
    if sorted(columns) != sorted(key):
        raise TopologyException(
            f"{call_site}: join() with the table of {table.call_site} goes by its key, {_listed(key)}, not by "
            f"{_listed(columns)}; {_way_to_key(table, key, columns)}"
        )
    if grace is not None:
        _check_grace(grace, table, call_site)
    if table.is_global:
        return _look_up_globally(record, node, lineage, table, key, how, name, call_site)
    check_name(name, call_site)
    located = lineage.locate(key)
    text = f"join({', '.join(columns)}, {how})"
    watermark = None if table.history is None else watermark_before(node)
    if grace is not None or located is None or located.columns != key:
        if len(key) == 1 and how == "inner":
            step = make_step("where", (f"{quoted(key)} is not null",), call_site)
            node = record.add(StepNode(node, step, call_site))
        if grace is not None:
            text = f"{text[:-1]}, grace={grace!r})"
            if behind_state(node) or len([*ways_back(node)]) > 1:
                # A leg keeps one store, and a store of rows that wait has one leg.
                node = record.add(RepartitionNode(node, key, None, key, None, explicit=False, call_site=call_site))
            waits = Delay("", key, grace, watermark or (RECORD_TIME, "0 seconds"), call_site, text)
            node = record.add(EmittingNode(node, waits, name, key))
        node = record.add(RepartitionNode(node, key, name, key, None, explicit=False, call_site=call_site))
        lineage = Lineage.of_repartition(key)
    return record.add(LookupNode(node, table, of, key, how, text, call_site, watermark, grace)), lineage


def _check_grace(grace: Any, table: AggregationNode, call_site: CallSite) -> None:
    if not (isinstance(grace, str) and grace.strip()):
        raise TopologyException(
            f'{call_site}: grace= of join() takes an interval such as "5 minutes", not {grace!r}; without it rows do '
            "not wait"
        )
    if table.history is None:
        what = "a global table has none" if table.is_global else 'give it one, table(..., history="1 hour")'
        raise TopologyException(
            f"{call_site}: grace={grace!r} of join() delays rows for late table rows, which needs a table with a "
            f"history: only that knows the version of a row's time (KIP-923): {what}"
        )


def _look_up_globally(  # noqa: PLR0917 - as they are written
    record: Record,
    node: Node,
    lineage: Lineage,
    table: AggregationNode,
    key: tuple[str, ...],
    how: str,
    name: Any,
    call_site: CallSite,
) -> tuple[LookupNode, Lineage]:
    if name is not None:
        raise TopologyException(
            f"{call_site}: name={name!r} of join() names a repartition topic, and none is needed for a global table; "
            "leave it out"
        )
    if behind_state(node):
        raise TopologyException(
            f"{call_site}: join() with a global table behind an aggregation, a join of streams or dropDuplicates() is "
            f'not there yet; write its rows to a topic first, repartition("{key[0]}")'
        )
    text = f"join({', '.join(key)}, {how})"
    return record.add(LookupNode(node, table, table, key, how, text, call_site)), lineage


def is_data_frame(other: object) -> bool:
    """Return whether something is a DataFrame of PySpark's, which is not imported for that."""
    return any(kind.__name__ == "DataFrame" and kind.__module__.startswith("pyspark.") for kind in type(other).__mro__)


def data_frame_join(
    frame: Any, on: Any, how: Any, refresh: Any, call_site: CallSite
) -> tuple[tuple[Any, tuple[str, ...], str], dict[str, str]]:
    """Return the arguments of a join with a DataFrame: those of its step by place, and by name.

    Raises:
        TopologyException: one is of the wrong kind, or another way of joining would make rows of the DataFrame alone.
    """
    if refresh is not None and not (isinstance(refresh, str) and refresh.strip()):
        raise TopologyException(
            f'{call_site}: refresh= of join() takes an interval such as "10 minutes", not {refresh!r}; without it the '
            "DataFrame is evaluated anew for each micro-batch"
        )
    arguments = frame, shared_columns(on, call_site), _how(how, "a DataFrame", call_site)
    return arguments, {} if refresh is None else {"refresh": refresh}


def shared_columns(on: Any, call_site: CallSite) -> tuple[str, ...]:
    """Return the names that ``on=`` of a join gives.

    Raises:
        TopologyException: it is something else.
    """
    columns = flat((on,))
    if columns and all(isinstance(column, str) and column.strip() for column in columns):
        return columns
    hint = ""
    if any(map(is_column, columns)) or callable(on):
        hint = (
            "; only joins of two streams take conditions. Give both sides' columns one name, such as "
            'withColumnRenamed("cc", "c"), and join on="c"; what else must hold follows an inner join as where(...)'
        )
    raise TopologyException(
        f'{call_site}: join() takes on= as the name of a column that both sides have, such as on="user", or a list of '
        f"names, not {on!r}{hint}"
    )


def _how(how: Any, other: str, call_site: CallSite) -> str:
    if isinstance(how, str) and how.lower() in _HOW:
        return _HOW[how.lower()]
    raise TopologyException(
        f'{call_site}: join() with {other} takes how="inner" or how="left", not {how!r}: rows come from the stream '
        "alone"
    )


def _way_to_key(table: AggregationNode, key: tuple[str, ...], columns: tuple[str, ...]) -> str:
    """Return what to do where a stream's columns are not those of a table's key."""
    if len(key) > 1 or len(columns) > 1:
        return f"say on={list(key) if len(key) > 1 else key[0]!r}, and give the stream's columns these names"
    renamed = f'give the stream\'s column the same name, withColumnRenamed("{columns[0]}", "{key[0]}")'
    if table.is_global:
        return renamed
    return f'{renamed}, or make a table that is keyed by it, repartition("{columns[0]}").to_table()'


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(map(repr, columns))
