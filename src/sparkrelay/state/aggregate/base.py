"""What every kind of running aggregate can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from sparkrelay.errors import TopologyException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from sparkrelay.state.aggregate.grouped_rows import Groups, RowGrouping
    from sparkrelay.state.aggregate.spec import AggregateSpec
    from sparkrelay.state.layout import Field

    #: Makes the state columns of a batch's groups of what their rows have been grouped to.
    Partial = Callable[[Groups], list[pa.Array]]

__all__ = ["Aggregate", "OutOfRange", "Partial"]


class OutOfRange(Exception):  # noqa: N818 - the codec makes an error of it
    """A result has left the range of its type.

    Attributes:
        row: which group's.
        limits: the type.
        what: the numbers.
    """

    def __init__(self, row: int, limits: str, what: str) -> None:
        super().__init__(row, limits, what)
        self.row, self.limits, self.what = row, limits, what


class Aggregate(ABC):
    """One running aggregate: how rows become a state, two states one, and a state a result. It holds nothing itself.

    Attributes:
        subtracts: whether what was added can be taken out again.
        kinds: the types of its state columns.
    """

    subtracts: ClassVar[bool] = False

    def __init__(self, spec: AggregateSpec, kinds: Sequence[pa.DataType]) -> None:
        self.spec = spec
        self.kinds = tuple(kinds)

    @abstractmethod
    def plan(self, rows: RowGrouping) -> Partial:
        """Ask for what it needs of rows that are about to be grouped; return what makes the state columns of that."""

    @abstractmethod
    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        """Return the states of what two states are of, one by one; the rows of ``new`` came later.

        Raises:
            OutOfRange: one is beyond its type.
        """

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        """Return the states of what ``old`` is of, without what ``gone`` is of.

        Raises:
            TopologyException: that cannot be known of a state.
        """
        del old, gone
        raise TopologyException(
            f"{self.spec}: {self.spec.function} cannot take a row out again; use count, sum, avg, or one of the "
            "variances and correlations"
        )

    @abstractmethod
    def result(self, state: Sequence[Field]) -> pa.Array:
        """Return the result column; a state of which no field is there gives what no rows do."""
