"""The rows of a store, as a test looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.operators.distinct_values import has_distinct, stored_groups
from sparkrelay.runtime.worker.operators.state import stored_results
from sparkrelay.state import versions
from sparkrelay.state.watermarks import ENDLESS, over

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state import TaskStore

__all__ = ["stored_rows"]


def stored_rows(spec: StateSpec, store: TaskStore) -> list[dict[str, Any]]:
    """Return grouping columns and results of every group, in the order of the store's keys."""
    fields = [field for field in spec.output if not field.name.startswith(hidden_columns.PREFIX)]
    rows: list[dict[str, Any]] = []
    # Windows that have expired stand there until their turn to be removed comes.
    start = None if spec.watermark is None else over(store.header.expired_by(spec.store))
    stop = None if spec.watermark is None else ENDLESS
    if spec.history_ms is not None:
        start, stop = versions.VERSIONS
    batches = store.scan(spec.store, start=start, stop=stop)
    if has_distinct(spec):
        # What is of a group does not stand in one place.
        everything = list(batches)
        batches = iter([pa.concat_batches(everything)] if everything else [])
    newest = _Newest()
    for batch in batches:
        groups = stored_groups(spec, batch) if spec.history_ms is None else newest.among(batch)
        keys = key_columns(groups.column("key"), pa.schema(fields[: len(spec.keys)]))
        # The last result is the group's newest timestamp, which is no column of the user's.
        results = stored_results(spec, groups, batch)[:-1]
        rows += laid_out([*keys, *results], pa.schema(fields)).to_pylist()
    return rows


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
