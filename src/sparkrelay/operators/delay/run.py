"""The step whose rows wait, each until the watermark has passed its event time by a grace (KIP-923).

They wait in a store of rows that end (``state.watermarks``)::

    event time, 8 | batch, 8 | index, 4   ->   the row

so those that are over lie in front, are found by one scan, and are removed like windows that are over. The grace is a
part of the watermark's delay. A row that is over when it comes does not wait; nor does one that is so far ahead of the
clock that it does not move the watermark, for it might wait for years. Kafka Streams keeps such a buffer in
the join itself; here the rows that have waited go through a repartition topic to the leg that looks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pyarrow as pa

from sparkrelay.operators.delay.step import Delay
from sparkrelay.operators.emitting.run import EmittingRunner, event_times, watermark_with
from sparkrelay.operators.stored_rows import StoredColumns
from sparkrelay.runtime.contract import hidden_columns
from sparkrelay.runtime.worker.context import clock_ms, laid_out, whole
from sparkrelay.state.byte_arrays import big_endian, fixed, side_by_side
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sparkrelay.operators.emitting.run import TaskStep
    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView

__all__ = ["DelayRows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRows(EmittingRunner):
    """How the rows of a stream wait, each until its event time is over by the watermark.

    Attributes:
        input: Arrow schema of the rows that come in.
        row: of the columns of them that are kept.
    """

    input: pa.Schema
    row: pa.Schema

    holds: ClassVar[str] = Delay.holds
    late: ClassVar[str] = "too late"

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> TaskStep:
        """Return a task's share of the leg."""
        return _TaskDelay(self, task, batches)


class _TaskDelay:
    """One task's share of a leg."""

    def __init__(self, spec: DelayRows, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        self._columns = StoredColumns(spec.row)
        self._rows = pa.Table.from_batches(batches, spec.input if not batches else None).combine_chunks()
        self._over = self._rows.slice(0, 0)

    def operate(self, view: StoreView) -> Changes:
        """Store the rows that are not over yet."""
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
        """Yield the rows that go on, those that have waited by their times."""
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
            # The repartition topic behind it has a key of its own.
            hidden_columns.KEY: pa.nulls(count, pa.binary()),
        }
        return laid_out((given[field.name] for field in self._spec.output), self._spec.output)
