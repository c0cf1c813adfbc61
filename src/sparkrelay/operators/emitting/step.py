"""What stateful steps that emit a stream have in common: rows that never change, by the only way out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    """

    __slots__ = ()

    store: str
    watermark: tuple[str, str] | None
    logged: bool
    call_site: CallSite
    text: str

    @property
    def waits(self) -> str | None:
        """How long rows wait beyond the watermark's delay; None: not at all."""
        return None
