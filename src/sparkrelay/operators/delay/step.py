"""A stream whose rows wait, as the topology has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite

__all__ = ["RECORD_TIME", "Delay"]

#: In the place of a column of event times: the records' own timestamps.
RECORD_TIME: Final = ""


@dataclass(frozen=True, slots=True, eq=False)
class Delay(EmittingStep):
    """The stateful step of a leg whose rows wait, each until the watermark has passed its event time and a grace.

    Attributes:
        store: the store of the rows that wait; the runtime composes the changelog's name from it.
        columns: names of those by which the rows are looked up behind it.
        grace: how long, such as ``"5 minutes"``.
        watermark: column of event times, ``RECORD_TIME`` for the records' timestamps, and how late rows may come.
        call_site: the line that wrote it.
        text: the step as people read it.
        logged: True: it has a changelog.
    """

    store: str
    columns: tuple[str, ...]
    grace: str
    watermark: tuple[str, str]
    call_site: CallSite
    text: str
    logged: bool = True

    holds: ClassVar[str] = "rows that wait for a table's"
    kind: ClassVar[str] = "delay"

    @property
    def words(self) -> tuple[str, ...]:
        """What the store's name says of it."""
        return "delayed", "by", *self.columns

    @property
    def waits(self) -> str:
        """How long rows wait beyond the watermark's delay."""
        return self.grace
