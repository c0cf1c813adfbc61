"""Unions of streams on DataFrames: each stream has a leg of its own, and all of them the same columns."""

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
    """The columns of each union, which are those of the first of its streams that was built."""

    def __init__(self) -> None:
        self._columns: dict[int, StructType] = {}

    def check(self, step: Step | Lookup, rows: DataFrame) -> None:
        """Refuse to put streams of other columns together.

        Args:
            step: the union.
            rows: of one of its streams.

        Raises:
            TopologyException: a name or type is another one, or ``union`` means something else than by name.
        """
        columns = visible(rows)
        first = self._columns.setdefault(id(step), columns)
        if (reason := unlike(first, columns, in_order=step.kind == "union")) is not None:
            raise TopologyException(f"{step.call_site}: {step.kind}() of streams with other columns: {reason}")
