"""Variances, correlations and the like: counts, means and central moments, merged by Chan's formulas as in Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sparkrelay.records.arrow_buffers import as_type
from sparkrelay.state.aggregate.base import Aggregate
from sparkrelay.state.layout import Field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sparkrelay.state.aggregate.base import Partial
    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec

    Numbers = NDArray[np.float64]

#: Function -> its highest moment.
MOMENTS: Final = {
    "var_pop": 2,
    "var_samp": 2,
    "stddev_pop": 2,
    "stddev_samp": 2,
    "sum_of_squares": 2,
    "skewness": 3,
    "kurtosis": 4,
}
#: Function -> whether it needs the variances beside the covariance.
COMOMENTS: Final = {
    "covar_pop": False,
    "covar_samp": False,
    "regr_sxy": False,
    "corr": True,
    "regr_slope": True,
    "regr_intercept": True,
    "regr_r2": True,
}


class Moments(Aggregate):
    """Functions of the central moments of one column: ``stddev``, ``variance``, ``skewness``, ``kurtosis``.

    State: the count, the mean, and the sums of the second to at most fourth powers of the distances from it.
    """

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec) -> None:
        self._highest = MOMENTS[spec.function]
        super().__init__(spec, [pa.int64(), *[pa.float64()] * self._highest])

    def plan(self, rows: RowGrouping) -> Partial:
        column = self._argument(rows, pa.float64())
        rows.by_row()

        def finish(groups: Groups) -> list[pa.Array]:
            (values,), of = _complete(groups, [column])
            counts = np.bincount(of, minlength=len(groups))
            mean = _means(values, of, counts)
            distance = values - mean[of]
            powers = [np.bincount(of, distance**power, len(groups)) for power in range(2, self._highest + 1)]
            return [pa.array(counts), *map(pa.array, (mean, *powers))]

        return finish

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        a, b = _values(old), _values(new)
        count = a[0] + b[0]
        distance = b[1] - a[1]
        mean = a[1] + distance / _or_one(count) * b[0]
        powers = [mine + its + more for mine, its, more in zip(a[2:], b[2:], self._shifts(a, b), strict=True)]
        return _fields(count, _either(a, b, [mean, *powers]))

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        total, b = _values(old), _values(gone)
        count = total[0] - b[0]
        a = [count, np.where(count == 0, 0.0, (total[1] * total[0] - b[1] * b[0]) / _or_one(count))]
        # The shift of each moment depends on the lower ones.
        for place in range(2, self._highest + 1):
            shift = self._shifts([*a, *b[len(a) :]], b)[place - 2]
            left = np.where(b[0] == 0, total[place], total[place] - b[place] - shift)
            a.append(np.where(count <= 1, 0.0, np.maximum(left, 0.0) if place % 2 == 0 else left))
        a[1] = np.where(b[0] == 0, total[1], a[1])
        return _fields(count, a[1:])

    def _shifts(self, a: Sequence[Any], b: Sequence[Any]) -> list[Numbers]:
        """Return by how much the moments of both parts together exceed the sums of the parts' moments."""
        (n, m), distance = (a[0], b[0]), b[1] - a[1]
        count = _or_one(n + m)
        step = distance / count
        shifts = [distance * step * n * m]
        if self._highest >= 3:
            shifts.append(step**2 * distance * n * m * (n - m) + 3 * step * (n * b[2] - m * a[2]))
        if self._highest >= 4:
            even = step**3 * distance * n * m * (n * n - n * m + m * m)
            shifts.append(even + 6 * step**2 * (n * n * b[2] + m * m * a[2]) + 4 * step * (n * b[3] - m * a[3]))
        return shifts

    def result(self, state: Sequence[Field]) -> pa.Array:
        count, _, second, *higher = _values(state)
        none = count == 0
        match self.spec.function:
            case "sum_of_squares":
                value = second
            case "var_pop" | "stddev_pop":
                value = second / _or_one(count)
            case "var_samp" | "stddev_samp":
                value, none = second / np.where(count <= 1, 1, count - 1), count <= 1
            case "skewness":
                value, none = np.sqrt(count) * higher[0] / np.sqrt(second**3), none | (second == 0)
            case _:
                value, none = count * higher[1] / second**2 - 3.0, none | (second == 0)
        if self.spec.function.startswith("stddev"):
            value = np.sqrt(value)
        return as_type(pa.array(value, mask=none), self.spec.result_type)


