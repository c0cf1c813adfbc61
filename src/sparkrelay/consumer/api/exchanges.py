"""Exchanges: a consumer's operations, written once for blocking and awaiting programs.

An *exchange* is a generator that yields what it waits for and returns its result. Two small drivers run exchanges:
``blocking`` on the calling thread, ``awaiting`` on an asyncio event loop. So ``Consumer`` and ``AsyncConsumer`` differ
only in how they wait. Refused: writing each operation twice, and an asyncio face that polls in its own thread
(callbacks would run in a thread unknown to the application).

An interrupted wait (KeyboardInterrupt, a cancelled task) raises inside the exchange, where it waited. Nothing can
interrupt an awaiting exchange between two waits, so an exchange that moves a position and then returns loses no
records.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from sparkrelay.consumer.base.mailbox import Wait
from sparkrelay.errors import ConfigException, WakeupException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.consumer.base.call import Call
    from sparkrelay.consumer.base.mailbox import Mailbox

T = TypeVar("T")

#: Time for all remaining steps after an interrupt or a cancellation.
HURRIED_SECONDS: Final = 1.0
#: The network thread fails a call at its deadline; this long after it, we do so ourselves.
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Promise:
    """An awaitable that a callback of the application returned."""

    awaitable: Awaitable[object]


Exchange: TypeAlias = "Generator[Wait | Promise, None, T]"


def blocking(exchange: Exchange[T], mailbox: Mailbox) -> T:
    """Run an exchange on this thread, and return its result."""
    try:
        step = next(exchange)
        while True:
            try:
                if isinstance(step, Promise):
                    _refuse(step.awaitable)
                else:
                    mailbox.wait_for(step)
            except BaseException as error:  # noqa: BLE001 - it is the exchange's to handle
                step = exchange.throw(error)
            else:
                step = next(exchange)
    except StopIteration as done:
        result: T = done.value
        return result


async def awaiting(exchange: Exchange[T], mailbox: Mailbox) -> T:
    """Run an exchange in the current task, and return its result; other tasks run while it waits."""
    try:
        step = next(exchange)
        while True:
            try:
                if isinstance(step, Promise):
                    await step.awaitable
                else:
                    await mailbox.awaited(step)
            except BaseException as error:  # noqa: BLE001 - it is the exchange's to handle
                step = exchange.throw(error)
            else:
                step = next(exchange)
    except StopIteration as done:
        result: T = done.value
        return result


def attempt(failures: list[BaseException], action: Callable[[], object]) -> Exchange[None]:
    """Run an action of the application, which may return an exchange or an awaitable, and collect its error.

    The rest of a step must happen all the same. Interrupts and cancellations are collected, too, to be raised later.
    """
    try:
        result = action()
        if isinstance(result, Generator):
            yield from result
        elif inspect.isawaitable(result):
            yield Promise(result)
    except GeneratorExit:
        raise  # nobody runs this exchange any more
    except BaseException as error:  # noqa: BLE001 - see above
        failures.append(error)


def outcome(call: Call, mailbox: Mailbox, *, interruptible: bool) -> Exchange[Any]:
    """Wait for a call's outcome and return its result, or raise its error.

    If ``interruptible``, ``wakeup`` ends the wait with WakeupException; the call continues in the background.
    """
    call.when_done(mailbox.notify)
    limit = call.deadline + _GRACE_SECONDS
    wait = Wait(lambda: call.done, limit, for_events=False, for_wakeup=interruptible)
    while not call.done:
        yield wait
        if not call.done and interruptible and mailbox.take_wakeup():
            raise WakeupException(f"wakeup() was called while {call.what}")
        if not call.done and wait.is_over():
            call.fail(call.timed_out())
    return call.result()


def _refuse(awaitable: Awaitable[object]) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
    raise ConfigException(
        f"a callback returned {awaitable!r}, which Consumer cannot await: it blocks its thread, and with it the event "
        "loop that would have to run this. Use AsyncConsumer, or give a plain function; it may wait for "
        "asyncio.run_coroutine_threadsafe(...).result() if that loop runs in another thread"
    )


def first_failure(failures: Sequence[BaseException]) -> BaseException | None:
    """Return the failure to raise: the first interrupt or cancellation, else the first error."""
    return min(failures, key=lambda failure: isinstance(failure, Exception), default=None)


def raise_first(failures: Sequence[BaseException]) -> None:
    """Raise the ``first_failure``, if any."""
    if (failure := first_failure(failures)) is not None:
        raise failure


@dataclass(eq=False)
class ClosingDeadline:
    """The deadline of an operation with several steps, shortened once the caller is interrupted.

    After a Ctrl-C or a cancelled task while a consumer closes, the remaining steps (leaving the group) get a little
    time.
    """

    deadline: float  # monotonic
    failures: Sequence[BaseException]  # of the steps so far; the list grows

    def __post_init__(self) -> None:
        self._hurried = False

    def until(self) -> float:
        """Return the monotonic deadline of the next step."""
        if not self._hurried and any(not isinstance(failure, Exception) for failure in self.failures):
            self._hurried = True
            self.deadline = min(self.deadline, time.monotonic() + HURRIED_SECONDS)
        return self.deadline
