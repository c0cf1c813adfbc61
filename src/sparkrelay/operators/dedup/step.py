"""Deduplication in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime


@dataclass(frozen=True, slots=True, eq=False)
class Deduplication(EmittingStep):
    """A stateful step that emits only the first row of each key.

    Attributes:
        store: the store of the known keys; the changelog is named after it.
        columns: names of the key columns.
        within: True to remember a key until its first row's event time plus the watermark's delay; False as long as
            equal rows are not late: the key has the event time.
        made: the columns of the stream.
        watermark: what event times are, and how late they may come; None: keys are remembered forever.
        logged: False for a store without changelog.
        call_site: the user's line.
        text: the step for messages.
    """

    store: str
    columns: tuple[str, ...]
    within: bool
    made: StructType
    watermark: EventTime | None
    logged: bool
    call_site: CallSite
    text: str

    holds: ClassVar[str] = "the keys that a stream has had"
    kind: ClassVar[str] = "deduplication"
    names_topic: ClassVar[bool] = True
    keeps_columns: ClassVar[bool] = True

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name."""
        return "deduplicated", "by", *self.columns

    @property
    def endless(self) -> str | None:
        """Why its state only grows and how to bound it; None with a watermark."""
        if self.watermark is not None:
            return None
        return (
            "remembers its keys for ever, so its state and its changelog only grow; put "
            'withWatermark("time", "1 day") before it, and use dropDuplicatesWithinWatermark(), or include that column'
        )
