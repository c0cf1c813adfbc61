"""Joins of two streams in the topology."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite

#: Join types whose output has only left columns.
LEFT_ONLY: Final = frozenset({"left_semi", "left_anti"})


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin(EmittingStep):
    """A stateful step that joins a leg's rows with those of another stream, which other legs read.

    Attributes:
        store: the store of both streams' rows; the changelog is named after it.
        columns: names of the key columns, which both streams have.
        how: ``inner``, ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``.
        within: how much earlier and later than the left row the right one may be, ``("0 seconds", "1 hour")``.
        by_condition: True if the range comes from the condition, not from ``within=``.
        is_left: True for a leg of the left stream.
        watermark: event time column of this stream, and delay.
        logged: False for a store without changelog.
        call_site: the user's line.
        text: the step for messages.
    """

    store: str
    columns: tuple[str, ...]
    how: str
    within: tuple[str, str]
    by_condition: bool
    is_left: bool
    watermark: tuple[str, str]
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
        return (self.text, self.store, self.side, *self.watermark)

    @property
    def side(self) -> str:
        """``left`` or ``right``."""
        return "left" if self.is_left else "right"
