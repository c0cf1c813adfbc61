"""Lookups, as the compiler plans them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay import hidden_columns
from sparkrelay.errors import TopologyException
from sparkrelay.operators.lookup.run import LookupRunner
from sparkrelay.runtime.compile.timed_sources import interval_ms
from sparkrelay.topology.schemas import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from sparkrelay.operators.table.run import TableRunner
    from sparkrelay.topology import Lookup


def lookup_spec(lookup: Lookup, output: StructType, *, state: TableRunner, step: Mapping[str, Any]) -> LookupRunner:
    """Return the runner of a lookup.

    Args:
        lookup: the step in the topology.
        output: output columns.
        state: what the step does that keeps the table.
        step: fields of ``StepSpec``.

    Raises:
        TopologyException: rows are delayed for longer than the history.
    """
    history_ms = state.history_ms
    if lookup.grace is not None and history_ms is not None:
        grace_ms = interval_ms(lookup.grace, f"{lookup.call_site}: {lookup.text}, read as a delay")
        if grace_ms > history_ms:
            raise TopologyException(
                f"{lookup.call_site}: {lookup.text}: rows are delayed by {grace_ms} ms, but the table's history is "
                f"{history_ms} ms: the versions of their time are deleted before the lookup. Use a shorter grace=, or "
                "a longer history= of the table"
            )
    return LookupRunner(
        **step,
        store=lookup.store,
        contents=state.contents,
        columns=lookup.columns,
        how=lookup.how,
        all_rows=None if lookup.columns else (lookup.given.names[0], state.layout.keys),
        row=arrow_schema(lookup.given) if lookup.columns else state.layout.row,
        found=lookup.found,
        output=arrow_schema(output),
        is_global=lookup.is_global,
        history_ms=history_ms,
        time=hidden_columns.TIMESTAMP if lookup.watermark is None else hidden_columns.EVENT_TIME,
    )
