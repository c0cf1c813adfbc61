"""What one running aggregate is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COUNTED", "IN_ORDER", "AggregateSpec"]

#: Functions of the values of a group, whatever their order: how often each is there stands beside the group's state.
COUNTED: Final = frozenset(
    {"collect_set", "sorted_listagg", "mode", "percentile", "percentile_disc", "approx_percentile"}
)
#: Functions of the values in the order of their arrival, which stand beside the state in chunks.
IN_ORDER: Final = frozenset({"collect_list", "listagg"})


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
        options: what else was said of the function, such as a delimiter; nothing of it changes what is kept.
    """

    function: str
    column: str | None
    input_type: pa.DataType
    result_type: pa.DataType
    result: str = ""
    others: tuple[tuple[str, pa.DataType], ...] = ()
    distinct: bool = False
    subtracts: bool = False
    options: tuple[Any, ...] = ()

    @property
    def seen_once(self) -> bool:
        """True where a value makes a difference when a group has it first, and is only remembered from then on."""
        return self.distinct and not self.collects

    @property
    def collects(self) -> bool:
        """True where the values of a group stand beside its state, and the result is made of them."""
        return self.function in COUNTED | IN_ORDER or (self.distinct and self.subtracts)

    @property
    def in_order(self) -> bool:
        """True where these are kept in the order of arrival, and not counted."""
        return self.function in IN_ORDER

    def __str__(self) -> str:
        """Return the result column with its function, ``total (sum)``, or the call, which is also a column's name."""
        if self.result:
            return self.result if "(" in self.result else f"{self.result} ({self.function})"
        names = ["*" if self.column is None else self.column, *(name for name, _ in self.others)]
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{', '.join(names)})"
