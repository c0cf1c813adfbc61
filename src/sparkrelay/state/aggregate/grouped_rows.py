"""Rows that several aggregates group in one go, and the groups that come of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import acero

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["PREFIX", "Groups", "RowGrouping"]

#: Begins the names of our own columns.
PREFIX: Final = "__sparkrelay_partial_"
_ROWS: Final = f"{PREFIX}rows"


class RowGrouping:
    """Gathers what aggregates need of rows."""

    def __init__(self, rows: pa.Table, keys: Sequence[str]) -> None:
        self._rows = rows
        self._keys = list(keys)
        self._columns = {name: rows.column(name) for name in keys}
        self._plan: list[tuple[Any, str, Any, str]] = []
        self._by_row = False

    def column(self, name: str, kind: pa.DataType | None = None) -> pa.ChunkedArray:
        """Return a column of the rows, as one of this type."""
        column = self._rows.column(name)
        return column if kind is None or column.type == kind else column.cast(kind)

    def add(self, function: str, column: pa.ChunkedArray | None, options: Any = None) -> str:
        """Have Arrow aggregate a column; return the name of the one that comes of it."""
        name = f"{PREFIX}{len(self._plan)}"
        if column is None:
            self._plan.append(([], function, options, name))
        else:
            source = f"{name}_in"
            self._columns[source] = column
            self._plan.append((source, function, options, name))
        return name

    def by_row(self) -> None:
        """Ask for each row's group (:meth:`Groups.of_rows`)."""
        self._by_row = True

    def run(self) -> Groups:
        """Group. Groups stand in the order of their first row."""
        columns, plan = self._columns, self._plan
        if self._by_row:
            columns = {**columns, _ROWS: pa.chunked_array([pa.array(np.arange(self._rows.num_rows))])}
            plan = [*plan, (_ROWS, "hash_list", None, _ROWS)]
        prepared = pa.table(columns) if columns else self._rows
        source = acero.Declaration("table_source", acero.TableSourceNodeOptions(prepared))
        options = acero.AggregateNodeOptions(plan, keys=self._keys)
        grouped = acero.Declaration("aggregate", options, inputs=[source]).to_table(use_threads=False)
        return Groups(grouped, self._keys)


class Groups:
    """What rows have been grouped to.

    Attributes:
        table: the groups: keys, and what was asked for.
        keys: names of the key columns.
    """

    def __init__(self, table: pa.Table, keys: Sequence[str]) -> None:
        self.table = table
        self.keys = tuple(keys)

    def __len__(self) -> int:
        """Return how many there are."""
        return int(self.table.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return what came of a column."""
        column = self.table.column(name)
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

    @cached_property
    def of_rows(self) -> NDArray[np.int64]:
        """The number of each row's group, if it was asked for."""
        lists = self.column(_ROWS)
        lengths = np.diff(np.asarray(lists.offsets))
        numbers = np.empty(int(lengths.sum()), dtype=np.int64)
        numbers[np.asarray(lists.flatten())] = np.repeat(np.arange(len(lengths)), lengths)
        return numbers
