"""What the two threads of a consumer send each other, and where the application thread waits.

The application thread (whoever calls the consumer) puts *application events* into the network thread's queue; the
network thread puts *background events* into the ``Mailbox``. Each event that is answered carries a ``Call`` with a
deadline. See the consumer threading refactor, "Events and EventHandler".

Steps of a rebalance that are the application's work (callbacks, client-side assignors) are background events with a
number; the answer repeats it. A step that was overtaken by events is cancelled: the application skips it, and the
membership ignores its answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sparkrelay.errors import ConfigException, TimeoutException, WakeupException

if TYPE_CHECKING:
    import re
    import uuid
    from collections.abc import Callable, Mapping

    from sparkrelay.consumer.base.assignor import ClusterView, GroupMetadata, MemberAssignment, MemberSubscription
    from sparkrelay.types import TopicPartition

__all__ = [
    "AdoptNeeded",
    "Adopted",
    "ApplicationEvent",
    "AssignNeeded",
    "Assigned",
    "BackgroundEvent",
    "Call",
    "Commit",
    "ErrorRaised",
    "ExpectRebalance",
    "FetchCommitted",
    "Hold",
    "JoinNeeded",
    "Leave",
    "ListOffsets",
    "Mailbox",
    "PartitionsChanged",
    "Polled",
    "Prepared",
    "Rejoin",
    "Step",
    "Subscribe",
    "TopicsAsked",
    "Wait",
    "may_not_wait",
]

_log = logging.getLogger(__name__)
_this_thread = threading.local()

#: asyncio's timers take a day at most on some systems.
_LONGEST_TIMER_SECONDS: Final = 86_400.0


class Call:
    """An operation that somebody waits for. It is resolved once, by its result, an error, or its deadline.

    Like the ``Mailbox`` it has no lock. That of a ``concurrent.futures.Future`` is taken by Python code, so a signal
    handler that raises in the application thread (Ctrl-C) may leave it taken for ever, and the network thread would
    hang with its next look. Appending to a list or deque and taking from it cannot be interrupted.

    Attributes:
        what: says what is being done, for messages.
        deadline: monotonic time after which it fails with a TimeoutException.
        last_error: why it was not done yet; named if time runs out.
    """

    __slots__ = ("_listeners", "_outcomes", "deadline", "last_error", "what")

    def __init__(self, what: str, deadline: float) -> None:
        self.what = what
        self.deadline = deadline
        self.last_error: Exception | None = None
        #: Result and error; the first one counts.
        self._outcomes: list[tuple[Any, BaseException | None]] = []
        self._listeners: deque[Callable[[Call], object]] = deque()

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return bool(self._outcomes)

    @property
    def error(self) -> BaseException | None:
        """The error of a call that is done, None if it has a result."""
        return self._outcomes[0][1]

    def result(self) -> Any:
        """Return the result of a call that is done, or raise its error."""
        result, error = self._outcomes[0]
        if error is not None:
            raise error
        return result

    def resolve(self, result: Any) -> None:
        """Give the result, unless there is an outcome already."""
        self._decide(result, None)

    def fail(self, error: BaseException) -> None:
        """Give an error, unless there is an outcome already."""
        self._decide(None, error)

    def expire(self, now: float) -> bool:
        """Fail if the deadline has passed; return whether the outcome is known."""
        if self._outcomes:
            self._notify()  # whoever decided may have been interrupted before it did
        elif now >= self.deadline:
            self.fail(self.timed_out())
        return bool(self._outcomes)

    def when_done(self, listener: Callable[[Call], object]) -> None:
        """Have ``listener(call)`` called once by whoever decides, as a rule the network thread; errors are logged.

        If the outcome is known, it is called here and now.
        """
        self._listeners.append(listener)
        if self._outcomes:
            self._notify()

    def wait(self, timeout: float | None) -> bool:
        """Block this thread until the outcome is known, or for ``timeout`` seconds; return whether it is.

        Raises:
            ConfigException: it is a network thread.
        """
        if not self._outcomes:
            _may_wait()
            notified = threading.Lock()
            notified.acquire()
            self.when_done(lambda _: notified.release())
            notified.acquire(
                timeout=threading.TIMEOUT_MAX if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
            )
        return bool(self._outcomes)

    def _decide(self, result: Any, error: BaseException | None) -> None:
        if not self._outcomes:
            self._outcomes.append((result, error))
        self._notify()

    def _notify(self) -> None:
        while self._listeners:
            try:
                listener = self._listeners.popleft()
            except IndexError:
                return  # the other thread took it
            try:
                listener(self)
            except Exception:  # noqa: BLE001 - whoever decides has others to notify
                _log.exception("whoever waits for %s failed when it was notified", self.what)

    def timed_out(self) -> TimeoutException:
        """Return the error for time running out."""
        because = f"; last error: {self.last_error}" if self.last_error is not None else ""
        return TimeoutException(f"{self.what} was not done in time{because}")


# -- application events: the application thread to the network thread -------------------------------------------------


@dataclass(frozen=True, slots=True)
class Polled:
    """``poll`` was called: the application is alive, and positions may be needed. At most one is under way.

    Attributes:
        time: when, monotonic seconds.
        missed: whether it had not been called for ``max.poll.interval.ms`` before.
    """

    time: float
    missed: bool = False


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The topics to be a member for, or the pattern that they match."""

    topics: frozenset[str]
    pattern: re.Pattern[str] | None = None


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """Partitions were assigned, sought, paused or resumed by the application; the subscription state has them."""


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Ask for a rebalance."""

    reason: str


@dataclass(frozen=True, slots=True)
class ExpectRebalance:
    """Learn of the next rebalance soon."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group; a static member only if it is for good. Answered when the broker knows, or cannot be reached."""

    call: Call
    reason: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit offsets: (offset, leader epoch, metadata) by partition.

    Attributes:
        call: resolved when the broker has them.
        offsets: what to commit.
        retry: whether it is repeated until the call's deadline if that may help.
        automatic: whether nobody asked for it; it is not repeated for a topic that is not there.
        found_in: ids of the topics in which positions were found; partitions without such a position are missing.
    """

    call: Call
    offsets: Mapping[TopicPartition, tuple[int, int, str]]
    retry: bool
    automatic: bool = False
    found_in: Mapping[TopicPartition, uuid.UUID] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    """Ask for committed offsets."""

    call: Call
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class ListOffsets:
    """Ask for offsets by timestamp, -1 (end) or -2 (start)."""

    call: Call
    wanted: Mapping[TopicPartition, int]
    read_committed: bool


@dataclass(frozen=True, slots=True)
class TopicsAsked:
    """Ask for the metadata of topics; None for all of them."""

    call: Call
    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Answer to ``JoinNeeded``: what the member holds now, and each assignor's user data."""

    number: int
    owned: frozenset[TopicPartition] = frozenset()
    user_data: Mapping[str, bytes] = field(default_factory=dict)
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """Answer to ``AssignNeeded``."""

    number: int
    assignments: Mapping[str, MemberAssignment] = field(default_factory=dict)
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Adopted:
    """Answer to ``AdoptNeeded``: the callbacks ran.

    Attributes:
        number: of the step.
        revoked: whether anything was given up that others wait for.
        owned: what the member holds now.
    """

    number: int
    revoked: bool = False
    owned: frozenset[TopicPartition] = frozenset()


