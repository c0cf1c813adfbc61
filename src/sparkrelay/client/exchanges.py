"""Concurrent exchanges with brokers, each written as sequential code.

An exchange is a generator: it yields a ``Response`` or a ``Pause`` to wait for, and returns its result.
``run_exchanges`` drives any number of them over one ``KafkaClient``, on the caller's thread. So the driver commits all
its tasks in the time of the slowest one, and a failed exchange stops no other. Refused: threads (one connection is
cheaper), asyncio (the caller is synchronous), callbacks (retries become unreadable).
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

T = TypeVar("T")
K = TypeVar("K", bound="Hashable")


@dataclass(frozen=True, slots=True)
class Pause:
    """A pause of so many seconds before a retry, and its reason, for the message of a timeout."""

    seconds: float
    because: KafkaException | None = None


Exchange: TypeAlias = "Generator[Response | Pause, None, T]"


def ask(
    client: KafkaClient,
    make: Callable[[], Any],
    *,
    node: Callable[[], int | None] = lambda: None,
    backoff: Backoff | None = None,
) -> Exchange[Any]:
    """Send a request until it is answered, retrying network failures; error codes are left to the caller.

    Args:
        client: whose connections to use.
        make: returns the request; called for each attempt.
        node: returns the broker to ask, None for any; called for each attempt.
        backoff: the exchange's pauses, if it has any besides these.
    """
    backoff = backoff or client.config.retry_backoff()
    return (yield from _answered(lambda: client.send(make(), node=node()), backoff))


def refresh_metadata(client: KafkaClient, topics: Collection[str] | None) -> Exchange[None]:
    """Request the metadata of brokers and topics until it is answered; None stands for all topics."""
    yield from _answered(lambda: client.request_metadata(topics), client.config.retry_backoff())


def _answered(send: Callable[[], Response], backoff: Backoff) -> Exchange[Any]:
    while True:
        response = send()
        yield response
        error = response.error
        if error is None:
            return response.result()
        if not error.retriable:
            raise error
        yield Pause(backoff.next(), error)


@dataclass(slots=True)
class _Running:
    exchange: Exchange[Any]
    response: Response | None = None
    resume_at: float = 0.0
    last_error: KafkaException | None = None


class ExchangeSet(Generic[K, T]):
    """Running exchanges, advanced step by step by the thread that polls the client. More may be added at any time."""

    def __init__(self) -> None:
        self._running: dict[K, _Running] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._running

    def __len__(self) -> int:
        return len(self._running)

    def add(self, key: K, exchange: Exchange[T]) -> None:
        """Start an exchange at the next step."""
        self._running[key] = _Running(exchange)

    def step(self) -> tuple[dict[K, T | SparkRelayError], float]:
        """Advance every exchange that is ready.

        Returns:
            The result, or the SparkRelayError, of each exchange that ended; and for how many seconds there is nothing
            to do unless an answer arrives.
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
        """Return the last error of an exchange, if any."""
        one = self._running.get(key)
        return None if one is None else one.last_error

    def give_up(self, timeout: float) -> dict[K, T | SparkRelayError]:
        """End all running exchanges with a TimeoutException that names their last errors."""
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
    """Run exchanges concurrently until all have ended, polling the client.

    Returns:
        For each key the exchange's result, or the SparkRelayError that ended it: a TimeoutException after ``timeout``
        seconds.
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
    """Advance an exchange; return its outcome in a tuple if it has ended."""
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
    """Run one exchange and return its result or raise its error; ``what`` names it in a timeout."""
    outcome = run_exchanges(client, {what: exchange}, timeout)[what]
    if isinstance(outcome, SparkRelayError):
        raise outcome
    return outcome


def results(outcomes: Mapping[K, T | SparkRelayError]) -> dict[K, T]:
    """Return the results of exchanges, or raise the first failure."""
    good: dict[K, T] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, SparkRelayError):
            raise outcome
        good[key] = outcome
    return good
