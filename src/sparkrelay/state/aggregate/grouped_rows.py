"""One grouping of rows for several aggregates, and its groups."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import acero

from sparkrelay.records.arrow_buffers import whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

#: Of the names of internal columns.
PREFIX: Final = "__sparkrelay_partial_"
_ROWS: Final = f"{PREFIX}rows"


class RowGrouping:
    """Collects the inputs of aggregates, then groups."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self._rows = rows
        self._keys = list(keys)
        self._columns = {name: rows.column(name) for name in keys}
        self._plan: list[tuple[Any, str, Any, str]] = []
        self._by_row = False

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.ChunkedArray:
        """Return a column of the rows, cast to a type."""
        column = self._rows.column(name)
        return column if kind is None or column.type == kind else column.cast(kind)

    def add(self, function: str, column: pa.ChunkedArray | None, options: Any = None) -> str:
        """Let Arrow aggregate a column (None: rows); return the name of the result."""
        name = f"{PREFIX}{len(self._plan)}"
        source: Any = []
        if column is not None:
            source = f"{name}_in"
            self._columns[source] = column
        self._plan.append((source, function, options, name))
        return name

    def by_row(self) -> None:
        """Request each row's group (:meth:`Groups.of_rows`)."""
        self._by_row = True

    def run(self) -> Groups:
        """Return the groups in the order of their first rows."""
        columns, plan = self._columns, self._plan
        if self._by_row:
            columns = {**columns, _ROWS: pa.chunked_array([pa.array(np.arange(self._rows.num_rows))])}
            plan = [*plan, (_ROWS, "hash_list", None, _ROWS)]
        prepared = pa.table(columns) if columns else self._rows
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(prepared))
        options = acero.AggregateNodeOptions(plan, keys=self._keys)
        grouped = acero.Declaration("aggregate", options, inputs=[source]).to_table(use_threads=False)
        return Groups(grouped)


class Groups:
    """Groups of rows: a table of their keys and of the requested columns."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return a column by its name."""
        return whole(self.table.column(name))

    @cached_property
    def of_rows(self) -> NDArray[np.int64]:
        """The number of each row's group, if requested."""
        lists = self.column(_ROWS)
        lengths = np.diff(np.asarray(lists.offsets))
        numbers = np.empty(int(lengths.sum()), dtype=np.int64)
        numbers[np.asarray(lists.flatten())] = np.repeat(np.arange(len(lengths)), lengths)
        return numbers


def last_of_each(count: int, groups: NDArray[np.integer[Any]], numbers: NDArray[np.integer[Any]]) -> pa.Array:
    """Return for each of ``count`` groups the last of its numbers, null where there is none."""
    last = np.full(count, -1, dtype=np.int64)
    last[groups] = numbers  # of several assignments to one place, numpy keeps the last
    return pa.array(last, mask=last < 0)
