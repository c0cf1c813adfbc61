"""Every n-th row of a key in workers. The store: encoded key -> number of its rows, 8 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from tests.every_nth.step import EveryNth

from sparkrelay.operators.emitting.run import EmittingRunner
from sparkrelay.records.arrow_buffers import whole
from sparkrelay.records.keys import key_bytes
from sparkrelay.runtime.worker.context import laid_out
from sparkrelay.state.byte_arrays import big_endian, buffers, read_big_endian
from sparkrelay.state.view import Changes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparkrelay.runtime.contract.commands import TaskCommand
    from sparkrelay.state.after import StoreAfter
    from sparkrelay.state.view import StoreView

__all__ = ["EveryNthRunner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EveryNthRunner(EmittingRunner):
    """Emits every n-th row of each key; rows without a key are dropped."""

    keys: tuple[str, ...]
    n: int

    holds: ClassVar[str] = EveryNth.holds

    def begin(self, task: TaskCommand, batches: list[pa.RecordBatch]) -> _TaskEveryNth:
        """Return the work of one task."""
        return _TaskEveryNth(self, task, batches)


class _TaskEveryNth:
    """The work of one task."""

    def __init__(self, spec: EveryNthRunner, task: TaskCommand, batches: list[pa.RecordBatch]) -> None:
        self.task = task
        self._spec = spec
        self._rows = pa.Table.from_batches(batches).combine_chunks() if batches else None
        self._chosen = np.empty(0, dtype=np.int64)

    def operate(self, view: StoreView) -> Changes:
        """Count the rows of each key, and choose those that are emitted."""
        if self._rows is None:
            return Changes.of(view, pa.array([], pa.binary()), pa.array([], pa.binary()), None)
        encoded = key_bytes([whole(self._rows.column(name)) for name in self._spec.keys]).cast(pa.binary())
        own = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
        keys = encoded.drop_null().dictionary_encode()
        which = keys.indices.to_numpy(zero_copy_only=False)
        counts = np.zeros(len(keys.dictionary), dtype=np.int64)
        stored = view.get(keys.dictionary)
        offsets, data = buffers(stored.drop_null())
        counts[stored.is_valid().to_numpy(zero_copy_only=False)] = read_big_endian(data, offsets[:-1])
        chosen = []
        for row, key in zip(own.tolist(), which.tolist(), strict=True):
            counts[key] += 1
            if counts[key] % self._spec.n == 0:
                chosen.append(row)
        self._chosen = np.array(chosen, dtype=np.int64)
        return Changes.of(view, keys.dictionary, big_endian(counts), None)

    def emitted(self, store: StoreAfter) -> Iterator[pa.RecordBatch]:
        """Yield the chosen rows, in their order."""
        del store
        if self._rows is not None and len(self._chosen):
            names, taken = self._spec.output.names, self._rows.take(pa.array(self._chosen))
            yield laid_out((whole(taken.column(name)) for name in names), self._spec.output)
