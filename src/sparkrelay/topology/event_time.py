"""What a watermark goes by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EventTime:
    """What a watermark goes by.

    Attributes:
        column: the column of event times, in words.
        delay_ms: how late rows may come.
    """

    column: str
    delay_ms: int
