"""What a consumer does, written once for those who block and those who await.

An operation is an *exchange*: a generator that yields what it waits for and returns its result. Two small drivers run
exchanges: ``blocking`` on the calling thread, ``awaiting`` on an asyncio event loop. So ``Consumer`` and
``AsyncConsumer`` differ in nothing but the wait. Refused: writing each operation twice, and an asyncio face that polls
in a thread of its own (callbacks would then run in a thread that the application does not know).

A wait that is interrupted (KeyboardInterrupt, a cancelled task) is raised inside the exchange, where it waited. Between
two waits nothing can interrupt an awaiting exchange, so an exchange that moves a position and then returns cannot lose
records.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from sparkrelay.consumer.base.events import Wait
from sparkrelay.errors import ConfigException, WakeupException

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sparkrelay.consumer.base.events import Call, Mailbox

__all__ = ["Exchange", "Promise", "attempt", "awaiting", "blocking", "first_failure", "outcome"]

T = TypeVar("T")

#: The network thread fails a call at its deadline; this long after it, we no longer believe that it will.
_GRACE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Promise:
    """An awaitable that a callback of the application returned, to be awaited."""

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
    """Do something of the application's, and keep its error: the rest of a step must happen all the same.

    Args:
        failures: takes the error, also an interrupt or a cancellation: whoever looks at the list raises it later.
        action: may return an exchange, or an awaitable.
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
    """Wait until a call's outcome is known, and return its result.

    Args:
        call: what to wait for; it goes on in the background if a wakeup ends the wait.
        mailbox: where the application waits.
        interruptible: whether ``wakeup`` ends the wait.

    Raises:
        WakeupException: ``wakeup`` was called.
        Exception: the call's error.
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
    """Raise: a thread that blocks cannot await, least of all something on the loop that it blocks."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
    raise ConfigException(
        f"a callback returned {awaitable!r}, which Consumer cannot await: it blocks its thread, and with it the event "
        "loop that would have to run this. Use AsyncConsumer, or give a plain function; it may wait for "
        "asyncio.run_coroutine_threadsafe(...).result() if that loop runs in another thread"
    )


def first_failure(failures: Sequence[BaseException]) -> BaseException | None:
    """Return what is to be raised: an interrupt or a cancellation must not be lost behind an error."""
    for failure in failures:
        if not isinstance(failure, Exception):
            return failure
    return failures[0] if failures else None
