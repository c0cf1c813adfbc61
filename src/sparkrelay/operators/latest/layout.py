"""How a table of newest rows lies in its store: each row under its message key."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.operators.table.layout import TableLayout
from sparkrelay.operators.table.newest_rows import NewestRows

__all__ = ["LatestLayout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestLayout(TableLayout):
    """How a table of newest rows lies in its store."""

    @property
    def codec(self) -> NewestRows:
        """What reads and merges the store's values."""
        return NewestRows(self.row)
