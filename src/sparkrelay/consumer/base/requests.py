"""The contract between request managers and their driver.

A request manager is a state machine that is told the time. Its driver (the network thread, or a worker without threads)
calls ``poll(now)``, sends the returned requests, and passes each answer to the request's ``handle``. A manager does no
I/O, never blocks, starts no thread and reads no clock; one thread uses it. So a unit test can produce every failure.
See the consumer threading refactor, "Request Manager".
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.errors import KafkaException


@dataclass(frozen=True, slots=True)
class Unsent:
    """A request to send.

    Attributes:
        handle: called with (message, error, now): exactly one of message and error is not None.
    """

    request: Any
    handle: Callable[[Any, KafkaException | None, float], None]
    node: int | None = None  # broker id; None for any
    lane: str = ""  # name of the connection, see ``KafkaClient``
    timeout: float | None = None  # seconds until it fails; None for ``request.timeout.ms``


@dataclass(frozen=True, slots=True)
class PollResult:
    """What a manager wants now.

    Attributes:
        dropped: connections to close first, as (broker id, lane); their requests will not be answered.
    """

    requests: tuple[Unsent, ...] = ()
    wait: float = math.inf  # seconds after which to poll it again at the latest
    dropped: tuple[tuple[int, str], ...] = ()


NOTHING: Final = PollResult()


def aligned_wait_ms(longest_ms: int, now: float) -> int:
    """Return how long a broker may hold a request back so that all consumers of the process are answered together.

    Waits end at multiples of ``longest_ms``, the longest wait allowed; ``now`` is monotonic. An idle process then wakes
    once instead of once per consumer. Waking is expensive because the caches are cold: 500 microseconds of CPU for an
    exchange every 4 ms, 100 in a row (measured).
    """
    if longest_ms <= 0:
        return longest_ms
    left = longest_ms - int((now + _PHASE) * 1000) % longest_ms
    # A very short wait would only add an exchange.
    return left if left >= longest_ms // 8 else longest_ms


#: Keeps the processes of a cluster apart.
_PHASE: Final = random.random()


class RequestManager(Protocol):
    """A conversation with brokers; see the module for the rules."""

    def poll(self, now: float) -> PollResult:
        """Return requests to send now, and when to poll again. ``now`` is monotonic, in seconds."""


class RequestState:
    """Whether a request may be sent: at most one in flight, and the pauses of ``backoff`` after failures."""

    __slots__ = ("_backoff", "in_flight", "until")

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self.in_flight = False
        self.until = -math.inf

    def wait(self, now: float) -> float:
        """Return seconds until the next request may be sent: 0 for now, infinity while one is in flight."""
        return math.inf if self.in_flight else max(0.0, self.until - now)

    def sent(self) -> None:
        """Record that a request was sent."""
        self.in_flight = True

    def answered(self) -> None:
        """Record an intermediate answer: the next request may be sent, but earlier failures still count."""
        self.in_flight = False

    def succeeded(self) -> None:
        """Record a final answer."""
        self.in_flight = False
        self._backoff.reset()
        self.until = -math.inf

    def failed(self, now: float) -> None:
        """Record a failure; the next request waits."""
        self.in_flight = False
        self.until = now + self._backoff.next()
