"""The last step of a leg whose rows go to no topic: they are shown, or given to a function of the user's."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import StructType

from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.contract.commands import LegReport
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import leg_tasks, release_unused_memory, report_row
from sparkrelay.runtime.worker.shares import share_out
from sparkrelay.runtime.worker.state import next_in_changelog, state_before

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sparkrelay.runtime.contract.specs import ActionSpec

__all__ = ["act_leg"]

#: What a deleted row of a table has in front of its cells.
_DELETED: Final = "(deleted)"


def act_leg(spec: ActionSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do with the rows of each task what the leg is for; yield one report a task."""
    shares = share_out(leg_tasks(spec), batches)
    release_unused_memory()
    connections.close_unused()
    reports = []
    for share in shares:
        for task in share.tasks:
            rows = share.rows_of(task)
            shown = _give(spec, rows) if spec.function is not None else _shown(spec, rows)
            state = state_before(spec, task) if spec.behind_state else None
            reports.append(
                LegReport(
                    spec.leg,
                    task.task,
                    task.batch,
                    rows_in=share.rows_in(task),
                    state=state,
                    next_sequences=next_in_changelog(task, spec.changelog, state),
                    shown=shown,
                )
            )
    yield report_row(reports)


def _give(spec: ActionSpec, batches: Sequence[pa.RecordBatch]) -> tuple[()]:
    assert spec.function is not None, "the leg has a function"
    for batch in batches:
        rows = batch.filter(pc.invert(_deleted(batch))).select(spec.columns.names)
        for row in ArrowTableToRowsConversion.convert(pa.Table.from_batches([rows]), _schema(spec.schema)):
            spec.function(row)
    return ()


@functools.lru_cache(maxsize=16)
def _schema(text: str) -> StructType:
    return StructType.fromJson(json.loads(text))


def _shown(spec: ActionSpec, batches: Sequence[pa.RecordBatch]) -> tuple[tuple[str | None, ...], ...]:
    shown: list[tuple[str | None, ...]] = []
    for batch in batches:
        some = batch.slice(0, spec.rows - len(shown))
        cells = [[_cut(cell, spec.width) for cell in some.column(name).to_pylist()] for name in spec.columns.names]
        deleted = [_DELETED if gone else "" for gone in _deleted(some).to_pylist()]
        shown += zip(deleted, *cells, strict=True)
    return tuple(shown)


def _cut(cell: str | None, width: int) -> str | None:
    """Return a cell no longer than ``width``, as Spark's ``show`` has it."""
    if cell is None or len(cell) <= width:
        return cell
    return cell[:width] if width < 4 else f"{cell[: width - 3]}..."


def _deleted(batch: pa.RecordBatch) -> pa.Array:
    if hidden_columns.TOMBSTONE not in batch.schema.names:
        return pa.repeat(pa.scalar(False), batch.num_rows)
    return pc.fill_null(batch.column(hidden_columns.TOMBSTONE), False)
