"""When to request the metadata of which topics.

Three reasons: a leader is stale or missing, somebody waits for an answer (a group's leader, the application), or the
metadata is old. Missing topics are requested more often, because their subscribers wait for their creation. The client
stores the answer in ``client.metadata`` before it calls ``handle``. Topics that the broker refuses (invalid name, no
right to read) are errors for their subscribers. A reader of a missing or refused topic reports it stale again and
again; such topics are requested ever more slowly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.consumer.base.requests import NOTHING, PollResult, RequestState, Unsent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sparkrelay.client.metadata import Metadata
    from sparkrelay.errors import KafkaException

_ABSENT_SECONDS: Final = 1.0
#: Pause after an answer; for topics missing in answers it doubles each time, up to the above.
_PAUSE_SECONDS: Final = 0.1
#: Errors of topics that waiting does not change.
_REFUSED: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True)
class TopicsWanted:
    """A metadata request: topics by name (none: brokers only), or None for all."""

    topics: frozenset[str] | None


@dataclass(slots=True, eq=False)
class _Ask:
    topics: frozenset[str] | None
    done: Callable[[], None]
    failed: Callable[[KafkaException], None] | None


@dataclass(eq=False)
class TopicMetadataManager:
    """Keeps metadata of topics up to date.

    Args:
        refused: called with a wanted topic that the broker refuses, and its error; defaults to ``fail``.
    """

    metadata: Metadata  # what is known; the client fills it
    max_age: float  # seconds after which metadata is refreshed
    state: RequestState  # pauses between attempts
    fail: Callable[[KafkaException], None]  # called with errors that repeating does not change
    refused: Callable[[str, KafkaException], None] | None = None

    def __post_init__(self) -> None:
        self._report_refused = self.refused if self.refused is not None else lambda _, error: self.fail(error)
        self._wanted: frozenset[str] = frozenset()
        self._all = False
        self._stale: set[str] = set()
        self._refresh = False
        self._asks: list[_Ask] = []
        self._asked_at = -math.inf
        self._not_before = -math.inf
        #: Topics missing in answers: their backoff, and when they may be requested again.
        self._lacking: dict[str, tuple[Backoff, float]] = {}

    def want(self, topics: Iterable[str]) -> None:
        """Keep the metadata of exactly these topics up to date."""
        wanted = frozenset(topics)
        for topic in wanted - self._wanted:
            self._lacking.pop(topic, None)
            if self.metadata.topic(topic) is None:
                self._stale.add(topic)
        self._wanted = wanted

    def want_all(self, wanted: bool) -> None:
        """Keep all topics of the cluster up to date, or only those of ``want``."""
        self._all = wanted

    def stale(self, topic: str) -> None:
        """Request a topic soon: its leaders are wrong or unknown."""
        self._stale.add(topic)

    def refresh(self) -> None:
        """Request the brokers soon."""
        self._refresh = True

    def ask(
        self,
        topics: frozenset[str] | None,
        done: Callable[[], None],
        failed: Callable[[KafkaException], None] | None = None,
    ) -> None:
        """Request topics (None: all) now, and call ``done()`` on the answer.

        An error that repeating does not change ends the request and goes to ``failed``. Without ``failed`` the request
        is repeated: a login may be fixed, and nobody else would answer the caller.
        """
        self._asks.append(_Ask(topics, done, failed))

    def refusal(self, topics: Iterable[str]) -> KafkaException | None:
        """Return the error for the first of ``topics`` that the broker refused last."""
        first = self._first_refused(topics)
        return first[1] if first is not None else None

    def _first_refused(self, topics: Iterable[str]) -> tuple[str, KafkaException] | None:
        for topic in sorted(topics):
            if (code := self.metadata.topic_error(topic)) in _REFUSED:
                return topic, broker_error(code, f"topic {topic!r}")
        return None

    def poll(self, now: float) -> PollResult:
        """Return a request if there is a reason."""
        absent = {
            topic
            for topic in self._wanted
            if self.metadata.topic(topic) is None and self.metadata.topic_error(topic) not in _REFUSED
        }
        due = math.inf
        if self._wanted or self._all:
            due = self._asked_at + (_ABSENT_SECONDS if absent else self.max_age)
        if self._refresh:
            due = now
        for topic in self._stale:
            due = min(due, self._lacking[topic][1] if topic in self._lacking else now)
        # A stale leader stays stale for a while.
        due = now if self._asks else max(due, self._not_before)
        if due == math.inf:
            return NOTHING
        wait = max(due - now, self.state.wait(now))
        return PollResult(wait=wait) if wait > 0 else PollResult((self._unsent(now),))

    def _unsent(self, now: float) -> Unsent:
        asks, self._asks = self._asks, []
        stale, self._stale = frozenset(self._stale), set()
        self._refresh = False
        topics: frozenset[str] | None = None if self._all else self._wanted | stale
        for ask in asks:
            topics = None if topics is None or ask.topics is None else topics | ask.topics
        self.state.sent()
        self._asked_at = now
        named = self._wanted | stale

        def handle(_: Any, error: KafkaException | None, now: float) -> None:
            if error is None:
                self._note_lacking(named, now)
            self._answered(asks, stale, error, now)

        return Unsent(TopicsWanted(topics), handle)

    def _note_lacking(self, named: frozenset[str], now: float) -> None:
        for topic in named:
            backoff, _ = self._lacking.pop(topic, (Backoff(_PAUSE_SECONDS, _ABSENT_SECONDS, jitter=0), now))
            if self.metadata.topic(topic) is None:
                self._lacking[topic] = backoff, now + backoff.next()
        self._lacking = {topic: one for topic, one in self._lacking.items() if topic in named or one[1] > now}

    def _answered(self, asks: list[_Ask], stale: frozenset[str], error: KafkaException | None, now: float) -> None:
        if error is not None:
            self.state.failed(now)
            self._stale |= stale
            self._refresh = self._refresh or error.retriable
            if error.retriable:
                self._asks = asks + self._asks
            else:
                self._refused(asks, error)
            return
        self.state.succeeded()
        self._not_before = now + _PAUSE_SECONDS
        for ask in asks:
            ask.done()
        if (refused := self._first_refused(self._wanted)) is not None:
            self._report_refused(*refused)

    def _refused(self, asks: list[_Ask], error: KafkaException) -> None:
        lasting = [ask for ask in asks if ask.failed is None]
        self._asks = lasting + self._asks
        if self._wanted or self._all or self._stale or len(lasting) == len(asks):
            self.fail(error)
        for ask in asks:
            if ask.failed is not None:
                ask.failed(error)
