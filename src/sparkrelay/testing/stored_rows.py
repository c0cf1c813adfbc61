"""The rows of a store, as a test looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkrelay.records.keys import key_columns
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.runtime.worker.operators.codecs import codec_of
from sparkrelay.runtime.worker.operators.distinct_values import stored_groups
from sparkrelay.state.watermarks import ENDLESS, over

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state import TaskStore

__all__ = ["stored_rows"]


def stored_rows(spec: StateSpec, store: TaskStore) -> list[dict[str, Any]]:
    """Return grouping columns and results of every group, in the order of the store's keys."""
    codec = codec_of(spec)
    fields = [field for field in spec.output if not field.name.startswith(hidden_columns.PREFIX)]
    rows: list[dict[str, Any]] = []
    # Windows that have expired stand there until their turn to be removed comes.
    start = None if spec.watermark is None else over(store.header.expired_by(spec.store))
    stop = None if spec.watermark is None else ENDLESS
    for batch in store.scan(spec.store, start=start, stop=stop):
        groups = stored_groups(spec, batch)
        keys = key_columns(groups.column("key"), pa.schema(fields[: len(spec.keys)]))
        # The last result is the group's newest timestamp, which is no column of the user's.
        results = codec.results(groups.column("value"))[:-1]
        rows += laid_out([*keys, *results], pa.schema(fields)).to_pylist()
    return rows
