"""The contract between the driver and the steps of a resident job."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sparkrelay.runtime.contract.channel import Address

_SECONDS: Final = struct.Struct("<d")


class Role(StrEnum):
    """Position of a step in its leg."""

    SOURCE = "source"
    BETWEEN = "between"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class StepName:
    """One step of a resident job; ``key`` authenticates it to the driver (``channel``). Pickled with its plan."""

    leg: str
    role: Role
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ResidentCommand:
    """How the steps of a resident job begin; the marker column pushes rows through every buffer."""

    address: Address
    marker_bytes: int


def stamped(data: bytes, cpu_seconds: float) -> bytes:
    """Return a command or a report, prefixed with the CPU seconds that its leg has spent on the micro-batch."""
    return _SECONDS.pack(cpu_seconds) + data


def read_stamp(data: bytes) -> tuple[float, bytes]:
    """Return the CPU seconds and the data after them."""
    (seconds,) = _SECONDS.unpack_from(data)
    return seconds, data[_SECONDS.size :]
