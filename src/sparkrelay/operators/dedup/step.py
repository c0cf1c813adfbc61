"""A stream without duplicates, as the topology has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sparkrelay.operators.emitting.step import EmittingStep

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite

__all__ = ["Deduplication"]


@dataclass(frozen=True, slots=True, eq=False)
class Deduplication(EmittingStep):
    """The stateful step of a leg of whose rows only the first of each key goes on.

    Attributes:
        store: the store of the keys that have been; the runtime composes the changelog's name from it.
        columns: names of the columns that make the key.
        within: True where a key is remembered until its first row's event time and the watermark's delay are over;
            False where for as long as rows may come that are equal in its columns, one of which is the event time.
        watermark: column of event times, and how late rows may come; None: keys are remembered for ever.
        logged: False for a store without changelog.
        call_site: the line that wrote it.
        text: the step as people read it.
    """

    store: str
    columns: tuple[str, ...]
    within: bool
    watermark: tuple[str, str] | None
    logged: bool
    call_site: CallSite
    text: str

    holds: ClassVar[str] = "the keys that a stream has had"
    kind: ClassVar[str] = "deduplication"
    names_topic: ClassVar[bool] = True
    keeps_columns: ClassVar[bool] = True

    @property
    def words(self) -> tuple[str, ...]:
        """What the store's name says of it."""
        return "deduplicated", "by", *self.columns
