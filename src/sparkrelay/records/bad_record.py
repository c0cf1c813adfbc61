"""A value that its format cannot read."""

from __future__ import annotations

from dataclasses import dataclass

from sparkrelay.printable import printable


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A value that its format cannot read.

    Attributes:
        index: its row.
        reason: what is wrong; control characters of the quoted value are escaped.
    """

    index: int
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))