ApplicationEvent: TypeAlias = (
    Polled
    | Subscribe
    | PartitionsChanged
    | Rejoin
    | ExpectRebalance
    | Leave
    | Commit
    | FetchCommitted
    | ListOffsets
    | TopicsAsked
    | Prepared
    | Assigned
    | Adopted
)


# -- background events: the network thread to the application thread --------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """Something went wrong that the next ``poll`` must raise.

    Attributes:
        error: what it was.
        fatal: whether the member has given up because of it, so that each ``poll`` raises it.
        topic: of which topic it is, None if of no single one.
    """

    error: Exception
    fatal: bool = False
    topic: str | None = None


class Hold(enum.Enum):
    """What becomes of a member's partitions before it joins."""

    KEEP = "keep"  # cooperative: all but those of topics it no longer wants
    REVOKE = "revoke"  # eager: all are given up in good order
    LOSE = "lose"  # the group gave them to others already


@dataclass(slots=True, eq=False)
class Step:
    """Work of the application thread in a rebalance. ``cancelled`` may be set by the network thread at any time."""

    number: int
    cancelled: bool = field(default=False, init=False)


@dataclass(slots=True, eq=False)
class JoinNeeded(Step):
    """CALLBACK_NEEDED: run ``on_revoked`` or ``on_lost`` as ``hold`` says, and ask the assignors for user data."""

    hold: Hold
    topics: frozenset[str]
    dropped: frozenset[str]


@dataclass(slots=True, eq=False)
class AssignNeeded(Step):
    """ASSIGN_NEEDED: this member leads; run the assignor."""

    assignor: str
    cluster: ClusterView
    members: Mapping[str, MemberSubscription]


@dataclass(slots=True, eq=False)
class AdoptNeeded(Step):
    """CALLBACK_NEEDED: take the assignment: ``on_assignment``, ``on_revoked``, ``on_assigned``."""

    assignor: str
    assignment: MemberAssignment
    metadata: GroupMetadata


BackgroundEvent: TypeAlias = ErrorRaised | JoinNeeded | AssignNeeded | AdoptNeeded


@dataclass(frozen=True, slots=True)
class Wait:
    """What the application thread waits for.

    Attributes:
        ready: the wait is over when this is true.
        deadline: monotonic time at which it is over in any case.
        for_events: whether a background event ends it.
        for_steps: whether steps of rebalances count among these.
        for_wakeup: whether ``wakeup`` ends it.
    """

    ready: Callable[[], object]
    deadline: float
    for_events: bool = True
    for_steps: bool = True
    for_wakeup: bool = True

    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return time.monotonic() >= self.deadline


def may_not_wait() -> None:
    """Note that this thread answers what others wait for: it would wait for itself."""
    _this_thread.may_not_wait = True


