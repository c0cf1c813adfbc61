"""How long to wait after a failure: twice as long after each, up to a bound, and never all at the same time (KIP-580).

One class for requests that are repeated (``retry.backoff.ms``), for connections that are made again
(``reconnect.backoff.ms``) and for whatever else is tried again, such as a batch or a thread. It reads no clock.
"""

from __future__ import annotations

import random
from typing import Final

__all__ = ["JITTER", "Backoff"]

#: Pauses vary by this share both ways, as with Kafka's own clients.
JITTER: Final = 0.2
#: 2 to the power of more is no number of seconds that anybody waits.
_MOST_DOUBLINGS: Final = 16


class Backoff:
    """The pauses after failures in a row, in the unit of ``first`` and ``longest``.

    Args:
        first: pause after the first failure.
        longest: bound on pauses, before they vary.
        jitter: pauses vary by this share both ways.
        failures: how many there were in a row already.
    """

    __slots__ = ("_first", "_jitter", "_longest", "failures")

    def __init__(self, first: float, longest: float, *, jitter: float = JITTER, failures: int = 0) -> None:
        self._first, self._longest, self._jitter = first, longest, jitter
        self.failures = failures

    def next(self, *, first: float | None = None, longest: float | None = None) -> float:
        """Count a failure and return the pause after it; ``first`` and ``longest`` replace the usual bounds."""
        doubled: float = (self._first if first is None else first) * 2 ** min(self.failures, _MOST_DOUBLINGS)
        self.failures += 1
        bounded = min(self._longest if longest is None else longest, doubled)
        return bounded * random.uniform(1 - self._jitter, 1 + self._jitter)

    def reset(self) -> None:
        """Begin with the first pause again, after a success."""
        self.failures = 0
