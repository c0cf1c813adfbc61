"""The description of one running aggregate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: Functions of a group's values regardless of their order: each value's count is stored beside the group's state.
COUNTED: Final = frozenset(
    {"collect_set", "sorted_listagg", "mode", "percentile", "percentile_disc", "approx_percentile"}
)
#: Functions of a group's values in the order of arrival, which are stored beside the state in chunks.
IN_ORDER: Final = frozenset({"collect_list", "listagg"})


@dataclass(frozen=True, slots=True)
class AggregateSpec:
    """One running aggregate.

    Attributes:
        function: its name.
        column: the argument's column; None for ``count_all``.
        input_type: the argument's type.
        result_type: the type of the result column.
        result: the result column, for errors; empty: the function and its argument.
        others: name and type of each further argument's column.
        distinct: whether each value of a group counts once.
        subtracts: whether values will be subtracted: a sum then counts them, to be null when none is left.
        options: of the function, such as a delimiter; they do not change the state.
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
        """Whether a distinct value is added when a group first has it, and only remembered afterwards."""
        return self.distinct and not self.collects

    @property
    def collects(self) -> bool:
        """Whether the values of a group are stored beside its state, and the result is computed from them."""
        return self.function in COUNTED | IN_ORDER or (self.distinct and self.subtracts)

    @property
    def in_order(self) -> bool:
        """Whether these are kept in the order of arrival instead of counted."""
        return self.function in IN_ORDER

    def __str__(self) -> str:
        if self.result:
            return self.result if "(" in self.result else f"{self.result} ({self.function})"
        names = ["*" if self.column is None else self.column, *(name for name, _ in self.others)]
        return f"{self.function}({'DISTINCT ' if self.distinct else ''}{', '.join(names)})"
