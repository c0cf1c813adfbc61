"""What the driver and the steps of a resident job agree on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.channel import Address

__all__ = ["ResidentCommand", "Role", "StepName"]


class Role(StrEnum):
    """Where a step stands in its leg."""

    SOURCE = "source"
    BETWEEN = "between"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class StepName:
    """One step of a resident job; pickled with its plan.

    Attributes:
        leg: the leg's id.
        role: where the step stands in it.
        key: what shows the driver and the step to each other (``channel``).
    """

    leg: str
    role: Role
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ResidentCommand:
    """How the steps of a resident job begin.

    Attributes:
        address: where the driver awaits them.
        marker_bytes: length of the column that pushes a micro-batch's rows through every buffer on the way.
    """

    address: Address
    marker_bytes: int
