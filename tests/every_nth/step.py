"""Every n-th row of a key, in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime

__all__ = ["EveryNth"]


@dataclass(frozen=True, slots=True, eq=False)
class EveryNth(EmittingStep):
    """A stateful step that emits every n-th row of each key."""

    store: str
    columns: tuple[str, ...]
    n: int
    made: StructType
    call_site: CallSite
    text: str
    logged: bool = True
    watermark: EventTime | None = None

    holds: ClassVar[str] = "the number of rows of each key"
    kind: ClassVar[str] = "every-nth"
    keeps_columns: ClassVar[bool] = True

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name."""
        return f"every-{self.n}", "by", *self.columns
