"""Layouts of rankings: a key for each place, or all rows of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sparkrelay.operators.ranking.first_rows import FirstRows
from sparkrelay.operators.table.layout import TableLayout

if TYPE_CHECKING:
    from sparkrelay.operators.ranking.row_order import RowRanking


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesLayout(TableLayout):
    """Layout of the first rows of each key: each under the key and its place."""

    ranking: RowRanking

    @property
    def codec(self) -> FirstRows:
        """Codec of the store's values."""
        return FirstRows(self.row, self.ranking)

    def said(self) -> dict[str, Any]:
        """Return the description besides the columns."""
        return {**TableLayout.said(self), "ranking": self.ranking.said()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsBesideLayout(PlacesLayout):
    """Layout of all rows of each key, without places (``counted_rows``)."""

    holds: ClassVar[str] = "rows of each key, and not their places"
