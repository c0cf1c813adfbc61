"""The first rows of each key of a stream, each in its place, as workers run them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.operators.table.grouping import GroupedRunner

if TYPE_CHECKING:
    from sparkrelay.operators.ranking.layout import PlacesLayout

__all__ = ["RankingRunner"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRunner(GroupedRunner):
    """A step that keeps the first rows of each key, each in its place."""

    layout: PlacesLayout
