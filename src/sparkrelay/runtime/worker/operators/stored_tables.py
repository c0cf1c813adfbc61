"""The rows of a table, out of what its store or its changelog holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.operators.distinct_values import has_distinct, stored_groups
from sparkrelay.runtime.worker.operators.state import stored_results
from sparkrelay.state import versions
from sparkrelay.state.watermarks import ENDLESS, over

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sparkrelay.runtime.contract.specs import StateSpec

__all__ = ["key_range", "lie_apart", "table_rows"]


def key_range(spec: StateSpec, expired: int) -> tuple[bytes | None, bytes | None]:
    """Return in which range ``[from, to)`` those of the store's keys are that rows are made of; None: no bound.

    Args:
        spec: of the stateful step.
        expired: by when windows have ended that are removed, in milliseconds since 1970.
    """
    if spec.history_ms is not None:
        return versions.VERSIONS
    # Windows that have expired stand there until their turn to be removed comes.
    return (None, None) if spec.watermark is None else (over(expired), ENDLESS)


def lie_apart(spec: StateSpec) -> bool:
    """Return whether what a row is made of stands in several places, so that all of the store is wanted at once."""
    return has_distinct(spec)


def table_rows(spec: StateSpec, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield grouping columns and results of every group.

    Args:
        spec: of the stateful step.
        batches: ``key, value`` of the store, in the order of keys and within :func:`key_range`.

    Raises:
        StoreCorruptedException: a value is none of such a store.
        SerializationException: a key is none, or a result would be too long.
    """
    fields = [field for field in spec.output if not field.name.startswith(hidden_columns.PREFIX)]
    if lie_apart(spec):
        everything = list(batches)
        batches = iter([pa.concat_batches(everything)] if everything else [])
    newest = _Newest()
    for batch in batches:
        groups = stored_groups(spec, batch) if spec.history_ms is None else newest.among(batch)
        keys = key_columns(groups.column("key"), pa.schema(fields[: len(spec.keys)]))
        # The last result is the group's newest timestamp, which is no column of the user's.
        results = stored_results(spec, groups, batch)[:-1]
        yield laid_out([*keys, *results], pa.schema(fields))


class _Newest:
    """Picks the newest row of each key of a table with a history, whose store has it in front of the others."""

    def __init__(self) -> None:
        self._last = b""

    def among(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return ``key, value`` of those in a batch; one that was deleted is none."""
        kept = []
        for key, value in zip(batch.column("key").to_pylist(), batch.column("value").to_pylist(), strict=True):
            first, self._last = versions.key_part(key) != self._last, versions.key_part(key)
            kept.append(first and value != versions.DELETED)
        some = batch.filter(pa.array(kept, pa.bool_()))
        return pa.record_batch([versions.plain_keys(some.column("key")), some.column("value")], ["key", "value"])