class CoMoments(Aggregate):
    """Functions of pairs of non-null values: ``corr``, ``covar_pop``, ``regr_slope`` and the like.

    State: the count, both means, the sum of the products of the distances from them and, if needed, of the squares of
    each. Of ``regr_*`` the first column is y, the second x.
    """

    subtracts: ClassVar[bool] = True

    def __init__(self, spec: AggregateSpec) -> None:
        self._squares = COMOMENTS[spec.function]
        super().__init__(spec, [pa.int64(), *[pa.float64()] * (5 if self._squares else 3)])

    def plan(self, rows: RowGrouping) -> Partial:
        assert self.spec.column is not None
        columns = [rows.column(name, pa.float64()) for name in (self.spec.column, self.spec.others[0][0])]
        rows.by_row()

        def finish(groups: Groups) -> list[pa.Array]:
            pairs, of = _complete(groups, columns)
            counts = np.bincount(of, minlength=len(groups))
            means = [_means(values, of, counts) for values in pairs]
            one, other = (values - mean[of] for values, mean in zip(pairs, means, strict=True))
            products = [one * other, one * one, other * other] if self._squares else [one * other]
            sums = [np.bincount(of, product, len(groups)) for product in products]
            return [pa.array(counts), *map(pa.array, (*means, *sums))]

        return finish

    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        a, b = _values(old), _values(new)
        count = a[0] + b[0]
        share = b[0] / _or_one(count)
        means = [mine + (its - mine) * share for mine, its in zip(a[1:3], b[1:3], strict=True)]
        sums = [mine + its + more for mine, its, more in zip(a[3:], b[3:], self._shifts(a, b), strict=True)]
        return _fields(count, _either(a, b, [*means, *sums]))

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        total, b = _values(old), _values(gone)
        count = total[0] - b[0]
        means = [
            np.where(count == 0, 0.0, (all_ * total[0] - its * b[0]) / _or_one(count))
            for all_, its in zip(total[1:3], b[1:3], strict=True)
        ]
        means = [np.where(b[0] == 0, all_, mean) for all_, mean in zip(total[1:3], means, strict=True)]
        shifts = self._shifts([count, *means], b)
        sums = [
            np.where(count <= 1, 0.0, np.where(b[0] == 0, all_, all_ - its - more))
            for all_, its, more in zip(total[3:], b[3:], shifts, strict=True)
        ]
        sums[1:] = [np.maximum(square, 0.0) for square in sums[1:]]
        return _fields(count, [*means, *sums])

    def _shifts(self, a: Sequence[Any], b: Sequence[Any]) -> list[Numbers]:
        weight = a[0] * b[0] / _or_one(a[0] + b[0])
        one, other = b[1] - a[1], b[2] - a[2]
        shifts = [one * other * weight]
        return [*shifts, one * one * weight, other * other * weight] if self._squares else shifts

    def result(self, state: Sequence[Field]) -> pa.Array:
        count, y, x, products, *squares = _values(state)
        none = count == 0
        match self.spec.function:
            case "regr_sxy":
                value = products
            case "covar_pop":
                value = products / _or_one(count)
            case "covar_samp":
                value, none = products / np.where(count <= 1, 1, count - 1), count <= 1
            case "corr":
                # Spark names its columns x and y the other way round; it is symmetric.
                none = (count <= 1) | (squares[0] == 0) | (squares[1] == 0)
                value = products / np.sqrt(squares[0] * squares[1])
            case "regr_slope":
                value, none = products / squares[1], none | (squares[1] == 0)
            case "regr_intercept":
                value, none = y - products / squares[1] * x, none | (squares[1] == 0)
            case _:
                whole = (products / np.sqrt(squares[0] * squares[1])) ** 2
                value, none = np.where(squares[0] == 0, 1.0, whole), none | (squares[1] == 0)
        return as_type(pa.array(value, mask=none), self.spec.result_type)


def _complete(groups: Groups, columns: Sequence[pa.ChunkedArray]) -> tuple[list[Numbers], NDArray[np.int64]]:
    """Return the values of rows without nulls, and the group of each row."""
    there = np.ones(len(columns[0]), dtype=np.bool_)
    for column in columns:
        there &= column.is_valid().to_numpy()
    values = [pc.fill_null(column, 0.0).to_numpy()[there] for column in columns]
    return values, groups.of_rows[there]


def _means(values: Numbers, of: NDArray[np.int64], counts: NDArray[np.int64]) -> Numbers:
    """Return the mean of each group: of equal values, exactly that value, as in Spark, so that their variance is 0."""
    divisors = _or_one(counts).astype(np.float64)
    firsts = np.zeros(len(counts))
    # Of several assignments to one place numpy keeps the last.
    firsts[of[::-1]] = values[::-1]
    with np.errstate(all="ignore"):
        means: Numbers = firsts + np.bincount(of, values - firsts[of], len(counts)).astype(np.float64) / divisors
        finite = np.isfinite(means)
        if not finite.all():
            # Differences, or their sum, may overflow where the mean does not.
            shares = np.bincount(of, values / divisors[of], len(counts)).astype(np.float64)
            means = np.where(finite, means, shares)
    return means


def _values(fields: Sequence[Field]) -> list[Any]:
    return [fields[0].values.astype(np.float64), *(field.values for field in fields[1:])]


def _fields(count: Numbers, values: Sequence[Numbers]) -> list[Field]:
    there = np.ones(len(count), dtype=np.bool_)
    return [Field(count.astype(np.int64), there), *(Field(numbers, there) for numbers in values)]


def _either(a: Sequence[Any], b: Sequence[Any], together: Sequence[Numbers]) -> list[Numbers]:
    """Return the combined values, or the other part's where one is empty."""
    return [
        np.where(a[0] == 0, its, np.where(b[0] == 0, mine, both))
        for mine, its, both in zip(a[1:], b[1:], together, strict=True)
    ]


def _or_one(count: NDArray[Any]) -> NDArray[Any]:
    return np.where(count == 0, 1, count)