def _may_wait() -> None:
    if getattr(_this_thread, "may_not_wait", False):
        raise ConfigException(
            "a consumer's network thread cannot wait for a consumer: it would wait for itself. Callbacks of "
            "futures run there; use the callback argument of commit_async() instead, which is called inside poll()"
        )


class Mailbox:
    """Background events, and the one place where the application waits for anything at all.

    ``put``, ``notify`` and ``wakeup`` may be called from any thread, and from signal handlers: there is no lock that
    the interrupted thread could hold, and no moment at which a wakeup falls between looking and waiting. Each wait
    registers a waiter first, looks then, and waits last; a waiter that was notified stays notified.
    """

    def __init__(self) -> None:
        self._events: deque[BackgroundEvent] = deque()
        #: What ``take`` returned last, until the application is done with it.
        self.taken: BackgroundEvent | None = None
        self._waiters: list[Callable[[], object]] = []
        self._woken = False
        self._deaf = False

    def put(self, event: BackgroundEvent) -> None:
        """Add an event and end the wait for it; an error is not added to one that says the same and still waits.

        Whoever does not poll for an hour wants a refused topic reported once.
        """
        if isinstance(event, ErrorRaised) and any(_alike(event, waiting) for waiting in self._events.copy()):
            return
        self._events.append(event)
        self.notify()

    def take(self, *, steps: bool = True) -> BackgroundEvent | None:
        """Return the oldest event, None if there is none; cancelled steps are dropped.

        Without ``steps`` it is none if the oldest is a step.
        """
        while self.has_events(steps=steps):
            # Before it is removed: a Ctrl-C may come between any two instructions.
            event = self.taken = self._events[0]
            self._events.popleft()
            if not (isinstance(event, Step) and event.cancelled):
                return event
        self.taken = None
        return None

    def has_events(self, *, steps: bool = True) -> bool:
        """Return whether ``take`` may find something."""
        try:
            event = self._events[0]
        except IndexError:
            return False
        return steps or not isinstance(event, Step) or event.cancelled

    def put_back(self) -> None:
        """Have ``take`` return once more what it returned last: it was not dealt with."""
        event, self.taken = self.taken, None
        if event is not None and not (self._events and self._events[0] is event):
            self._events.appendleft(event)

    def discard_steps(self) -> None:
        """Forget the steps of rebalances that have become pointless; errors stay."""
        self.taken = None
        errors = []
        while self._events:
            event = self._events.popleft()
            if isinstance(event, ErrorRaised):
                errors.append(event)
        self._events.extendleft(reversed(errors))

    def clear(self) -> None:
        """Forget all events."""
        self.taken = None
        self._events.clear()

    def notify(self, _: object = None) -> None:
        """Have whoever waits look again."""
        for notify in self._waiters.copy():
            notify()

    def wakeup(self) -> None:
        """End the present wait, or the next one."""
        self._woken = True
        self.notify()

    def take_wakeup(self) -> bool:
        """Return whether ``wakeup`` was called since the last time."""
        if self._deaf or not self._woken:
            return False
        self._woken = False
        return True

    def ignore_wakeups(self) -> None:
        """Let no wakeup end a wait from now on, not even one that is on its way in another thread."""
        self._deaf = True

    def raise_if_woken(self) -> None:
        """Raise WakeupException if ``wakeup`` was called since the last time."""
        if self.take_wakeup():
            raise WakeupException("wakeup() was called")

    def wait_for(self, wait: Wait) -> None:
        """Block this thread until a wait is over.

        Raises:
            ConfigException: it is a network thread.
        """
        _may_wait()
        notified = threading.Lock()
        notified.acquire()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # it was notified already
                notified.release()

        self._waiters.append(notify)
        try:
            while not self._is_over(wait):
                left = wait.deadline - time.monotonic()
                if left <= 0:
                    return
                notified.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiters.remove(notify)

    async def awaited(self, wait: Wait) -> None:
        """Await the end of a wait, in a task of the running event loop."""
        loop, notified = asyncio.get_running_loop(), asyncio.Event()

        def notify() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nobody waits
                loop.call_soon_threadsafe(notified.set)

        self._waiters.append(notify)
        try:
            while not self._is_over(wait):
                left = wait.deadline - time.monotonic()
                if left <= 0:
                    return
                # Set anew each time: some loops count in whole milliseconds, and a timer may fire before its time.
                timer = loop.call_later(min(left, _LONGEST_TIMER_SECONDS), notified.set)
                try:
                    await notified.wait()
                finally:
                    timer.cancel()
                notified.clear()
        finally:
            self._waiters.remove(notify)

    def _is_over(self, wait: Wait) -> bool:
        return bool(
            wait.ready()
            or (wait.for_wakeup and self._woken and not self._deaf)
            or (wait.for_events and self.has_events(steps=wait.for_steps))
        )


def _alike(error: ErrorRaised, event: BackgroundEvent) -> bool:
    """Return whether an event is an error that says the same as another."""
    if not isinstance(event, ErrorRaised) or replace(event, error=error.error) != error:
        return False
    one, other = error.error, event.error
    return type(one) is type(other) and one.args == other.args and vars(one) == vars(other)
