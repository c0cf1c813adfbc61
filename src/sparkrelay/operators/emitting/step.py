"""What stateful steps that emit a stream have in common: rows that never change, by the only way out of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from sparkrelay.topology.call_site import CallSite

__all__ = ["EmittingStep"]


class EmittingStep:
    """A step of a leg.

    Attributes:
        store: the store's name; the runtime composes the changelog's name from it.
        watermark: column of event times, and how late rows may come; None: it does not go by event time.
        logged: False for a store without changelog.
        call_site: the line that wrote it.
        text: the step as people read it.
        holds: what its store holds, in words.
        kind: the step in one word, among what all instances must agree on.
        names_topic: True if a repartition topic right in front of it is called as its store is.
        keeps_times: False if the columns that leave it are others, of whose times nothing is known.
        keeps_columns: True if rows leave it with all the columns that they had, Kafka's own among them.
    """

    __slots__ = ()

    store: str
    watermark: tuple[str, str] | None
    logged: bool
    call_site: CallSite
    text: str

    holds: ClassVar[str]
    kind: ClassVar[str]
    names_topic: ClassVar[bool] = False
    keeps_times: ClassVar[bool] = True
    keeps_columns: ClassVar[bool] = False

    @property
    def by(self) -> tuple[str, ...]:
        """Names of the columns by which rows go together, where that is known."""
        return getattr(self, "columns", ())

    @property
    def words(self) -> tuple[str, ...]:
        """What the store's name says of it behind the stream's, where the user has given none."""
        raise NotImplementedError

    def named(self, store: str) -> Self:
        """Return the step with its store's name."""
        return dataclasses.replace(self, store=store)  # type: ignore[type-var]

    @property
    def parts(self) -> tuple[str, ...]:
        """What all instances must agree on."""
        return (self.text, self.store, *(self.watermark or ()))

    @property
    def goes_by_clock(self) -> bool:
        """Whether what it does depends on processing time."""
        return False

    @property
    def waits(self) -> str | None:
        """How long rows wait beyond the watermark's delay; None: not at all."""
        return None
