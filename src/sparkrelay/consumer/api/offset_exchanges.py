"""What a consumer does with offsets: committing, seeking, asking. The part of the session that concerns offsets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sparkrelay.client.leader_requests import LATEST
from sparkrelay.consumer.api.exchanges import outcome
from sparkrelay.consumer.base.arguments import (
    function_of,
    offset_of,
    partition_of,
    partitions_of,
    seconds_of,
    timestamps_of,
    topic_of,
)
from sparkrelay.consumer.base.call import Call
from sparkrelay.consumer.base.errors import copy_of
from sparkrelay.consumer.base.events import FetchCommitted, ListOffsets, PartitionsChanged, TopicsAsked
from sparkrelay.consumer.base.mailbox import Wait
from sparkrelay.errors import ConfigException, TimeoutException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from sparkrelay.client.group_requests import OffsetAndMetadata
    from sparkrelay.consumer.api.auto_commit import AsyncCommits, CommitCallback
    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.base.arguments import OffsetsToCommit
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.events import ApplicationEvent
    from sparkrelay.consumer.base.mailbox import Mailbox
    from sparkrelay.consumer.base.metrics import ConsumerMetrics
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.network.network_thread import ConsumerHandle
    from sparkrelay.types import TopicPartition


class OffsetExchanges:
    """The base class of ``Session``, which sets these attributes; methods are as in ``Consumer``."""

    config: ConsumerConfig
    network: ConsumerHandle
    mailbox: Mailbox
    subscription: SubscriptionState
    metrics: ConsumerMetrics
    _commits: AsyncCommits
    #: Whether positions are looked up at all.
    _fetching: bool

    def deadline(self, timeout: float | None = None) -> float:
        """Return the monotonic time in ``timeout`` seconds; None is ``default.api.timeout.ms``."""
        default = self.config.default_api_timeout_ms / 1000
        return time.monotonic() + (default if timeout is None else seconds_of("waiting for an answer", timeout))

    def commit(self, offsets: OffsetsToCommit | None, timeout: float | None) -> Exchange[None]:
        """Commit and wait, also for earlier asynchronous commits and their callbacks."""
        self.config.require_group("commit()")
        began = time.monotonic()
        try:
            yield from self._commit(offsets, timeout)
        finally:
            self.metrics.commit_sync_seconds += time.monotonic() - began

    def _commit(self, offsets: OffsetsToCommit | None, timeout: float | None) -> Exchange[None]:
        deadline = self.deadline(timeout)
        wanted = self.subscription.committable() if offsets is None else offsets
        call = self._commits.request(wanted, deadline, retry=True)
        try:
            yield from self._outcome(call)
        except Exception:
            if call.done:
                yield from self._commits.run_callbacks()
            raise
        yield from self._commits.finish(deadline)

    def commit_async(self, offsets: OffsetsToCommit | None, callback: CommitCallback | None) -> Future[None]:
        """Commit without waiting."""
        function_of("commit_async()", "callback", callback)
        self.config.require_group("commit_async()")
        return self._commits.submit(offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> Exchange[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return the group's committed offsets."""
        self.config.require_group("committed()")
        wanted = frozenset(partitions_of("committed()", partitions))
        began = time.monotonic()
        try:
            found: dict[TopicPartition, OffsetAndMetadata] = yield from self._outcome(
                self._ask("fetching committed offsets", timeout, lambda call: FetchCommitted(call, wanted))
            )
        finally:
            self.metrics.committed_seconds += time.monotonic() - began
        return {p: found.get(p) for p in sorted(wanted)}

    def position(self, partition: TopicPartition, timeout: float | None) -> Exchange[int]:
        """Return a position; look it up if necessary."""
        partition = partition_of("position()", partition)
        deadline = self.deadline(timeout)
        wait = Wait(lambda: self._known_or_gone(partition), deadline, for_events=False)
        while True:
            standing = self.subscription.get(partition)
            if standing is None:
                raise self.subscription.not_assigned(partition)
            if standing.position is not None and not standing.validating:
                return standing.position
            if standing.lacking is not None:
                raise copy_of(standing.lacking)
            if not self._fetching:
                raise ConfigException("position() of a consumer that does not fetch; use committed()")
            self.network.submit(PartitionsChanged())
            yield wait
            if self._known_or_gone(partition):
                continue
            self.mailbox.raise_if_woken()
            if time.monotonic() >= deadline:
                error = standing.asked.last_error if standing.asked is not None else None
                error = error or self.network.trouble
                because = f"; last error: {error}" if error is not None else ""
                raise TimeoutException(f"the position of {partition} was not found in time{because}")

    def _known_or_gone(self, partition: TopicPartition) -> bool:
        standing = self.subscription.get(partition)
        if standing is None or standing.lacking is not None or self.network.dead:
            return True
        return standing.position is not None and not standing.validating

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the distance of a position from the end; request the end if it is unknown."""
        partition = partition_of("lag()", partition)
        lag = self.subscription.lag(partition)
        if lag is None and self.subscription.ask_end(partition):

            def take(done: Call) -> None:
                found = done.result() if done.error is None else {}
                self.subscription.know_end(partition, found.get(partition, -1))

            self._list({partition: LATEST}, None).when_done(take)
        return lag

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set a position."""
        partition = partition_of("seek()", partition)
        self.subscription.seek(partition, offset_of("seek()", partition, offset))
        self.network.submit(PartitionsChanged())

    def seek_to(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Set positions to the start or the end of partitions, by default of all."""
        wanted = partitions_of("seek_to_beginning() or seek_to_end()", partitions)
        self.subscription.seek_to(wanted or sorted(self.subscription.assigned), timestamp)
        self.network.submit(PartitionsChanged())

    def set_paused(self, what: str, partitions: Iterable[TopicPartition], paused: bool) -> None:
        """Pause or resume partitions; the waiting data of paused ones makes room for others."""
        self.subscription.set_paused(partitions_of(what, partitions), paused)
        self.network.wake()

    def edges(
        self, what: str, partitions: Iterable[TopicPartition], timestamp: int, timeout: float | None
    ) -> Exchange[dict[TopicPartition, int]]:
        """Return the starts (-2) or ends (-1) of partitions."""
        return (yield from self._list_offsets(dict.fromkeys(partitions_of(what, partitions), timestamp), timeout))

    def for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Exchange[dict[TopicPartition, int | None]]:
        """Return the first offset at or after each timestamp, or None."""
        found = yield from self._list_offsets(timestamps_of("offsets_for_times()", timestamps), timeout)
        return {p: offset if offset >= 0 else None for p, offset in found.items()}

    def partitions_for(self, topic: str, timeout: float | None) -> Exchange[tuple[int, ...]]:
        """Return the partition numbers of a topic."""
        topic = topic_of("partitions_for()", topic)
        yield from self._refresh(f"asking for topic {topic!r}", frozenset([topic]), timeout)
        return self.network.core.partitions(topic)

    def topics(self, timeout: float | None) -> Exchange[frozenset[str]]:
        """Return the names of all topics."""
        yield from self._refresh("asking for the topics", None, timeout)
        return self.network.core.topics()

    def _refresh(self, what: str, topics: frozenset[str] | None, timeout: float | None) -> Exchange[None]:
        yield from self._outcome(self._ask(what, timeout, lambda call: TopicsAsked(call, topics)))

    def _list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> Exchange[dict[TopicPartition, int]]:
        found: dict[TopicPartition, int] = yield from self._outcome(self._list(wanted, timeout))
        return found

    def _list(self, wanted: Mapping[TopicPartition, int], timeout: float | None) -> Call:
        names = ", ".join(map(str, sorted(wanted)[:3])) + (", ..." if len(wanted) > 3 else "")
        read_committed = self.config.read_committed
        return self._ask(f"listing offsets of {names}", timeout, lambda call: ListOffsets(call, wanted, read_committed))

    def _ask(self, what: str, timeout: float | None, event: Callable[[Call], ApplicationEvent]) -> Call:
        call = Call(what, self.deadline(timeout))
        self.network.submit(event(call), call)
        return call

    def _outcome(self, call: Call) -> Exchange[Any]:
        return outcome(call, self.mailbox, interruptible=True)
