"""What one running aggregate is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AggregateSpec"]


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One running aggregate.

    Attributes:
        function: which.
        column: the argument's column; None for ``count_all``.
        input_type: the argument's type.
        result_type: the type of the result column.
        result: the result column, which errors name; empty: the function and its argument.
        others: name and type of each further argument's column.
        distinct: True where each value of a group counts once.
        subtracts: True where values are to be taken out again: a sum then counts them, to be null when none is left.
    """

    function: str
    column: str | None
    input_type: pa.DataType
    result_type: pa.DataType
    result: str = ""
    others: tuple[tuple[str, pa.DataType], ...] = ()
    distinct: bool = False
    subtracts: bool = False

    def __str__(self) -> str:
        """Return what a user calls it."""
        names = ["*" if self.column is None else self.column, *(name for name, _ in self.others)]
        return self.result or f"{self.function}({'DISTINCT ' if self.distinct else ''}{', '.join(names)})"
