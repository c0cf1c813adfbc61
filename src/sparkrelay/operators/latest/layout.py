"""Layout of a table of newest rows: each row under its message key."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.operators.table.layout import TableLayout
from sparkrelay.operators.table.newest_rows import NewestRows


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestLayout(TableLayout):
    """Layout of a table of newest rows."""

    @property
    def codec(self) -> NewestRows:
        """Codec of the store's values."""
        return NewestRows(self.row)
