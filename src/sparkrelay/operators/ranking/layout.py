"""How rankings lie in their stores: each place under its key, or all rows of a key beside one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.operators.ranking.first_rows import FirstRows
from sparkrelay.operators.table.layout import TableLayout

if TYPE_CHECKING:
    from sparkrelay.operators.ranking.row_order import RowRanking

__all__ = ["PlacesLayout", "RowsBesideLayout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesLayout(TableLayout):
    """How the first rows of each key lie in their store: each under the key and its place.

    Attributes:
        ranking: which rows are held.
    """

    ranking: RowRanking

    @property
    def codec(self) -> FirstRows:
        """What reads and merges the store's values."""
        return FirstRows(self.row, self.ranking)

    def said(self) -> dict[str, Any]:
        """Return what :meth:`described` says beside the columns."""
        return {**TableLayout.said(self), "ranking": self.ranking.said()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsBesideLayout(PlacesLayout):
    """How all rows of each key lie beside one another, which have no places yet (``counted_rows``)."""

    holds: ClassVar[str] = "rows of each key, and not their places"
