"""The interface of running aggregates."""

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

    #: Makes a batch's state columns from its groups.
    Partial = Callable[[Groups], list[pa.Array]]

__all__ = ["Aggregate", "OutOfRange", "Partial"]


class OutOfRange(Exception):  # noqa: N818 - the codec makes an error of it
    """A result, of the group ``row``, is out of the range of its type, ``limits``; ``what`` is the numbers."""

    def __init__(self, row: int, limits: str, what: str) -> None:
        super().__init__(row, limits, what)
        self.row, self.limits, self.what = row, limits, what


class Aggregate(ABC):
    """One running aggregate: how rows become a state, two states one, and a state a result. It has no data itself.

    Attributes:
        subtracts: whether rows can be subtracted.
        kinds: the types of its state columns.
    """

    subtracts: ClassVar[bool] = False

    def __init__(self, spec: AggregateSpec, kinds: Sequence[pa.DataType]) -> None:
        self.spec = spec
        self.kinds = tuple(kinds)

    @abstractmethod
    def plan(self, rows: RowGrouping) -> Partial:
        """Add what it needs to a grouping; return the function that makes its state columns from the groups."""

    @abstractmethod
    def combine(self, old: Sequence[Field], new: Sequence[Field]) -> list[Field]:
        """Return the combined states of both, row by row; the input of ``new`` came later.

        Raises:
            OutOfRange: one is beyond its type.
        """

    def subtract(self, old: Sequence[Field], gone: Sequence[Field]) -> list[Field]:
        """Return the states of ``old`` without the input of ``gone``.

        Raises:
            TopologyException: the aggregate cannot do that.
        """
        del old, gone
        raise TopologyException(
            f"{self.spec}: {self.spec.function} cannot subtract a row; use count, sum, avg, or one of the variances "
            "and correlations"
        )

    @abstractmethod
    def result(self, state: Sequence[Field]) -> pa.Array:
        """Return the result column; a state without any field gives the result of no rows."""

    def _argument(self, rows: RowGrouping, kind: pa.DataType | None = None) -> pa.ChunkedArray:
        """Return the argument's column, as ``kind`` or its own type."""
        assert self.spec.column is not None
        return rows.column(self.spec.column, kind or self.spec.input_type)
