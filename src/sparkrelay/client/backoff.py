"""Exponential pauses after failures, bounded and with jitter (KIP-580), for requests, connections, batches, threads."""

from __future__ import annotations

import random
from typing import Final, Self

#: Pauses vary by this share both ways, as with Kafka's own clients.
JITTER: Final = 0.2
#: Keeps the power from overflowing; every bound is reached long before.
_MOST_DOUBLINGS: Final = 16


#: First and longest pause, in seconds: a recovered broker is noticed within the longest.
_BROKER_SECONDS: Final = (0.1, 5.0)


class Backoff:
    """The pauses after consecutive failures, in the unit of ``first`` and ``longest``.

    Args:
        first: pause after the first failure.
        longest: upper bound, before jitter.
        jitter: share by which pauses vary, both ways.
        failures: consecutive failures so far.
    """

    __slots__ = ("_first", "_jitter", "_longest", "failures")

    def __init__(self, first: float, longest: float, *, jitter: float = JITTER, failures: int = 0) -> None:
        self._first, self._longest, self._jitter = first, longest, jitter
        self.failures = failures

    def next(self, *, first: float | None = None, longest: float | None = None) -> float:
        """Count a failure and return the pause after it; ``first`` and ``longest`` override the usual ones."""
        doubled: float = (self._first if first is None else first) * 2 ** min(self.failures, _MOST_DOUBLINGS)
        self.failures += 1
        bounded = min(self._longest if longest is None else longest, doubled)
        return bounded * random.uniform(1 - self._jitter, 1 + self._jitter)

    @classmethod
    def for_brokers(cls) -> Self:
        """Return the pauses of a thread whose broker does not answer, in seconds."""
        return cls(*_BROKER_SECONDS, jitter=0)

    def reset(self) -> None:
        """Start over after a success."""
        self.failures = 0
