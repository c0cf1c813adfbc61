"""Delayed rows in workers: each is buffered until the watermark has passed its event time plus a grace (KIP-923).

The buffer is a store whose rows expire (``state.window_keys``)::

    event time, 8 | batch, 8 | index, 4   ->   the row

Due rows are its first ones, found by one scan and removed like closed windows. The grace is part of the watermark's
delay. A row that is already due is not buffered, nor is one too far ahead of the clock to advance the watermark: it
might stay for years. Kafka Streams buffers in the join itself; here due rows go through a repartition topic to the leg
with the lookup.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay import hidden_columns
from sparkrelay.operators.delay.step import Delay
from sparkrelay.operators.emitting.run import EmittingRunner, event_times, watermark_with
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.runtime.worker.context import clock_ms, laid_out
from sparkrelay.state.byte_arrays import big_endian, fixed, side_by_side
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.operators.emitting.run import TaskStep
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRows(EmittingRunner):
    """Buffers rows until the watermark has passed their event time.

    Attributes:
        input: Arrow schema of input rows.
        row: Arrow schema of the stored columns.
    """

    input: pa.Schema
    row: pa.Schema

    holds: ClassVar[str] = Delay.holds
    late: ClassVar[str] = "too late"

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return the work of one task."""
        return _TaskDelay(self, task, batches)


class _TaskDelay:
    """The work of one task."""

    def __init__(self, spec: DelayRows, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        self._columns = StoredColumns(spec.row)
        rows = pa.Table.from_batches(batches, spec.input if not batches else None).combine_chunks()
        # A row without an event time goes by its record's timestamp.
        at = rows.schema.get_field_index(hidden_columns.EVENT_MICROS)
        own = pc.multiply(rows.column(hidden_columns.TIMESTAMP), 1000)
        field = rows.schema.field(at).with_type(pa.int64())
        self._rows = rows.set_column(at, field, pc.coalesce(rows.column(at).cast(pa.int64()), own))
        self._over = self._rows.slice(0, 0)

    def operate(self, view: StoreView) -> Changes:
        """Store the rows that are not due."""
        rows = self._rows
        times_ms = event_times(rows)[0] // 1000
        over = (times_ms <= view.watermark) | (times_ms > clock_ms(self.task) + self._spec.ahead_ms)
        self._over, waiting = rows.filter(pa.array(over)), rows.filter(pa.array(~over))
        numbers = np.zeros(waiting.num_rows, dtype=[("batch", ">u8"), ("index", ">u4")])
        numbers["batch"], numbers["index"] = self.task.batch, np.arange(waiting.num_rows)
        keys = side_by_side(big_endian(times_ms[~over]), fixed(numbers, 12))
        watermark = watermark_with(self._spec, view, self.task, rows, 0)
        return Changes.of(view, keys, self._columns.values(waiting), replace(watermark, final=True))

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield due rows, buffered ones in the order of their times."""
        if self._over.num_rows:
            yield self._laid_out({name: whole(self._over.column(name)) for name in self._names})
        for waited in store.over():
            yield self._laid_out(self._columns.read(waited.column("value")))

    @property
    def _names(self) -> tuple[str, ...]:
        return (*self._spec.row.names, hidden_columns.TIMESTAMP)

    def _laid_out(self, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        count = len(columns[hidden_columns.TIMESTAMP])
        given: dict[str, Any] = {
            **columns,
            hidden_columns.PARTITION: pa.array(np.full(count, self.task.task.partition, dtype=np.int32)),
            # The repartition topic downstream has another key.
            hidden_columns.KEY: pa.nulls(count, pa.binary()),
        }
        return laid_out((given[field.name] for field in self._spec.output), self._spec.output)
