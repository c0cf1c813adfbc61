"""The network thread: events in, requests out, answers in, and no word of the application's code.

One turn: take the application's events to their managers; ask each manager what it wants; send it; wait for the network
or a wakeup; fail what ran out of time. All sockets live and die in this thread. See the consumer threading refactor,
"Background thread and its lifecycle".
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.consumer.topic_metadata import TopicsWanted
from sparkrelay.errors import DisconnectException, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.client.kafka_client import Response
    from sparkrelay.consumer.config import ConsumerConfig
    from sparkrelay.consumer.core import ConsumerCore
    from sparkrelay.consumer.events import ApplicationEvent, Call, Mailbox
    from sparkrelay.consumer.requests import Unsent

__all__ = ["NetworkThread"]

_log = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS: Final = 5.0


class NetworkThread:
    """Owns the connections of one consumer.

    Args:
        config: the consumer's settings.
        mailbox: notified when the thread dies.
        make_core: makes the managers around the client's metadata; called in the thread.
    """

    def __init__(
        self, config: ConsumerConfig, mailbox: Mailbox, make_core: Callable[[KafkaClient], ConsumerCore]
    ) -> None:
        self._config = config
        self._mailbox = mailbox
        self._make_core = make_core
        self._events: deque[ApplicationEvent] = deque()
        self._calls: list[Call] = []
        self._new_calls: deque[Call] = deque()
        self._client: KafkaClient | None = None
        self._stopping = False
        self._ended = False
        self._failure: BaseException | None = None
        self._trouble: KafkaException | None = None
        self._ready = threading.Event()
        self.core: ConsumerCore
        name = f"consumer-network-{config.client.client_id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # -- for the application thread ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, and wait until it has made what it needs.

        Raises:
            SparkRelayError: it could not; the thread is gone then.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    @property
    def dead(self) -> bool:
        """Whether the thread has ended: nothing will ever be answered."""
        return self._ended

    def submit(self, event: ApplicationEvent, call: Call | None = None) -> None:
        """Hand an event to the network thread.

        Raises:
            DisconnectException: the thread has died; the message says of what.
        """
        if call is not None:
            self._new_calls.append(call)
        self._events.append(event)
        if self.dead:
            raise self._obituary()
        self.wake()

    def wake(self) -> None:
        """Have the thread look around now."""
        if self._client is not None:
            self._client.wakeup()

    def stop(self, timeout: float) -> None:
        """End the thread and close the connections."""
        self._stopping = True
        self.wake()
        self._thread.join(timeout)

    def _obituary(self) -> DisconnectException:
        if self._failure is None:
            return DisconnectException("the consumer is closed")
        return DisconnectException(f"the consumer's network thread died: {self._failure!r}; make a new consumer")

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._client = KafkaClient(self._config.client)
            self.core = self._make_core(self._client)
            self._ready.set()
            while not self._stopping:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - it must be told to whoever waits
            self._failure = error
            if self._ready.is_set():
                _log.exception("the consumer's network thread died")
        finally:
            # First of all: whoever submits from now on is refused, whoever did before is found below.
            self._ended = True
            self._ready.set()
            if self._client is not None:
                self._client.close()
            while self._new_calls:
                self._calls.append(self._new_calls.popleft())
            for call in self._calls:
                call.fail(self._obituary())
            self._mailbox.notify()

    def _turn(self) -> None:
        client, core = self._client, self.core
        assert client is not None, "the thread made it"
        now = time.monotonic()
        while self._events:
            core.process(self._events.popleft(), now)
        wait = _LONGEST_WAIT_SECONDS
        for manager in core.managers:
            result = manager.poll(now)
            for unsent in result.requests:
                self._send(unsent)
            wait = min(wait, result.wait)
        wait = min(wait, self._reap(now))
        if self._events or self._stopping:
            wait = 0.0
        client.poll(wait)

    def _send(self, unsent: Unsent) -> None:
        assert self._client is not None, "the thread made it"
        if isinstance(unsent.request, TopicsWanted):
            response = self._client.request_metadata(unsent.request.topics)
        else:
            response = self._client.send(unsent.request, node=unsent.node, lane=unsent.lane, timeout=unsent.timeout)
        response.add_done_callback(lambda done: self._take(unsent, done))

    def _take(self, unsent: Unsent, response: Response) -> None:
        error = self._trouble = response.error
        message = None if error is not None else response.result()
        try:
            unsent.handle(message, error, time.monotonic())
        except Exception as problem:  # noqa: BLE001 - poll raises it
            # A manager that cannot take an answer would wait for it for ever: say so instead.
            _log.error("an answer could not be handled", exc_info=True)
            self.core.fail(problem if isinstance(problem, KafkaException) else _internal(problem))

    def _reap(self, now: float) -> float:
        """Fail calls that ran out of time; return seconds until the next one does."""
        while self._new_calls:
            self._calls.append(self._new_calls.popleft())
        if not self._calls:
            return math.inf
        for call in self._calls:
            if call.last_error is None:
                call.last_error = self._trouble
        self._calls = [call for call in self._calls if not call.expire(now)]
        return min((call.deadline for call in self._calls), default=math.inf) - now


def _internal(problem: Exception) -> KafkaException:
    error = KafkaException(f"an answer of a broker could not be handled: {problem!r}")
    error.__cause__ = problem
    return error
