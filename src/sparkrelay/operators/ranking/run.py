"""Rankings of a stream's rows in workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.operators.table.grouping import GroupedRunner

if TYPE_CHECKING:
    from sparkrelay.operators.ranking.layout import PlacesLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRunner(GroupedRunner):
    """Runs a step that keeps the first rows of each key."""

    layout: PlacesLayout
