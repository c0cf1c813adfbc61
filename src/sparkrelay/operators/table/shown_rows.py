"""The rows of a store as people look at them: out of its keys and values, without what the pipeline adds for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.operators.aggregate.distinct_values import has_distinct, stored_groups
from sparkrelay.operators.table.run import stored_results
from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.state import versions
from sparkrelay.state.watermarks import ENDLESS, over

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StateSpec

__all__ = ["key_schema", "lie_apart", "row_schema", "shown_rows", "shown_span"]


def row_schema(spec: StateSpec) -> pa.Schema:
    """Return the columns of a store's rows: those that group, then the results."""
    return pa.schema([field for field in spec.output if not field.name.startswith(hidden_columns.PREFIX)])


def key_schema(spec: StateSpec) -> pa.Schema:
    """Return the columns that group."""
    return pa.schema([spec.output.field(name) for name in spec.keys])


def shown_span(spec: StateSpec, expired_ms: int) -> tuple[bytes, bytes | None]:
    """Return the range of a store's keys in which its rows stand.

    Args:
        spec: of the step that keeps it.
        expired_ms: by when windows have ended that do not count any more: they stand there until their turn comes.
    """
    if spec.history_ms is not None:
        return versions.VERSIONS
    return (b"", None) if spec.watermark is None else (over(expired_ms), ENDLESS)


def lie_apart(spec: StateSpec) -> bool:
    """Return whether what a row is made of stands in several places, so that all of the store is wanted at once."""
    return has_distinct(spec) or spec.history_ms is not None


def shown_rows(spec: StateSpec, stored: pa.RecordBatch) -> pa.RecordBatch:
    """Return grouping columns and results of every group, in the order of the store's keys.

    Args:
        spec: of the step that keeps the store.
        stored: ``key, value`` of the store, in the order of keys, with all that is of these groups.

    Raises:
        StoreCorruptedException: a value is none of such a store.
        SerializationException: a key is none, or a result would be too long.
    """
    schema = row_schema(spec)
    groups = stored_groups(spec, stored) if spec.history_ms is None else _newest(stored)
    keys = key_columns(groups.column("key"), key_schema(spec))
    # The last result is the group's newest timestamp, which is no column of the user's.
    return laid_out([*keys, *stored_results(spec, groups, stored)[:-1]], schema)


def _newest(stored: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``key, value`` of the newest row of each key: it stands in front of the others; one deleted is none."""
    kept, last = [], b""
    for key, value in zip(stored.column("key").to_pylist(), stored.column("value").to_pylist(), strict=True):
        first, last = versions.key_part(key) != last, versions.key_part(key)
        kept.append(first and value != versions.DELETED)
    some = stored.filter(pa.array(kept, pa.bool_()))
    return pa.record_batch([versions.plain_keys(some.column("key")), some.column("value")], ["key", "value"])
