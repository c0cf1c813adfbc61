"""Unions of streams on DataFrames: each stream has its own leg, and all have the same columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.errors import TopologyException
from sparkrelay.runtime.compile.row_steps import visible
from sparkrelay.runtime.compile.schemas import unlike

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkrelay.topology import Lookup, Step


class Unions:
    """The columns of each union: those of its first stream that was built."""

    def __init__(self) -> None:
        self._columns: dict[int, StructType] = {}

    def check(self, step: Step | Lookup, rows: DataFrame) -> None:
        """Check the columns of one stream of a union.

        Raises:
            TopologyException: a name or type differs, or ``union`` by position would differ from one by name.
        """
        columns = visible(rows)
        first = self._columns.setdefault(id(step), columns)
        if (reason := unlike(first, columns, in_order=step.kind == "union")) is not None:
            raise TopologyException(f"{step.call_site}: {step.kind}() of streams with other columns: {reason}")
