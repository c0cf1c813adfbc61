"""Running aggregates: partial results of a batch, merged with what the store holds. Vectorised, in Arrow and numpy.

The results are Spark's: count skips nulls and count_all does not; sum, avg, min and max skip nulls and are null where
nothing is left; whole numbers add up to bigint, and past its range is an error (as under ANSI); avg is a double; NaN is
greater than any number. Decimals are refused: their sums would need 16 bytes and rules of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import acero

from sparkrelay.errors import SerializationException, TopologyException
from sparkrelay.state.layout import Field, StateLayout, is_variable, physical_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["AggregateCodec", "AggregateSpec"]

Function = Literal["count", "count_all", "sum", "avg", "min", "max"]

_PREFIX: Final = "__sparkrelay_partial_"
_SAFE_SUM: Final = float(1 << 62)
_LOW_BITS: Final = 32


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One running aggregate.

    Attributes:
        function: which.
        column: the argument's column; None for ``count_all``.
        input_type: the argument's type.
        result_type: the type of the result column.
        result: the result column, which errors name; empty: the function and its argument.
    """

    function: Function | str
    column: str | None
    input_type: pa.DataType
    result_type: pa.DataType
    result: str = ""

    def __str__(self) -> str:
        """Return what a user calls it."""
        return self.result or f"{self.function}({'*' if self.column is None else self.column})"


class AggregateCodec:
    """Computes and keeps a fixed list of aggregates; cheap enough to be made for each batch."""

    def __init__(self, specs: Sequence[AggregateSpec]) -> None:
        """Check the list.

        Raises:
            TopologyException: an aggregate cannot be kept; the message names it and the remedy.
        """
        self.specs = tuple(specs)
        for spec in self.specs:
            _check(spec)
        kinds: list[pa.DataType] = []
        for spec in self.specs:
            kinds += _state_kinds(spec)
        self._layout = StateLayout(kinds)

    def partial(self, rows: pa.Table | pa.RecordBatch, keys: Sequence[str]) -> pa.Table:
        """Group rows by their key columns; return those, and one or two partial columns for each aggregate.

        Groups stand in the order of their first row. Null keys make a group.

        Raises:
            SerializationException: a sum of whole numbers leaves the range of bigint; the message has the group's key.
        """
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        needed = list(keys)
        columns: dict[str, pa.ChunkedArray] = {name: table.column(name) for name in keys}
        plan: list[tuple[Any, str, Any, str]] = []
        for index, spec in enumerate(self.specs):
            _plan_partial(spec, index, table, columns, plan)
        prepared = pa.table(columns) if columns else table
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(prepared))
        grouped = acero.Declaration("aggregate", acero.AggregateNodeOptions(plan, keys=needed), inputs=[source])
        result = grouped.to_table(use_threads=False)
        out = {name: result.column(name) for name in needed}
        for index, spec in enumerate(self.specs):
            _finish_partial(spec, index, result, out)
        return pa.table(out)

    @np.errstate(over="ignore", invalid="ignore")  # Sums to infinity, and of both infinities, are results like others.
    def merge(self, partial: pa.Table, old: pa.Array) -> tuple[pa.Array, list[pa.Array]]:
        """Merge partial results with the states of their groups (null where a group is new).

        Returns:
            The new states, and one result column for each aggregate.

        Raises:
            SerializationException: a sum of whole numbers leaves the range of bigint; the message has the group's key.
            StoreCorruptedException: a state is not of these aggregates.
        """
        fields = self._layout.decode(old)
        merged: list[Field] = []
        results: list[pa.Array] = []
        at = 0
        for index, spec in enumerate(self.specs):
            width = len(_state_kinds(spec))
            new = _merge_one(spec, fields[at : at + width], partial, index)
            merged += new
            results.append(_result(spec, new))
            at += width
        return self._layout.encode(merged, len(old)), results

    def results(self, states: pa.Array) -> list[pa.Array]:
        """Return the result columns of stored states, as for a query."""
        fields = self._layout.decode(states)
        results = []
        at = 0
        for spec in self.specs:
            width = len(_state_kinds(spec))
            results.append(_result(spec, fields[at : at + width]))
            at += width
        return results


