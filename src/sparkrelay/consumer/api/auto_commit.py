"""Commits that nobody waits for: the automatic ones, and those of ``commit_async`` with their callbacks.

Callbacks run in the thread or task that polls, in the order of the commits, and before ``commit`` and ``close`` return
(KAFKA-16103).
"""

from __future__ import annotations

import functools
import logging
import time
from collections import deque
from concurrent.futures import CancelledError
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from sparkrelay.consumer.api.commit_future import CommitFuture
from sparkrelay.consumer.api.exchanges import attempt, first_failure, outcome
from sparkrelay.consumer.base.committed_offsets import OffsetAndMetadata
from sparkrelay.consumer.base.events import Wait
from sparkrelay.errors import SparkRelayError, TimeoutException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from sparkrelay.consumer.api.calls import Calls
    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.base.committed_offsets import OffsetsToCommit
    from sparkrelay.consumer.base.events import Call, Mailbox
    from sparkrelay.consumer.base.subscription import SubscriptionState

    CommitCallback: TypeAlias = Callable[[OffsetsToCommit, BaseException | None], object]

__all__ = ["AsyncCommits"]

_log = logging.getLogger(__name__)
#: Partitions named in one line.
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class _Pending:
    call: Call
    offsets: OffsetsToCommit
    callback: CommitCallback | None


class AsyncCommits:
    """Commits positions now and then, and keeps track of what was committed without waiting.

    Automatic commits are made at the start of ``poll``, so they cover what earlier calls returned and nothing else
    (KAFKA-18641).

    Args:
        calls: submits commits.
        mailbox: where the application waits.
        subscription: where the positions are.
        enabled: whether anything is committed automatically.
        interval: seconds between automatic commits.
        after_callback: called after each callback; raises if somebody whom it let in is still using the consumer.
    """

    def __init__(
        self,
        calls: Calls,
        mailbox: Mailbox,
        subscription: SubscriptionState,
        *,
        enabled: bool,
        interval: float,
        after_callback: Callable[[], None],
    ) -> None:
        self._calls = calls
        self._mailbox = mailbox
        self._subscription = subscription
        self.enabled = enabled
        self._interval = interval
        self._after_callback = after_callback
        self._due = time.monotonic() + interval
        self._automatic: Call | None = None
        self._pending: deque[_Pending] = deque()

    # -- of the application ------------------------------------------------------------------------------------------

    def submit(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> Future[None]:
        """Commit offsets, or all positions as they are now, without waiting."""
        return CommitFuture(self._submit(offsets, callback))

    def _submit(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> Call:
        given = self._subscription.committable() if offsets is None else offsets
        call = self._calls.commit(given, self._calls.deadline(), retry=False)  # refuses what is none
        self._pending.append(_Pending(call, MappingProxyType(dict(given)), callback))
        call.when_done(self._mailbox.notify)
        return call

    @property
    def have_news(self) -> bool:
        """Whether ``run_callbacks`` has something to do."""
        return bool(self._pending) and self._pending[0].call.done

    def run_callbacks(self) -> Exchange[None]:
        """Run the callbacks of commits that are decided, in order.

        Raises:
            BaseException: what a callback raised; those behind it wait for the next time.
        """
        while self.have_news:
            pending = self._pending.popleft()
            if pending.callback is None:
                continue
            failures: list[BaseException] = []
            action = functools.partial(pending.callback, pending.offsets, _error_of(pending.call))
            yield from attempt(failures, action)
            yield from attempt(failures, self._after_callback)
            if (failure := first_failure(failures)) is not None:
                raise failure

    def decided(self, deadline: float) -> Exchange[None]:
        """Wait until all that was committed without waiting is decided; callbacks and wakeups wait.

        What is undecided when time is up fails: it must not be sent when others have the partitions.
        """
        waiting = list(self._pending)
        if waiting:
            yield Wait(lambda: all(one.call.done for one in waiting), deadline, for_events=False, for_wakeup=False)
        for one in waiting:
            if not one.call.done:
                error = TimeoutException(
                    f"committing {_named(one.offsets)} was not done before they had to be given up"
                )
                one.call.fail(error)

    def finish(self, deadline: float) -> Exchange[None]:
        """Wait until all that was committed without waiting is decided, and run the callbacks; wakeups wait.

        Raises:
            BaseException: the first error of a callback, after all have run.
        """
        failures: list[BaseException] = []
        while self._pending:
            if not self.have_news:
                yield Wait(lambda: self.have_news, deadline, for_events=False, for_wakeup=False)
            if not self.have_news:
                break  # time is up
            yield from attempt(failures, self.run_callbacks)
        if (failure := first_failure(failures)) is not None:
            raise failure

    # -- automatic ---------------------------------------------------------------------------------------------------

    def when_due(self) -> None:
        """Commit all positions if it is time; at most one such commit is under way."""
        if not self.enabled:
            return
        now = time.monotonic()
        if now >= self._due and (self._automatic is None or self._automatic.done):
            self._due = now + self._interval
            self.soon()

    def soon(self) -> None:
        """Commit all positions automatically, without waiting."""
        if self.enabled:
            self._automatic = self._submit(None, None)
            self._automatic.when_done(_log_failure)

    def now(self, deadline: float) -> Exchange[None]:
        """Commit all positions automatically and wait; a failure is only logged: others will read the records again."""
        if not self.enabled:
            return
        offsets = self._subscription.committable()
        try:
            call = self._calls.commit(offsets, deadline, retry=True, automatic=True)
            yield from outcome(call, self._mailbox, interruptible=False)
        except UnknownTopicException as error:
            _log.warning("automatic commit: %s", error)  # it names them; the others are committed
        except SparkRelayError as error:
            _log.warning("automatic commit failed: %s; not committed: %s", error, _named(offsets))


def _named(offsets: OffsetsToCommit) -> str:
    some = [
        f"{TopicPartition(*partition)} at {offset.offset if isinstance(offset, OffsetAndMetadata) else offset}"
        for partition, offset in sorted(offsets.items(), key=lambda item: item[0])[:_NAMED]
    ]
    more = len(offsets) - len(some)
    return ", ".join(some) + (f" and {more} more" if more else "")


def _error_of(call: Call) -> BaseException | None:
    return SparkRelayError("the commit was cancelled") if isinstance(call.error, CancelledError) else call.error


def _log_failure(call: Call) -> None:
    if (error := _error_of(call)) is not None:
        _log.warning("automatic commit failed: %s", error)
