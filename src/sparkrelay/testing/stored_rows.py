"""The rows of a store, as a test looks at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.runtime.worker.operators.stored_tables import key_range, table_rows

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.specs import StateSpec
    from sparkrelay.state import TaskStore

__all__ = ["stored_rows"]


def stored_rows(spec: StateSpec, store: TaskStore) -> list[dict[str, Any]]:
    """Return grouping columns and results of every group, in the order of the store's keys."""
    start, stop = key_range(spec, store.header.expired_by(spec.store))
    batches = store.scan(spec.store, start=start, stop=stop)
    return [row for rows in table_rows(spec, batches) for row in rows.to_pylist()]
