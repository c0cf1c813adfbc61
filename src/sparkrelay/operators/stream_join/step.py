"""Joins of two streams in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sparkrelay.topology.call_site import CallSite
    from sparkrelay.topology.event_time import EventTime

#: Join types whose output has only left columns.
LEFT_ONLY: Final = frozenset({"left_semi", "left_anti"})


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin(EmittingStep):
    """A stateful step that joins a leg's rows with those of another stream, which other legs read.

    Attributes:
        store: the store of both streams' rows; the changelog is named after it.
        columns: names of the key columns, which both streams have.
        how: ``inner``, ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``.
        span_us: how much earlier and later than the left row the right one may be, in microseconds.
        is_left: True for a leg of the left stream.
        made: the columns of pairs: the key's, then the left stream's others, then the right one's.
        watermark: what this stream's event times are, and how late they may come.
        logged: False for a store without changelog.
        call_site: the user's line.
        text: the step for messages.
    """

    store: str
    columns: tuple[str, ...]
    how: str
    span_us: tuple[int, int]
    is_left: bool
    made: StructType
    watermark: EventTime
    logged: bool
    call_site: CallSite
    text: str

    holds: ClassVar[str] = "the rows of a join, of both streams"
    kind: ClassVar[str] = "join"
    keeps_times: ClassVar[bool] = False

    @property
    def words(self) -> tuple[str, ...]:
        """Parts of the store's name, between the two streams'."""
        return ("join",)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that all instances must agree on."""
        return (self.text, self.store, self.side, str(self.watermark))

    @property
    def side(self) -> str:
        """``left`` or ``right``."""
        return "left" if self.is_left else "right"
