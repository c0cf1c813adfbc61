"""What a consumer does with offsets: committing, seeking, asking. A part of the session, which it does not know."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from sparkrelay.consumer.api.exchanges import outcome
from sparkrelay.consumer.base.arguments import (
    function_of,
    offset_of,
    partition_of,
    partitions_of,
    timestamps_of,
    topic_of,
)
from sparkrelay.consumer.base.committed_offsets import OffsetAndMetadata
from sparkrelay.consumer.base.error_copies import copy_of
from sparkrelay.consumer.base.events import PartitionsChanged, Wait
from sparkrelay.consumer.offsets.offsets import LATEST
from sparkrelay.errors import ConfigException, TimeoutException

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from concurrent.futures import Future

    from sparkrelay.consumer.api.auto_commit import AsyncCommits, CommitCallback
    from sparkrelay.consumer.api.calls import Calls
    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.base.committed_offsets import OffsetsToCommit
    from sparkrelay.consumer.base.config import ConsumerConfig
    from sparkrelay.consumer.base.events import Call, Mailbox
    from sparkrelay.consumer.base.metrics import ConsumerMetrics
    from sparkrelay.consumer.base.subscription import SubscriptionState
    from sparkrelay.consumer.network.network_thread import ConsumerHandle
    from sparkrelay.types import TopicPartition

__all__ = ["OffsetExchanges"]


class OffsetExchanges:
    """See the module.

    Args:
        network: the network thread.
        mailbox: where the application waits.
        subscription: where the positions are.
        config: the consumer's settings.
        metrics: counts the time that commits take.
        calls: asks the network thread.
        commits: those that nobody waits for.
        fetching: whether positions are looked up at all.
    """

    def __init__(
        self,
        network: ConsumerHandle,
        mailbox: Mailbox,
        subscription: SubscriptionState,
        *,
        config: ConsumerConfig,
        metrics: ConsumerMetrics,
        calls: Calls,
        commits: AsyncCommits,
        fetching: bool,
    ) -> None:
        self._network = network
        self._mailbox = mailbox
        self._subscription = subscription
        self._config = config
        self._metrics = metrics
        self._calls = calls
        self._commits = commits
        self._fetching = fetching

    # -- committing --------------------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsToCommit | None, timeout: float | None) -> Exchange[None]:
        """Commit and wait; what was committed without waiting is decided first, and its callbacks have run."""
        self._config.require_group("commit()")
        began = time.monotonic()
        try:
            yield from self._commit(offsets, timeout)
        finally:
            self._metrics.commit_sync_seconds += time.monotonic() - began

    def _commit(self, offsets: OffsetsToCommit | None, timeout: float | None) -> Exchange[None]:
        deadline = self._calls.deadline(timeout)
        wanted = self._subscription.committable() if offsets is None else offsets
        call = self._calls.commit(wanted, deadline, retry=True)
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
        self._config.require_group("commit_async()")
        return self._commits.submit(offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> Exchange[dict[TopicPartition, OffsetAndMetadata | None]]:
        """Return what the group has committed."""
        self._config.require_group("committed()")
        wanted = frozenset(partitions_of("committed()", partitions))
        began = time.monotonic()
        try:
            found = yield from self._outcome(self._calls.committed(wanted, self._calls.deadline(timeout)))
        finally:
            self._metrics.committed_seconds += time.monotonic() - began
        return {p: _committed(*found[p]) if p in found else None for p in sorted(wanted)}

    # -- positions ---------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, timeout: float | None) -> Exchange[int]:
        """Return a position; look it up if need be."""
        partition = partition_of("position()", partition)
        deadline = self._calls.deadline(timeout)
        wait = Wait(lambda: self._known_or_gone(partition), deadline, for_events=False)
        while True:
            standing = self._subscription.get(partition)
            if standing is None:
                raise self._subscription.not_assigned(partition)
            if standing.position is not None and not standing.validating:
                return standing.position
            if standing.lacking is not None:
                raise copy_of(standing.lacking)
            if not self._fetching:
                raise ConfigException("position() of a consumer that does not fetch; use committed()")
            self._network.submit(PartitionsChanged())
            yield wait
            if self._known_or_gone(partition):
                continue
            self._mailbox.raise_if_woken()
            if time.monotonic() >= deadline:
                error = standing.asked.last_error if standing.asked is not None else None
                error = error or self._network.trouble
                because = f"; last error: {error}" if error is not None else ""
                raise TimeoutException(f"the position of {partition} was not found in time{because}")

    def _known_or_gone(self, partition: TopicPartition) -> bool:
        standing = self._subscription.get(partition)
        if standing is None or standing.lacking is not None or self._network.dead:
            return True
        return standing.position is not None and not standing.validating

    def lag(self, partition: TopicPartition) -> int | None:
        """Return how far a position is from the end; have the end asked for if nobody knows it."""
        partition = partition_of("lag()", partition)
        lag = self._subscription.lag(partition)
        if lag is None and self._subscription.ask_end(partition):

            def take(done: Call) -> None:
                found = done.result() if done.error is None else {}
                self._subscription.know_end(partition, found.get(partition, -1))

            self._calls.list_offsets({partition: LATEST}, self._calls.deadline()).when_done(take)
        return lag

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset."""
        partition = partition_of("seek()", partition)
        self._subscription.seek(partition, offset_of("seek()", partition, offset))
        self._network.submit(PartitionsChanged())

    def seek_to(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        """Go on at the start or the end of partitions, by default all."""
        wanted = partitions_of("seek_to_beginning() or seek_to_end()", partitions)
        wanted = wanted or sorted(self._subscription.assigned)
        self._subscription.seek_to(wanted, timestamp)
        self._network.submit(PartitionsChanged())

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of partitions; what waits of them makes room for others."""
        self._subscription.set_paused(partitions_of("pause()", partitions), True)
        self._network.wake()

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        self._subscription.set_paused(partitions_of("resume()", partitions), False)
        self._network.wake()

    # -- asking ------------------------------------------------------------------------------------------------------

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout: float | None
    ) -> Exchange[dict[TopicPartition, int]]:
        """Ask for offsets by timestamp, start or end."""
        found: dict[TopicPartition, int] = yield from self._outcome(
            self._calls.list_offsets(wanted, self._calls.deadline(timeout))
        )
        return found

    def for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout: float | None
    ) -> Exchange[dict[TopicPartition, int | None]]:
        """Ask for the first offset at or after a timestamp."""
        found = yield from self.list_offsets(timestamps_of("offsets_for_times()", timestamps), timeout)
        return {p: offset if offset >= 0 else None for p, offset in found.items()}

    def partitions_for(self, topic: str, timeout: float | None) -> Exchange[tuple[int, ...]]:
        """Ask for the partitions of a topic."""
        topic = topic_of("partitions_for()", topic)
        yield from self._outcome(self._calls.topics(frozenset([topic]), self._calls.deadline(timeout)))
        return self._network.core.partitions(topic)

    def topics(self, timeout: float | None) -> Exchange[frozenset[str]]:
        """Ask for all topics."""
        yield from self._outcome(self._calls.topics(None, self._calls.deadline(timeout)))
        return self._network.core.topics()

    def _outcome(self, call: Call) -> Exchange[Any]:
        return outcome(call, self._mailbox, interruptible=True)


def _committed(offset: int, leader_epoch: int, text: str) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, text, leader_epoch)
