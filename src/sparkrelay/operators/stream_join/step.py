"""A join of two streams, as the topology has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite

__all__ = ["LEFT_ONLY", "StreamJoin"]

#: Ways of joining two streams that give rows of the left one alone.
LEFT_ONLY: Final = frozenset({"left_semi", "left_anti"})


@dataclass(frozen=True, slots=True, eq=False)
class StreamJoin(EmittingStep):
    """The stateful step of a leg whose rows are joined with those of another stream, which other legs read.

    Attributes:
        store: the store of both streams' rows; the runtime composes the changelog's name from it.
        columns: names of the columns that both streams have, and that are equal in rows that go together.
        how: ``inner``, ``left``, ``right``, ``full``, ``left_semi`` or ``left_anti``.
        within: how much earlier and how much later than the left row the right one may be, ``("0 seconds", "1 hour")``.
        by_condition: True if the condition says so, and ``within=`` does not.
        is_left: True for a leg of the left stream.
        watermark: column of this stream's event times, and how late its rows may come.
        logged: False for a store without changelog.
        call_site: the line that wrote it.
        text: the step as people read it.
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
        """What the store's name says of it between those of the two streams."""
        return ("join",)

    @property
    def parts(self) -> tuple[str, ...]:
        """What all instances must agree on."""
        return (self.text, self.store, self.side, *self.watermark)

    @property
    def side(self) -> str:
        """Which of the two streams this is."""
        return "left" if self.is_left else "right"
