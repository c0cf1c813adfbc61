"""The last step of a leg without a sink topic: rows are shown, passed to a function, or stored for one."""

from __future__ import annotations

import contextlib
import functools
import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.conversion import ArrowTableToRowsConversion
from pyspark.sql.types import StructType

from sparkrelay import hidden_columns
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.contract.commands import BatchCommand, LegReport
from sparkrelay.runtime.worker import connections
from sparkrelay.runtime.worker.context import current_command, leg_tasks, pieces, report_row
from sparkrelay.runtime.worker.rows_file import RowsFile
from sparkrelay.runtime.worker.shares import rows_by_partition, share_out
from sparkrelay.runtime.worker.state_reports import next_in_changelog, state_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.runtime.contract.specs import ActionSpec

#: Most bytes of rows that are written to a file together; the JVM that reads them has little memory.
_PIECE_BYTES: Final = 32 << 20
#: Marks a deleted row of a table.
_DELETED: Final = "(deleted)"


def act_leg(spec: ActionSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Run the leg's action on the rows of each task; yield one report per task."""
    tasks = leg_tasks(spec)
    connections.begin_step()
    if spec.keeps and tasks:
        yield report_row(_keep(spec, tasks, batches))
        return
    reports = []
    for share in share_out(tasks, batches):
        for task in share.tasks:
            rows = share.rows_of(task)
            shown: tuple[tuple[str | None, ...], ...] = ()
            if spec.function is not None:
                _give(spec.function, spec, rows)
            else:
                shown = _shown(spec, rows)
            reports.append(_report(spec, task, share.rows_in(task), shown=shown))
    yield report_row(reports)


def _report(spec: ActionSpec, task: TaskCommand, rows_in: int, **what: Any) -> LegReport:
    state = state_before(spec, task) if spec.behind_state else None
    return LegReport(
        spec.leg,
        task.task,
        task.batch,
        rows_in=rows_in,
        state=state,
        next_sequences=next_in_changelog(task, spec.changelog, state),
        **what,
    )


def _give(function: Callable[[Any], Any], spec: ActionSpec, batches: Sequence[pa.RecordBatch]) -> None:
    for batch in batches:
        rows = _present(spec, batch)
        for row in ArrowTableToRowsConversion.convert(pa.Table.from_batches([rows]), _schema(spec.schema)):
            function(row)


def _keep(spec: ActionSpec, tasks: Sequence[TaskCommand], batches: Iterable[pa.RecordBatch]) -> list[LegReport]:
    """Write rows to files as they come; a batch with fixed records may exceed the memory."""
    directory = current_command(BatchCommand).kept_rows
    assert directory is not None, "a batch of such a leg has a directory for its rows"
    by_partition = {task.task.partition: task for task in tasks}
    rows_in, errors = dict.fromkeys(by_partition, 0), dict[int, StreamsException]()
    reports = []
    with contextlib.ExitStack() as stack:
        files = {
            partition: stack.enter_context(
                RowsFile(directory, spec.leg, task, spec.columns, f"the rows of task {task.task} for foreachBatch()")
            )
            for partition, task in by_partition.items()
        }
        for batch in batches:
            for piece in pieces(batch, _PIECE_BYTES):
                for partition, rows in rows_by_partition([piece]).items():
                    rows_in[partition] += sum(some.num_rows for some in rows)
                    try:
                        for some in rows if partition not in errors else ():
                            files[partition].add(_present(spec, some))
                    except StreamsException as error:
                        errors[partition] = error
        for partition, task in sorted(by_partition.items()):
            kept = None
            try:
                kept = files[partition].finish() if partition not in errors else None
            except StreamsException as error:
                errors[partition] = error
            reports.append(_report(spec, task, rows_in[partition], kept=kept, error=errors.get(partition)))
    return reports


def _present(spec: ActionSpec, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the visible columns of rows that are not deleted."""
    return batch.filter(pc.invert(_deleted(batch))).select(spec.columns.names)


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
    """Return a cell truncated to ``width``, as in Spark's ``show``."""
    if cell is None or len(cell) <= width:
        return cell
    return cell[:width] if width < 4 else f"{cell[: width - 3]}..."


def _deleted(batch: pa.RecordBatch) -> pa.Array:
    if hidden_columns.TOMBSTONE not in batch.schema.names:
        return pa.repeat(pa.scalar(False), batch.num_rows)
    return pc.fill_null(batch.column(hidden_columns.TOMBSTONE), False)
