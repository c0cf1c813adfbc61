"""The network thread: events in, requests out, answers in; it never runs the application's code.

One turn: dispatch the application's events; poll each manager; send its requests; wait for the network or a wakeup;
fail expired calls. All sockets live in this thread. See the consumer threading refactor, "Background thread and its
lifecycle".

Consumers of one process may share a thread: one selector under all their clients, and a consumer's managers are polled
only on news (an event, an answer) or when they are due. A consumer whose managers fail is closed alone; if the thread
itself fails, every call of every consumer raises the cause (KAFKA-18812). Refused: one connection for all (a broker
holds back a long Fetch or JoinGroup, and everything after it), and polling every consumer on each turn of the loop (200
times a second for each of a hundred idle ones).
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import math
import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.transport.loop import Loop
from sparkrelay.consumer.base.call import may_not_wait
from sparkrelay.consumer.base.errors import copy_of, forked_error
from sparkrelay.consumer.base.events import Polled
from sparkrelay.consumer.base.mailbox import Mailbox, Wait
from sparkrelay.consumer.base.topic_metadata import TopicsWanted
from sparkrelay.errors import ConfigException, DisconnectException, KafkaException
from sparkrelay.settings import shortly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sparkrelay.client.kafka_client import Response
    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.events import ApplicationEvent
    from sparkrelay.consumer.base.requests import Unsent
    from sparkrelay.consumer.network.core import ConsumerCore

_log = logging.getLogger(__name__)
_LONGEST_WAIT_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 30.0


class NetworkThread:
    """The connections of one consumer, or of many: ``Consumer(config, network=network)``.

    It starts with the first consumer. Close the consumers first: one that is closed with the thread does not leave its
    group, and all its calls raise DisconnectException.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str = "consumer-network") -> None:
        self._name = name
        #: Made when it starts: Python 3.13 considers one that was made before a fork as ended.
        self._thread: threading.Thread | None = None
        #: The process that it runs in; None before its start.
        self._process: int | None = None
        self._lock = threading.Lock()
        self._loop: Loop | None = None
        #: Where applications wait for its start.
        self._starting = Mailbox()
        self._handles: set[ConsumerHandle] = set()
        self._news: deque[ConsumerHandle] = deque()
        self._due: list[tuple[float, int, ConsumerHandle]] = []
        self._numbers = itertools.count()
        self._stopping = False
        self._ended = False
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for application threads --------------------------------------------------------------------------------------

    def attach(
        self, config: ConsumerConfig, mailbox: Mailbox, make_core: Callable[[KafkaClient], ConsumerCore]
    ) -> ConsumerHandle:
        """Add a consumer; return once ``make_core``, called in the thread with its client, has made its managers.

        Raises:
            SparkRelayError: that failed, and nothing of it is left.
            DisconnectException: the thread is closed, or has died; the message names the cause.
        """
        self._start()
        handle = ConsumerHandle(self, config, mailbox, make_core)
        handle.wake()
        # After queueing the consumer: the thread looks into the queue once more when it ends.
        if self._ended:
            raise self._closed_error()
        try:
            handle.await_start()
        except BaseException:
            handle.stop(0)
            raise
        return handle

    def close(self, timeout: float = _CLOSE_SECONDS) -> None:
        """End the thread, and all consumers that are not closed. May be repeated.

        In a process forked from its own it does nothing.
        """
        if self._process not in {None, os.getpid()}:
            return
        with self._lock:
            self._stopping = True
            thread = self._thread
        if thread is not None:
            self.wake()
            thread.join(timeout)

    def _start(self) -> None:
        if self._process is None:
            self._process = os.getpid()
        if self._process != os.getpid():
            raise forked_error(type(self).__name__, self._process)
        with self._lock:
            if self._ended or self._stopping:
                raise self._closed_error()
            if self._thread is None:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                thread.start()
                self._thread = thread
        self._starting.wait_for(Wait(lambda: self._loop is not None or self._ended, math.inf))
        if self._ended:
            raise self._closed_error()

    def put(self, handle: ConsumerHandle) -> None:
        """Queue a consumer for its turn."""
        self._news.append(handle)

    def wake(self) -> None:
        """Wake the thread. Costs a system call only if it sleeps."""
        if self._loop is not None:
            self._loop.wakeup()

    def _closed_error(self) -> DisconnectException:
        if self._failure is None:
            return DisconnectException("the consumer's network thread is closed", retriable=False)
        return _died(self._failure)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        may_not_wait()
        try:
            loop = self._loop = Loop(self._name)
            self._starting.notify()
            while not self._stopping:
                loop.turn(self._look_after(time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - all waiting calls must get it
            self._failure = error
            _log.exception("the network thread of %d consumers died", len(self._handles))
        finally:
            # First: later consumers are refused, earlier ones are found below.
            self._ended = True
            self._starting.notify()
            if self._handles and self._failure is None:
                _log.warning(
                    "the network thread was closed before %d of its consumers; they did not leave their groups",
                    len(self._handles),
                )
            while self._news:
                self._handles.add(self._news.popleft())
            for handle in self._handles:
                handle.end(self._closed_error())
            self._handles.clear()
            if self._loop is not None:
                self._loop.close()

    def _look_after(self, now: float) -> float:
        """Turn each consumer that has news or is due; return seconds until the next one is."""
        for _ in range(len(self._news)):
            self._turn(self._news.popleft(), now)
        while self._due and self._due[0][0] <= now:
            entry, _, handle = heapq.heappop(self._due)
            if entry != handle.entry:
                continue
            handle.entry = math.inf
            if handle.due <= now:
                self._turn(handle, now)
            else:
                self._schedule(handle)
        if self._news or self._stopping:
            return 0.0
        return self._due[0][0] - now if self._due else _LONGEST_WAIT_SECONDS

    def _turn(self, handle: ConsumerHandle, now: float) -> None:
        # Before its events are taken: a later event queues it again. Also if it is only due: a Ctrl-C may have
        # interrupted a ``wake``.
        handle.listed = False
        if handle.dead:
            return
        try:
            if not handle.started:
                assert self._loop is not None, "the thread made it"
                self._handles.add(handle)
                handle.start(self._loop)
            handle.due = now + min(handle.turn(now), _LONGEST_WAIT_SECONDS)
        except Exception as error:  # noqa: BLE001 - raised by every call of that consumer
            if handle.started:
                _log.exception("a consumer's managers failed, it is closed")
            handle.failure = error
            self._drop(handle, _died(error))
            return
        if handle.stopping:
            self._drop(handle, DisconnectException("the consumer is closed", retriable=False))
        else:
            self._schedule(handle)

    def _drop(self, handle: ConsumerHandle, why: DisconnectException) -> None:
        self._handles.discard(handle)
        handle.end(why)
        if handle.owns_thread:
            self._stopping = True

    def _schedule(self, handle: ConsumerHandle) -> None:
        """Add a consumer's due time to the heap; an entry that is too early is corrected when its time comes."""
        if handle.due < handle.entry:
            handle.entry = handle.due
            heapq.heappush(self._due, (handle.due, next(self._numbers), handle))


@dataclass(eq=False)
class ConsumerHandle:
    """One consumer in a network thread, as its application thread sees it.

    Attributes:
        polled_at: when the application last polled, monotonic: set by its thread, read at each turn. Not an event, so
            that an idle ``poll`` does not wake the thread.
        polls_missed: how often it polled after more than ``max.poll.interval.ms``; counted before ``polled_at`` is set.
        due: monotonic time of its next turn if nothing happens before; for the thread only.
        entry: time of its entry in the thread's heap, infinity for none; for the thread only.
    """

    thread: NetworkThread
    config: ConsumerConfig
    mailbox: Mailbox
    make_core: Callable[[KafkaClient], ConsumerCore]

    def __post_init__(self) -> None:
        self.core: ConsumerCore  # the consumer's managers
        self._events: deque[ApplicationEvent] = deque()
        self._calls: list[Call] = []
        self._new_calls: deque[Call] = deque()
        self._client: KafkaClient | None = None
        self.trouble: KafkaException | None = None  # the network error of the latest request, if any
        self._problem: Exception | None = None
        self._closed_error: DisconnectException | None = None
        self._gone = False
        self.polled_at = -math.inf
        self._polled_announced = -math.inf
        self.polls_missed = self._misses_announced = 0
        self.owns_thread = False  # whether the thread ends with it
        self.listed = False  # whether it is in the thread's queue
        self.started = False
        self.stopping = False
        self.due = self.entry = math.inf
        self.failure: BaseException | None = None  # the error of its managers

    # -- for the application thread -----------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        """Whether nothing will be answered any more."""
        return self._closed_error is not None

    def await_start(self) -> None:
        """Wait until client and managers exist, or raise the error of making them."""
        self._wait(lambda: self.started or self._gone, math.inf)
        if self.failure is not None:
            raise self.failure
        self.check()

    def submit(self, event: ApplicationEvent, call: Call | None = None) -> None:
        """Send an event to the network thread; see ``check`` for errors."""
        if call is not None:
            self._new_calls.append(call)
        self._events.append(event)
        self.wake()
        self.check()

    def wake(self) -> None:
        """Have the managers polled soon. Costs a system call only if the thread sleeps."""
        if not self.listed:
            try:
                self.listed = True
                self.thread.put(self)
                self.thread.wake()
            except BaseException:  # a signal handler raised: the next call must not rely on this one
                self.listed = False
                raise

    def check(self) -> None:
        """Raise DisconnectException with the cause if the consumer has ended."""
        if self._closed_error is not None:
            raise _again(self._closed_error)

    def ask_to_stop(self) -> None:
        """Have the connections closed soon, after which ``dead`` is true."""
        self.stopping = True
        self.wake()

    def stop(self, timeout: float) -> None:
        """Close the connections, and the thread if it is the consumer's own; wait up to ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        self.ask_to_stop()
        self._wait(lambda: self._gone, deadline)
        if self.owns_thread:
            self.thread.close(max(0.0, deadline - time.monotonic()))

    def _wait(self, ready: Callable[[], bool], deadline: float) -> None:
        """Wait in the mailbox: an interrupted thread may keep an Event's lock, see ``mailbox``."""
        self.mailbox.wait_for(Wait(ready, deadline, for_events=False, for_wakeup=False))

    # -- for the network thread ---------------------------------------------------------------------------------------

    def start(self, loop: Loop) -> None:
        """Make client and managers."""
        self._client = KafkaClient(self.config.client, loop=loop)
        self.core = self.make_core(self._client)
        self.started = True
        self.mailbox.notify()

    def turn(self, now: float) -> float:
        """Handle events, send the managers' requests; return seconds until they are due. Raises a manager's error."""
        if self._problem is not None:
            raise self._problem
        core = self.core
        core.now = now
        while self._events:
            core.process(self._events.popleft(), now)
        # Last: an event may lead to a state that only a poll ends, and each poll is announced once.
        if (polled_at := self.polled_at) != self._polled_announced:
            self._polled_announced = polled_at
            missed, self._misses_announced = self._misses_announced, self.polls_missed
            core.process(Polled(polled_at, missed != self._misses_announced), now)
        wait = math.inf
        for manager in core.managers:
            result = manager.poll(now)
            for node, lane in result.dropped:
                assert self._client is not None, "started"
                self._client.drop(node, lane, "the broker did not answer in time")
            for unsent in result.requests:
                self._send(unsent, now)
            wait = min(wait, result.wait)
        return min(wait, self._reap(now))

    def end(self, why: DisconnectException) -> None:
        """Close everything; all waiting and later calls raise the reason. Never raises; may be repeated."""
        if self._closed_error is not None:
            return
        self._closed_error = why
        if self._client is not None:
            # Errors here must not keep other consumers of the thread from ending.
            with _logging_errors():
                if self.stopping and self.started and self.failure is None:
                    for unsent in self.core.last_requests():
                        self._client.send(unsent.request, node=unsent.node, lane=unsent.lane)
            with _logging_errors():
                self._client.close()
        while self._new_calls:
            self._calls.append(self._new_calls.popleft())
        for call in self._calls:
            call.fail(_again(why))
        self._gone = True
        self.mailbox.notify()

    def _send(self, unsent: Unsent, now: float) -> None:
        assert self._client is not None, "started"
        try:
            if isinstance(unsent.request, TopicsWanted):
                response = self._client.request_metadata(unsent.request.topics)
            else:
                response = self._client.send(unsent.request, node=unsent.node, lane=unsent.lane, timeout=unsent.timeout)
        except Exception as problem:  # noqa: BLE001 - the manager gets it
            # A request that cannot be made must not end the consumer.
            _log.exception("a request could not be sent")
            unsent.handle(None, problem if isinstance(problem, KafkaException) else _internal(problem), now)
            return
        response.add_done_callback(lambda done: self._take(unsent, done, now))

    def _take(self, unsent: Unsent, response: Response, sent_at: float) -> None:
        if self.dead or self._problem is not None:
            return
        error = self.trouble = response.error
        message = None if error is not None else response.result()
        self.core.now = now = time.monotonic()
        try:
            self.core.answered(unsent.request, message, error, sent_at)
            unsent.handle(message, error, now)
        except Exception as problem:  # noqa: BLE001 - raised by the next turn
            # The manager would wait for ever; so this ends the consumer, like an error in poll.
            self._problem = problem
        if not self.listed:
            # We are in the thread, which looks at the queue before it sleeps.
            self.listed = True
            self.thread.put(self)

    def _reap(self, now: float) -> float:
        """Fail expired calls; return seconds until the next one expires."""
        while self._new_calls:
            self._calls.append(self._new_calls.popleft())
        if not self._calls:
            return math.inf
        for call in self._calls:
            if call.last_error is None:
                call.last_error = self.trouble
        self._calls = [call for call in self._calls if not call.expire(now)]
        return min((call.deadline for call in self._calls), default=math.inf) - now


def attach(
    network: NetworkThread | None,
    config: ConsumerConfig,
    mailbox: Mailbox,
    make_core: Callable[[KafkaClient], ConsumerCore],
) -> ConsumerHandle:
    """Connect a consumer to the given network thread, or to its own. See ``NetworkThread.attach``."""
    if network is not None:
        if not isinstance(network, NetworkThread):
            raise ConfigException(f"network={shortly(network)} is not a NetworkThread; make one, or leave it out")
        return network.attach(config, mailbox, make_core)
    own = NetworkThread(f"consumer-network-{config.client.client_id}")
    try:
        handle = own.attach(config, mailbox, make_core)
    except BaseException:
        own.close()
        raise
    handle.owns_thread = True
    return handle


@contextlib.contextmanager
def _logging_errors() -> Iterator[None]:
    """Log errors, and continue."""
    try:
        yield
    except Exception:  # noqa: BLE001 - logged
        _log.exception("closing a consumer's connections failed")


def _died(cause: BaseException) -> DisconnectException:
    error = DisconnectException(f"the consumer's network thread died: {cause!r}; make a new consumer", retriable=False)
    error.__cause__ = cause
    return error


def _again(error: DisconnectException) -> DisconnectException:
    """Return a copy for another thread, with the original's cause."""
    copy = copy_of(error)
    copy.__cause__ = error.__cause__
    return copy


def _internal(problem: Exception) -> KafkaException:
    error = KafkaException(f"a request to a broker could not be sent: {problem!r}")
    error.__cause__ = problem
    return error
