"""Sentinels, error codes and the small values of the assignment protocol."""

from __future__ import annotations

import enum
from typing import NamedTuple, Self

from sparkrelay.settings import host_and_port

#: The newest wire version that this library writes and reads completely.
LATEST_SUPPORTED_VERSION = 11

#: The largest signed 64-bit integer: the limit of offset sums, and "never" as a time.
LONG_MAX = (1 << 63) - 1

#: Offset sum of an active, running task.
LATEST_OFFSET = -2
#: Offset sum of a task if unknown.
UNKNOWN_OFFSET_SUM = -3
#: Unknown offset of one changelog partition, which sums omit.
UNKNOWN_OFFSET = -4

#: ``next_rebalance_ms`` of a member that need not request a rebalance.
NO_REBALANCE_SCHEDULED = LONG_MAX


class ErrorCode(enum.IntEnum):
    """The error of an assignment, or (shutdown only) of a subscription."""

    NONE = 0
    INCOMPLETE_SOURCE_TOPIC_METADATA = 1
    VERSION_PROBING = 2
    ASSIGNMENT_ERROR = 3
    SHUTDOWN_REQUESTED = 4


class HostInfo(NamedTuple):
    """The address at which an instance answers queries (``application.server``)."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, end_point: str) -> Self:
        """Parse ``host:port``, an IPv6 host in brackets.

        Raises:
            ValueError: there is no host, or no port from 1 to 65535.
        """
        return cls(*host_and_port(end_point))


def check_version(version: int, *, latest: int = LATEST_SUPPORTED_VERSION) -> None:
    """Raise ValueError if ``version`` is not between 1 and ``latest``."""
    if not 1 <= version <= latest:
        raise ValueError(f"version must be between 1 and {latest}; was: {version}")
