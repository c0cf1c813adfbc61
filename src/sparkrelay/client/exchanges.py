"""Many conversations with brokers at once, each written as if it were alone.

An exchange is a generator: it yields a ``Response`` it waits for, or a ``Pause``, and returns its result.
``run_exchanges`` drives any number of them over one ``KafkaClient``, on the caller's thread. So the driver commits all
its tasks in the time of the slowest one, and an exchange that fails stops nobody else. Refused: threads (one connection
is cheaper), asyncio (the caller is synchronous), callbacks (retries become unreadable).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from sparkrelay.errors import KafkaException, SparkRelayError, TimeoutException

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Hashable, Mapping

    from sparkrelay.client.backoff import Backoff
    from sparkrelay.client.kafka_client import KafkaClient, Response

__all__ = ["Exchange", "ExchangeSet", "Pause", "ask", "refresh_metadata", "results", "run_exchange", "run_exchanges"]

T = TypeVar("T")
K = TypeVar("K", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait before trying again.

    Attributes:
        seconds: how long.
        because: the error that made it necessary; named if time runs out meanwhile.
    """

    seconds: float
    because: KafkaException | None = None


Exchange: TypeAlias = "Generator[Response | Pause, None, T]"


def ask(
    client: KafkaClient,
    make: Callable[[], Any],
    *,
    node: Callable[[], int | None],
    backoff: Backoff,
    lane: str = "",
    lost: Callable[[], object] | None = None,
) -> Exchange[Any]:
    """Send a request until it is answered; repeat it when the network failed. Error codes are the caller's.

    Args:
        client: whose connections to use.
        make: returns the request; called for each attempt.
        node: returns the broker to ask, or None for any; called for each attempt.
        backoff: the exchange's pauses.
        lane: which connection to that broker.
        lost: called after an attempt that the network failed, to drop what may be stale.
    """
    while True:
        response = client.send(make(), node=node(), lane=lane)
        yield response
        error = response.error
        if error is None:
            return response.result()
        if not error.retriable:
            raise error
        if lost is not None:
            lost()
        yield Pause(backoff.next(), error)


def refresh_metadata(client: KafkaClient, topics: Collection[str] | None) -> Exchange[None]:
    """Have the brokers and these topics looked up until that is answered; None stands for all topics."""
    backoff = client.config.retry_backoff()
    while True:
        response = client.request_metadata(topics)
        yield response
        if response.error is None:
            return
        if not response.error.retriable:
            raise response.error
        yield Pause(backoff.next(), response.error)


@dataclass(slots=True)
class _Running:
    exchange: Exchange[Any]
    response: Response | None = None
    resume_at: float = 0.0
    last_error: KafkaException | None = None


class ExchangeSet(Generic[K, T]):
    """Exchanges under way, driven step by step by whoever polls the client. Exchanges may be added at any time."""

    def __init__(self) -> None:
        self._running: dict[K, _Running] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._running

    def __len__(self) -> int:
        return len(self._running)

    def add(self, key: K, exchange: Exchange[T]) -> None:
        """Start an exchange with the next step."""
        self._running[key] = _Running(exchange)

    def step(self) -> tuple[dict[K, T | SparkRelayError], float]:
        """Take every exchange that can go on one step further.

        Returns:
            For each key that is done the result, or the SparkRelayError that ended it; and for how many seconds there
            is nothing to do even if nothing is answered.
        """
        now = time.monotonic()
        done: dict[K, T | SparkRelayError] = {}
        advanced = False
        for key, one in list(self._running.items()):
            if (one.response is not None and not one.response.done) or one.resume_at > now:
                continue
            advanced = True
            outcome = _advance(one, now)
            if outcome is not None:
                done[key] = outcome[0]
                del self._running[key]
        pauses = [one.resume_at - now for one in self._running.values() if one.response is None]
        return done, 0.0 if advanced else max(0.0, min(pauses, default=float("inf")))

    def last_error(self, key: K) -> KafkaException | None:
        """Return what hindered an exchange last, if anything did."""
        one = self._running.get(key)
        return None if one is None else one.last_error

    def give_up(self, timeout: float) -> dict[K, T | SparkRelayError]:
        """End all exchanges that are under way; each gets a TimeoutException with its last error."""
        ended: dict[K, T | SparkRelayError] = {}
        for key, one in self._running.items():
            one.exchange.close()
            because = f"; last error: {one.last_error}" if one.last_error is not None else ""
            ended[key] = TimeoutException(f"{key}: not done after {timeout:g} s{because}")
        self._running.clear()
        return ended


def run_exchanges(
    client: KafkaClient, exchanges: Mapping[K, Exchange[T]], timeout: float
) -> dict[K, T | SparkRelayError]:
    """Run exchanges side by side to their ends.

    Args:
        client: the client that sends for them; it is polled here.
        exchanges: by any key.
        timeout: seconds after which those that are not done get a TimeoutException as their result.

    Returns:
        For each key the exchange's result, or the SparkRelayError that ended it.
    """
    deadline = time.monotonic() + timeout
    running: ExchangeSet[K, T] = ExchangeSet()
    for key, exchange in exchanges.items():
        running.add(key, exchange)
    done: dict[K, T | SparkRelayError] = {}
    while True:
        ended, idle_seconds = running.step()
        done.update(ended)
        if not len(running):
            break
        left = deadline - time.monotonic()
        if left <= 0:
            done.update(running.give_up(timeout))
            break
        client.poll(min(left, idle_seconds))
    return {key: done[key] for key in exchanges}


def _advance(one: _Running, now: float) -> tuple[Any] | None:
    """Take an exchange one step further; return its outcome in a tuple if that was the last."""
    if one.response is not None and one.response.error is not None:
        one.last_error = one.response.error
    try:
        step = next(one.exchange)
    except StopIteration as stop:
        return (stop.value,)
    except SparkRelayError as error:
        return (error,)
    if isinstance(step, Pause):
        one.response, one.resume_at = None, now + step.seconds
        one.last_error = step.because or one.last_error
    else:
        one.response, one.resume_at = step, 0.0
    return None


def run_exchange(client: KafkaClient, what: str, exchange: Exchange[T], timeout: float) -> T:
    """Run one exchange and return its result, or raise its error; ``what`` names it if time runs out."""
    outcome = run_exchanges(client, {what: exchange}, timeout)[what]
    if isinstance(outcome, SparkRelayError):
        raise outcome
    return outcome


def results(outcomes: Mapping[K, T | SparkRelayError]) -> dict[K, T]:
    """Return the results of exchanges that must all succeed.

    Raises:
        SparkRelayError: the first failure.
    """
    good: dict[K, T] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, SparkRelayError):
            raise outcome
        good[key] = outcome
    return good