def _check(spec: AggregateSpec) -> None:
    kind = spec.input_type
    name = str(spec)
    if spec.function not in {"count", "count_all", "sum", "avg", "min", "max"}:
        raise TopologyException(f"{name} cannot be kept in a store; use count, sum, avg, min or max")
    if spec.function in {"count", "count_all"}:
        return
    if pa.types.is_decimal(kind):
        raise TopologyException(
            f'{name}: decimals cannot be kept in a store; cast {spec.column} to "double", or to "bigint" in its '
            "smallest unit"
        )
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if spec.function in {"sum", "avg"} and not number:
        raise TopologyException(f"{name}: {kind} does not add up; cast {spec.column} to a number")
    if physical_dtype(kind) is None and not is_variable(kind):
        raise TopologyException(f"{name}: values of {kind} cannot be kept in a store; aggregate their fields")


def _state_kinds(spec: AggregateSpec) -> list[pa.DataType]:
    if spec.function in {"count", "count_all"}:
        return [pa.int64()]
    if spec.function == "avg":
        return [pa.float64(), pa.int64()]
    if spec.function == "sum":
        return [pa.int64() if pa.types.is_integer(spec.input_type) else pa.float64()]
    return [spec.input_type]


# -- partial ----------------------------------------------------------------------------------------------------------


def _name(index: int, part: str = "") -> str:
    return f"{_PREFIX}{index}{part}"


def _plan_partial(
    spec: AggregateSpec,
    index: int,
    table: pa.Table,
    columns: dict[str, pa.ChunkedArray],
    plan: list[tuple[Any, str, Any, str]],
) -> None:
    """Add what one aggregate needs to the columns and to the plan of the grouping."""
    name = _name(index)
    if spec.column is None:
        plan.append(([], "hash_count_all", None, name))
        return
    column = table.column(spec.column)
    if column.type != spec.input_type and spec.function != "count":
        column = column.cast(spec.input_type)
    source = _name(index, "_in")
    if spec.function == "count":
        columns[source] = column
        plan.append((source, "hash_count", pc.CountOptions(mode="only_valid"), name))
        return
    if spec.function in {"sum", "avg"}:
        if pa.types.is_integer(spec.input_type) and _may_overflow(column):
            if spec.function == "avg":
                columns[source] = column.cast(pa.float64(), safe=False)
                plan.append((source, "hash_sum", None, name))
            else:
                # Two sums of half the bits cannot overflow, whatever the order; they are joined and checked later.
                column = column.cast(pa.int64())
                columns[source] = pc.bit_wise_and(column, (1 << _LOW_BITS) - 1)
                columns[_name(index, "_high_in")] = pc.shift_right(column, _LOW_BITS)
                plan.append((source, "hash_sum", None, name))
                plan.append((_name(index, "_high_in"), "hash_sum", None, _name(index, "_high")))
        else:
            columns[source] = column
            plan.append((source, "hash_sum", None, name))
        if spec.function == "avg":
            plan.append((source, "hash_count", pc.CountOptions(mode="only_valid"), _name(index, "_count")))
        return
    if pa.types.is_floating(spec.input_type):
        nan = pc.is_nan(column)
        if pc.any(nan).as_py():
            # Arrow passes over NaN, Spark holds it greater than any number.
            columns[_name(index, "_nan_in")] = pc.fill_null(nan, False)
            plan.append((_name(index, "_nan_in"), "hash_any", None, _name(index, "_nan")))
            column = pc.if_else(nan, pa.scalar(None, spec.input_type), column)
    if pa.types.is_duration(spec.input_type):
        # Arrow has no minimum of durations, only of the numbers they are.
        column = column.cast(pa.int64())
    columns[source] = column
    plan.append((source, f"hash_{spec.function}", None, name))


def _may_overflow(column: pa.ChunkedArray) -> bool:
    if column.type.bit_width < 64 or not len(column):
        return False
    bounds = pc.min_max(column)
    if not bounds["min"].is_valid:
        return False
    largest = max(abs(bounds["min"].as_py()), abs(bounds["max"].as_py()))
    return float(largest) * len(column) >= _SAFE_SUM


def _finish_partial(spec: AggregateSpec, index: int, grouped: pa.Table, out: dict[str, pa.ChunkedArray]) -> None:
    name = _name(index)
    column = grouped.column(name)
    if _name(index, "_high") in grouped.column_names:
        column = _join_halves(spec, column, grouped.column(_name(index, "_high")), grouped)
    if _name(index, "_nan") in grouped.column_names:
        nan = grouped.column(_name(index, "_nan"))
        value = pa.scalar(float("nan"), spec.input_type)
        replaced = nan if spec.function == "max" else pc.and_(nan, pc.is_null(column))
        column = pc.if_else(replaced, value, column)
    if spec.function == "avg":
        column = column.cast(pa.float64(), safe=False)
        out[_name(index, "_count")] = grouped.column(_name(index, "_count"))
    out[name] = column


