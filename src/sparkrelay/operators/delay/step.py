"""Delayed streams in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime

#: In place of an event time column: the records' timestamps.
RECORD_TIME: Final = ""


@dataclass(frozen=True, slots=True, eq=False)
class Delay(EmittingStep):
    """A stateful step that buffers each row until the watermark has passed its event time plus a grace.

    Attributes:
        store: the store of buffered rows; the changelog is named after it.
        columns: names of the key columns of the lookup downstream.
        grace: such as ``"5 minutes"``.
        made: the columns of the rows.
        watermark: what event times are, ``RECORD_TIME`` for the records' timestamps, and how late they may come.
        call_site: the user's line.
        text: the step for messages.
        logged: always True.
    """

    store: str
    columns: tuple[str, ...]
    grace: str
    made: StructType
    watermark: EventTime
    call_site: CallSite
    text: str
    logged: bool = True

    holds: ClassVar[str] = "rows that wait for a table's"
    kind: ClassVar[str] = "delay"

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name."""
        return "delayed", "by", *self.columns

    @property
    def waits(self) -> str:
        """How long rows are buffered beyond the watermark's delay."""
        return self.grace
