"""Sentinels, error codes and the small values of the assignment protocol."""

from __future__ import annotations

import enum
from typing import NamedTuple, Self

from sparkrelay.settings import host_and_port

__all__ = [
    "LATEST_OFFSET",
    "LATEST_SUPPORTED_VERSION",
    "LONG_MAX",
    "NO_REBALANCE_SCHEDULED",
    "UNKNOWN_OFFSET",
    "UNKNOWN_OFFSET_SUM",
    "ErrorCode",
    "HostInfo",
    "check_version",
]

#: The newest wire version that this library writes and fully reads.
LATEST_SUPPORTED_VERSION = 11

#: Largest signed 64-bit integer: where sums of offsets stop, and "never" among times.
LONG_MAX = (1 << 63) - 1

#: Reported as the offset sum of a task that is active and running.
LATEST_OFFSET = -2
#: Reported where the offset sum of a task is not known.
UNKNOWN_OFFSET_SUM = -3
#: The unknown offset of a single changelog partition; sums leave it out.
UNKNOWN_OFFSET = -4

#: ``next_rebalance_ms`` of a member that need not ask for a rebalance.
NO_REBALANCE_SCHEDULED = LONG_MAX


class ErrorCode(enum.IntEnum):
    """What an assignment (or, for a shutdown, a subscription) says instead of tasks."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4


class HostInfo(NamedTuple):
    """Where an instance answers queries: the setting ``application.server``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, end_point: str) -> Self:
        """Read ``host:port``; an IPv6 host stands in brackets.

        Raises:
            ValueError: there is no host, or no port between 1 and 65535.
        """
        return cls(*host_and_port(end_point))


def check_version(version: int, *, latest: int = LATEST_SUPPORTED_VERSION) -> None:
    """Raise ValueError if ``version`` is not between 1 and ``latest``."""
    if not 1 <= version <= latest:
        raise ValueError(f"version must be between 1 and {latest}; was: {version}")