def _join_halves(spec: AggregateSpec, low: pa.ChunkedArray, high: pa.ChunkedArray, groups: pa.Table) -> pa.ChunkedArray:
    totals = [
        None if lower is None else (upper << _LOW_BITS) + lower
        for lower, upper in zip(low.to_pylist(), high.to_pylist(), strict=True)
    ]
    for row, total in enumerate(totals):
        if total is not None and not -(1 << 63) <= total < 1 << 63:
            raise _overflow(spec, f"{total} within one batch", groups, row)
    return pa.chunked_array([pa.array(totals, pa.int64())])


def _overflow(spec: AggregateSpec, what: str, groups: pa.Table, row: int) -> SerializationException:
    group = {n: groups.column(n)[row].as_py() for n in groups.column_names if not n.startswith(_PREFIX)}
    return SerializationException(
        f"{spec} leaves the range of bigint: {what} in the group {group}; cast the argument to double, or take a "
        "larger unit or finer groups"
    )


# -- merge ------------------------------------------------------------------------------------------------------------


def _merge_one(spec: AggregateSpec, old: Sequence[Field], partial: pa.Table, index: int) -> list[Field]:
    column = partial.column(_name(index)).combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    state = old[0]
    if spec.function in {"count", "count_all"}:
        return [_counted(state, column)]
    if spec.function == "avg":
        counts = partial.column(_name(index, "_count")).combine_chunks()
        new, there = _numbers(column, pa.float64())
        total = Field(np.where(there, state.values + new, state.values), state.there | there)
        return [total, _counted(old[1], counts)]
    if is_variable(spec.input_type):
        pick = pc.max_element_wise if spec.function == "max" else pc.min_element_wise
        best = pick(cast("Any", state.data), column.cast(pa.binary()), skip_nulls=True)
        return [Field(state.values, best.is_valid().to_numpy(zero_copy_only=False), best)]
    if spec.function == "sum":
        new, there = _numbers(column, _state_kinds(spec)[0])
        total_values = state.values + new
        if np.issubdtype(total_values.dtype, np.integer):
            wrapped = ((state.values ^ total_values) & (new ^ total_values)) < 0
            if wrapped.any():
                row = int(np.flatnonzero(wrapped)[0])
                raise _overflow(spec, f"{int(state.values[row])} + {int(new[row])}", partial, row)
        return [Field(total_values, state.there | there)]
    new, there = _numbers(column, spec.input_type)
    return [_extreme(spec, state, new, there)]


def _counted(state: Field, column: pa.Array) -> Field:
    values = state.values + column.to_numpy(zero_copy_only=False)
    return Field(values, np.ones(len(values), dtype=np.bool_))


def _extreme(spec: AggregateSpec, state: Field, new: NDArray[Any], there: NDArray[np.bool_]) -> Field:
    # An empty state is passed over; NaN, unlike anything else, is not equal to itself.
    if spec.function == "max":
        better = (new > state.values) | (new != new)  # noqa: PLR0124
    else:
        better = (new < state.values) | (state.values != state.values)
    take = there & (~state.there | better)
    return Field(np.where(take, new, state.values), state.there | there)


def _numbers(column: pa.Array, kind: pa.DataType) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return values as they are kept, 0 where null, and which are not null."""
    there = column.is_valid().to_numpy(zero_copy_only=False)
    if column.type != kind:
        column = column.cast(kind, safe=False)
    dtype = cast("np.dtype[Any]", physical_dtype(kind))
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if dtype.itemsize == 4 else pa.int64())
    if column.null_count:
        column = column.fill_null(False if pa.types.is_boolean(column.type) else 0)
    return column.to_numpy(zero_copy_only=False).astype(dtype, copy=False), there


def _result(spec: AggregateSpec, fields: Sequence[Field]) -> pa.Array:
    state = fields[0]
    if spec.function in {"count", "count_all"}:
        # A group without a state, as in a query for a missing key, has counted nothing.
        return pa.array(state.values).cast(spec.result_type)
    if spec.function == "avg":
        counts = fields[1].values
        none = counts == 0
        return pa.array(state.values / np.where(none, 1, counts), mask=none).cast(spec.result_type)
    if state.data is not None:
        return state.data.cast(spec.input_type).cast(spec.result_type)
    if spec.function == "sum":
        return pa.array(state.values, mask=~state.there).cast(spec.result_type)
    kind = spec.input_type
    if pa.types.is_boolean(kind):
        return pa.array(state.values.astype(np.bool_), mask=~state.there)
    kept = pa.array(state.values, mask=~state.there)
    return (kept.view(kind) if pa.types.is_temporal(kind) else kept).cast(spec.result_type)
