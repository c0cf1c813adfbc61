"""Approximate distinct counts: a HyperLogLog sketch of fixed size.

It has ``2 ** p`` registers of one byte, merged by their maxima. The estimate is Ertl's ("New cardinality estimation
algorithms for HyperLogLog sketches", 2017), which needs no tables and is continuous from small numbers to large.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from sparkrelay.errors import SerializationException, StoreCorruptedException
from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.records.hll_registers import registers_of
from sparkrelay.records.keys import key_bytes
from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.byte_arrays import buffers, fixed
from sparkrelay.state.layout import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec

_HASH_BITS: Final = 64
_MOST_BYTES: Final = (1 << 31) - 1


class DistinctEstimate(Aggregate):
    """``approx_count_distinct``. The option: the number of hash bits that choose a register."""

    def __init__(self, spec: AggregateSpec) -> None:
        (self._bits,) = spec.options
        self._registers = 1 << self._bits
        super().__init__(spec, [pa.binary()])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows).combine_chunks()
        rows.by_row()

        def finish(groups: Groups) -> list[pa.Array]:
            if len(groups) * self._registers > _MOST_BYTES:
                raise SerializationException(
                    f"{self.spec}: the sketches of {len(groups)} groups of {self._registers} bytes each are too many "
                    "for one micro-batch; take a larger rsd, or a lower max.poll.records"
                )
            there = column.is_valid().to_numpy(zero_copy_only=False)
            at, ranks = registers_of(key_bytes([column.filter(pa.array(there))]).cast(pa.binary()), self._bits)
            sketches = np.zeros((len(groups), self._registers), dtype=np.uint8)
            np.maximum.at(sketches.reshape(-1), groups.of_rows[there] * self._registers + at, ranks)
            any_value = np.zeros(len(groups), dtype=np.bool_)
            any_value[groups.of_rows[there]] = True
            return [fixed(sketches, self._registers).filter(pa.array(any_value)).take(_numbers(any_value))]

        return finish

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        (was,), (now,) = old, new
        there = was.there | now.there
        both = np.maximum(self._sketches(was), self._sketches(now))
        data = fixed(both[there], self._registers).take(_numbers(there))
        return [Field(was.values, there, data)]

    def result(self, state: Sequence[Field]) -> pa.Array:
        sketches = self._sketches(state[0])
        estimates = np.zeros(len(sketches))
        estimates[state[0].there] = _estimates(sketches[state[0].there], self._bits)
        return as_type(pa.array(np.rint(estimates).astype(np.int64)), self.spec.result_type)

    def _sketches(self, field: Field) -> NDArray[np.uint8]:
        """Return the registers of each row, 0 where there is no sketch."""
        sketches = np.zeros((len(field.there), self._registers), dtype=np.uint8)
        if not field.there.any():
            return sketches
        assert field.data is not None, "bytes are kept as bytes"
        own = field.data.filter(pa.array(field.there))
        offsets, data = buffers(own)
        most = _HASH_BITS - self._bits + 1
        found = data[int(offsets[0]) : int(offsets[-1])]
        if (np.diff(offsets) != self._registers).any() or int(found.max()) > most:
            raise StoreCorruptedException(
                f"{self.spec}: a stored sketch does not have {self._registers} registers of up to {most}. It is "
                "damaged: remove the task's directory to have it restored, or start the application over: sparkrelay "
                "reset"
            )
        sketches[field.there] = found.reshape(-1, self._registers)
        return sketches


def _numbers(there: NDArray[np.bool_]) -> pa.Array:
    """Return the index of each row's value among the present ones; null where there is none."""
    return pa.array(np.cumsum(there) - 1, mask=~there)


def _estimates(sketches: NDArray[np.uint8], bits: int) -> NDArray[np.float64]:
    count, registers = sketches.shape
    most = _HASH_BITS - bits + 1
    cells = np.arange(count)[:, None] * (most + 1) + sketches
    histogram = np.bincount(cells.reshape(-1), minlength=count * (most + 1)).reshape(count, most + 1)
    total = registers * _tau(1 - histogram[:, most] / registers)
    for rank in range(most - 1, 0, -1):
        total = 0.5 * (total + histogram[:, rank])
    with np.errstate(all="ignore"):
        total = total + registers * _sigma(histogram[:, 0] / registers)
        estimates: NDArray[np.float64] = registers * registers / (2 * math.log(2) * total)
    return estimates


def _sigma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    power, weight, total = x.copy(), 1.0, x.copy()
    while True:
        power = power * power
        before, total = total, total + power * weight
        weight += weight
        # With all registers 0 it diverges.
        if ((total == before) | (x >= 1)).all():
            return np.where(x >= 1, np.inf, total)


def _tau(x: NDArray[np.float64]) -> Any:
    root, weight, total = x.copy(), 1.0, 1 - x
    while True:
        root = np.sqrt(root)
        weight *= 0.5
        before, total = total, total - (1 - root) ** 2 * weight
        if ((total == before) | (x <= 0)).all():
            return np.where((x <= 0) | (x >= 1), 0.0, total / 3)
