"""Commits without a waiting caller: automatic ones, and those of ``commit_async`` with their callbacks.

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

from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.consumer.api.commit_future import CommitFuture
from sparkrelay.consumer.api.exchanges import attempt, outcome, raise_first
from sparkrelay.consumer.base.arguments import wire_offsets
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.events import Commit
from sparkrelay.consumer.base.mailbox import Wait
from sparkrelay.errors import SparkRelayError, TimeoutException, UnknownTopicException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.base.arguments import OffsetsToCommit
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.mailbox import Mailbox
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.network.network_thread import ConsumerHandle

    CommitCallback: TypeAlias = Callable[[OffsetsToCommit, BaseException | None], object]

_log = logging.getLogger(__name__)
#: Most partitions named in one line.
_NAMED: Final = 10


@dataclass(frozen=True, slots=True)
class _Pending:
    call: Call
    offsets: OffsetsToCommit
    callback: CommitCallback | None


@dataclass(eq=False)
class AsyncCommits:
    """Commits positions periodically, and tracks commits without a waiting caller.

    Automatic commits are made at the start of ``poll``, so they cover exactly what earlier calls returned
    (KAFKA-18641).

    Args:
        after_callback: called after each callback; raises if a guest of the callback still uses the consumer.
    """

    network: ConsumerHandle
    config: ConsumerConfig
    mailbox: Mailbox  # where the application waits
    subscription: SubscriptionState
    enabled: bool  # whether to commit automatically
    after_callback: Callable[[], None]

    def __post_init__(self) -> None:
        self._interval = self.config.auto_commit_interval_ms / 1000
        self._due = time.monotonic() + self._interval
        self._automatic: Call | None = None
        self._pending: deque[_Pending] = deque()

    def request(self, offsets: OffsetsToCommit, deadline: float, *, retry: bool, automatic: bool = False) -> Call:
        """Submit a commit; see ``events.Commit``."""
        call = Call("committing offsets", deadline)
        wanted = wire_offsets(offsets)
        # Now: the application may seek, or give partitions up, before the commit is sent.
        found_in = self.subscription.topic_ids(wanted)
        self.network.submit(Commit(call, wanted, retry, automatic, found_in), call)
        return call

    def submit(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> Future[None]:
        """Commit offsets, or all present positions, without waiting."""
        return CommitFuture(self._submit(offsets, callback))

    def _submit(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> Call:
        given = self.subscription.committable() if offsets is None else offsets
        deadline = time.monotonic() + self.config.default_api_timeout_ms / 1000
        call = self.request(given, deadline, retry=False)  # raises for invalid offsets
        self._pending.append(_Pending(call, MappingProxyType(dict(given)), callback))
        call.when_done(self.mailbox.notify)
        return call

    @property
    def have_news(self) -> bool:
        """Whether ``run_callbacks`` has something to do."""
        return bool(self._pending) and self._pending[0].call.done

    def run_callbacks(self) -> Exchange[None]:
        """Run the callbacks of finished commits, in order, up to the first error, which is raised."""
        while self.have_news:
            pending = self._pending.popleft()
            if pending.callback is None:
                continue
            failures: list[BaseException] = []
            action = functools.partial(pending.callback, pending.offsets, _error_of(pending.call))
            yield from attempt(failures, action)
            yield from attempt(failures, self.after_callback)
            raise_first(failures)

    def decided(self, deadline: float) -> Exchange[None]:
        """Wait for all asynchronous commits, without callbacks or wakeups.

        Unfinished ones fail at the deadline: they must not be sent when others own the partitions.
        """
        waiting = list(self._pending)
        if waiting:
            yield Wait(lambda: all(one.call.done for one in waiting), deadline, for_events=False, for_wakeup=False)
        for one in waiting:
            if not one.call.done:
                what = _named(one.offsets)
                one.call.fail(TimeoutException(f"committing {what} was not done before they had to be given up"))

    def finish(self, deadline: float) -> Exchange[None]:
        """Wait, without wakeups, for all asynchronous commits, and run their callbacks; then raise the first error."""
        failures: list[BaseException] = []
        while self._pending:
            if not self.have_news:
                yield Wait(lambda: self.have_news, deadline, for_events=False, for_wakeup=False)
            if not self.have_news:
                break  # time is up
            yield from attempt(failures, self.run_callbacks)
        raise_first(failures)

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
        """Commit all positions automatically and wait; a failure is only logged, since the records are read again."""
        if not self.enabled:
            return
        offsets = self.subscription.committable()
        try:
            call = self.request(offsets, deadline, retry=True, automatic=True)
            yield from outcome(call, self.mailbox, interruptible=False)
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
