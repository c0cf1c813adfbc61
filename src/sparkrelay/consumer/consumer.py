"""The consumer: what a program calls.

Every call submits an event to the network thread and waits for its answer; nothing here touches a socket. Rebalance
callbacks and assignors run in the calling thread, inside ``poll``. See the consumer threading refactor; for access keys
KIP-944.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import pyarrow as pa

from sparkrelay.consumer.access import AccessControl
from sparkrelay.consumer.assignors import offered
from sparkrelay.consumer.auto_commit import AutoCommit
from sparkrelay.consumer.calls import Calls, wait_for
from sparkrelay.consumer.config import ConsumerConfig
from sparkrelay.consumer.core import ConsumerCore
from sparkrelay.consumer.events import (
    AdoptNeeded,
    AssignNeeded,
    Call,
    ErrorRaised,
    JoinNeeded,
    Leave,
    Mailbox,
    PartitionsChanged,
    Polled,
    Rejoin,
    Subscribe,
)
from sparkrelay.consumer.fetch_buffer import TABLE_SCHEMA, FetchBuffer
from sparkrelay.consumer.network import attach
from sparkrelay.consumer.offsets import EARLIEST, LATEST
from sparkrelay.consumer.positions import RESETS
from sparkrelay.consumer.rebalance import RebalanceSteps
from sparkrelay.consumer.subscription import SubscriptionState
from sparkrelay.errors import (
    ConfigException,
    DisconnectException,
    OffsetOutOfRangeException,
    TimeoutException,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.consumer.access import AccessKey
    from sparkrelay.consumer.assignor import GroupMetadata, PartitionAssignor
    from sparkrelay.consumer.events import Adopted, Assigned, Prepared
    from sparkrelay.consumer.network import NetworkThread
    from sparkrelay.consumer.rebalance import Callback
    from sparkrelay.types import TopicPartition

__all__ = ["Consumer"]

P = ParamSpec("P")
R = TypeVar("R")

_CLOSE_SECONDS: Final = 30.0
#: Not ``empty_table()``: that imports pandas.
_NO_ROWS: Final = pa.Table.from_batches([], TABLE_SCHEMA)


def _guarded(method: Callable[Concatenate[Consumer, P], R]) -> Callable[Concatenate[Consumer, P], R]:
    """Let one thread at a time in, see ``access``."""

    @functools.wraps(method)
    def guarded(self: Consumer, *args: P.args, **kwargs: P.kwargs) -> R:
        self._access.acquire()
        try:
            self._check_open()
            return method(self, *args, **kwargs)
        finally:
            self._access.release()

    return cast("Callable[Concatenate[Consumer, P], R]", guarded)


class Consumer:
    """Reads topics, alone or as a member of a group.

    Used by one thread at a time; ``wakeup`` may be called from any. Callbacks get ``(consumer, partitions)``, run
    inside ``poll`` (or ``unsubscribe`` and ``close``) and may call the consumer.

    Args:
        config: Kafka's consumer settings by their dotted keys, see ``ConsumerConfig``.
        assignors: client-side assignors to offer to the group instead of ``partition.assignment.strategy``, the most
            wanted first; names stand for built-in ones.
        fetching: False for a consumer that is only a member of its group: ``poll`` then serves rebalances and returns
            an empty table as soon as a callback ran; ``wakeup`` ends a waiting ``poll`` without an error.
        network: a thread to share with other consumers; None for one of its own.

    Raises:
        ConfigException: a setting is unknown, malformed or out of range.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        assignors: Sequence[PartitionAssignor | str] = (),
        fetching: bool = True,
        network: NetworkThread | None = None,
    ) -> None:
        self._config = ConsumerConfig.from_dict(config)
        self._fetching = fetching
        self._assignors = self._config.choose_assignors(assignors, offered)
        self._access = AccessControl()
        self._mailbox = Mailbox()
        self._subscription = SubscriptionState()
        self._rebalance = RebalanceSteps(
            self, self._subscription, self._assignors, before_revoking=self._before_revoking
        )
        self._buffer: FetchBuffer | None = None
        if fetching:
            self._buffer = FetchBuffer(
                self._subscription,
                self._mailbox,
                read_committed=self._config.read_committed,
                check_crcs=self._config.check_crcs,
                out_of_range=self._out_of_range,
            )
        self._group_failure: Exception | None = None
        self._leave_deadline: float | None = None
        self._closed = False
        self._wakeups = True
        self._network = attach(network, self._config, self._mailbox, self._make_core)
        self._calls = Calls(self._network, self._config, self._subscription)
        self._auto_commit = AutoCommit(
            self._calls,
            self._mailbox,
            enabled=self._config.enable_auto_commit and self._config.group_id is not None and fetching,
            interval=self._config.auto_commit_interval_ms / 1000,
        )

    def _make_core(self, client: KafkaClient) -> ConsumerCore:
        return ConsumerCore(
            self._config,
            client.metadata,
            mailbox=self._mailbox,
            subscription=self._subscription,
            assignors=self._assignors,
            buffer=self._buffer,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- subscription ------------------------------------------------------------------------------------------------

    @_guarded
    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Be a member of the group for these topics, instead of those before; ``poll`` joins.

        Args:
            topics: names; topics that do not exist are waited for.
            on_assigned: called with new partitions; positions may be sought in it.
            on_revoked: called with partitions that are about to go to others; commit in it. It may block, heartbeats
                go on.
            on_lost: called with partitions that others have already; without it ``on_revoked`` is called.

        Raises:
            ConfigException: no ``group.id``, no topics, or partitions were assigned by hand.
        """
        wanted = frozenset([topics]) if isinstance(topics, str) else frozenset(topics)
        if not wanted:
            raise ConfigException("subscribe() without topics; call unsubscribe() to leave the group")
        self._require_group("subscribe()")
        self._subscription.subscribe(wanted)
        self._rebalance.set_callbacks(on_assigned, on_revoked, on_lost)
        self._network.submit(Subscribe(wanted))

    @_guarded
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, outside of any group's rebalances; an empty collection is ``unsubscribe``."""
        wanted = list(partitions)
        if not wanted:
            self._leave("assign() of nothing", self._calls.deadline())
            return
        self._auto_commit.soon()
        self._subscription.assign_by_hand(wanted)
        self._network.submit(PartitionsChanged(frozenset(p.topic for p in wanted)))

    @_guarded
    def unsubscribe(self) -> None:
        """Give up everything, and leave the group."""
        self._leave("the consumer unsubscribed", self._calls.deadline())

    @_guarded
    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._subscription.topics

    @_guarded
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions held."""
        return self._subscription.assigned

    @_guarded
    def enforce_rebalance(self, reason: str = "the application asked") -> None:
        """Ask for a rebalance; it happens in one of the next ``poll`` calls."""
        self._network.submit(Rejoin(reason))

    @_guarded
    def group_metadata(self) -> GroupMetadata:
        """Return the member's place in its group, as a transactional commit must name it."""
        self._require_group("group_metadata()")
        metadata = self._network.core.group_metadata
        assert metadata is not None, "there is a group.id"
        return metadata

    # -- polling -----------------------------------------------------------------------------------------------------

    @_guarded
    def poll(self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None) -> pa.Table:
        """Serve the group, and return records.

        Args:
            timeout: longest wait for the first record, in seconds.
            max_records: most rows; None for ``max.poll.records``.
            max_bytes: most bytes of keys and values, but at least one row; None for no limit.

        Returns:
            Rows with the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp,
            timestampType, headers.

        Raises:
            WakeupException: ``wakeup`` was called.
            KafkaException: the group or a partition failed for good.
            Exception: whatever a callback or an assignor raised; the group goes on.
        """
        if max_records is not None and max_records < 1:
            raise ConfigException(f"max_records={max_records} must be at least 1")
        deadline = time.monotonic() + timeout
        if self._group_failure is not None:
            raise self._group_failure
        if not self._subscription.topics and not self._subscription.by_hand:
            raise ConfigException("poll() of a consumer without topics or partitions; call subscribe() or assign()")
        self._tell_polled()
        self._auto_commit.when_due()
        while True:
            ran = self._serve()
            if self._fetching:
                self._mailbox.raise_if_woken()
                table = self._collect(max_records or self._config.max_poll_records, max_bytes)
                if table.num_rows:
                    return table
            elif self._mailbox.take_wakeup() or ran:
                return _NO_ROWS
            now = time.monotonic()
            if now >= deadline:
                return _NO_ROWS
            # The application is alive while it waits here, however long.
            self._mailbox.wait(self._has_news, min(deadline, now + self._config.max_poll_interval_ms / 3000))
            self._tell_polled()

    def _has_news(self) -> bool:
        return self._network.dead or (self._buffer is not None and self._buffer.has_data())

    def _collect(self, max_records: int, max_bytes: int | None) -> pa.Table:
        assert self._buffer is not None, "a consumer that fetches has one"
        if self._buffer.empty:
            return _NO_ROWS
        table = self._buffer.collect(max_records, max_bytes)
        # Whatever was taken makes room: the next fetch goes out while the application works.
        self._network.wake()
        return table

    def _tell_polled(self) -> None:
        """Let the network thread know that the application lives: when it looks, which does not cost us a thread."""
        now = self._network.polled_at = time.monotonic()
        if self._network.dead or self._network.core.awaits_poll:
            self._network.submit(Polled(now))

    def _serve(self) -> bool:
        """Do the application's part of what the network thread waits for; return whether a callback may have run.

        Raises:
            Exception: the first error among them; what came behind it waits for the next call.
        """
        ran = False
        while (event := self._mailbox.take()) is not None:
            error: Exception | None = None
            match event:
                case ErrorRaised():
                    error = event.error
                    if self._network.core.given_up:
                        self._group_failure = error
                case JoinNeeded():
                    held = self._subscription.assigned
                    error = self._rebalance.prepare(event, self._answer)
                    ran = ran or held != self._subscription.assigned
                case AssignNeeded():
                    error = self._rebalance.assign(event, self._answer)
                case AdoptNeeded():
                    error = self._rebalance.adopt(event, self._answer)
                    ran = True
            if error is not None:
                raise error
        return ran

    def _answer(self, answer: Prepared | Assigned | Adopted) -> None:
        if not self._closed:  # a callback may have closed the consumer
            self._network.submit(answer)

    def wakeup(self) -> None:
        """End a waiting call with WakeupException, or the next one. May be called from any thread."""
        if self._wakeups:
            self._mailbox.wakeup()

    # -- offsets -----------------------------------------------------------------------------------------------------

    @_guarded
    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets (the next to be read), and wait until they are; None for all positions.

        Raises:
            CommitFailedException: the group went on without this consumer.
            TimeoutException: it was not done within ``timeout``, by default ``default.api.timeout.ms``.
        """
        self._require_group("commit()")
        self._wait(self._calls.commit(offsets, self._calls.deadline(timeout), retry=True))

    @_guarded
    def commit_async(self, offsets: Mapping[TopicPartition, int] | None = None) -> Future[None]:
        """Commit offsets without waiting. A failed one is not repeated: a newer one may be under way."""
        self._require_group("commit_async()")
        future = self._calls.commit(offsets, self._calls.deadline(), retry=False).future
        self._auto_commit.note(future)
        return future

    @_guarded
    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the group's committed offsets, None where there is none."""
        self._require_group("committed()")
        wanted = frozenset(partitions)
        found = self._wait(self._calls.committed(wanted, self._calls.deadline(timeout)))
        return {p: found[p][0] if p in found else None for p in sorted(wanted)}

    @_guarded
    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that ``poll`` will return; look it up if need be."""
        deadline = self._calls.deadline(timeout)
        while True:
            standing = self._subscription.get(partition)
            if standing is None:
                raise ConfigException(f"{partition} is not assigned to this consumer")
            if standing.position is not None:
                return standing.position
            if not self._fetching:
                raise ConfigException("position() of a consumer that does not fetch; use committed()")
            self._network.submit(PartitionsChanged(frozenset()))
            self._mailbox.wait(lambda: self._known_or_gone(partition), deadline, for_events=False)
            if self._known_or_gone(partition):
                continue
            self._mailbox.raise_if_woken()
            if time.monotonic() >= deadline:
                raise TimeoutException(f"the position of {partition} was not found in time")

    def _known_or_gone(self, partition: TopicPartition) -> bool:
        standing = self._subscription.get(partition)
        return standing is None or standing.position is not None or self._network.dead

    @_guarded
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``."""
        if offset < 0:
            raise ConfigException(f"seek() to offset {offset} of {partition}: offsets are not negative")
        self._subscription.seek(partition, offset)
        self._network.submit(PartitionsChanged(frozenset([partition.topic])))

    @_guarded
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record there is; no partitions mean all that are held."""
        self._seek_to(partitions, EARLIEST)

    @_guarded
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last record; no partitions mean all that are held."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        wanted = list(partitions) or sorted(self._subscription.assigned)
        for partition in wanted:
            self._subscription.seek_to(partition, timestamp)
        self._network.submit(PartitionsChanged(frozenset(p.topic for p in wanted)))

    @_guarded
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._subscription.set_paused(partitions, True)

    @_guarded
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._subscription.set_paused(partitions, False)
        self._network.wake()

    @_guarded
    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._subscription.paused()

    @_guarded
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset there is in each partition."""
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST), timeout)

    @_guarded
    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable record: with read_committed the last stable offset."""
        return self._list_offsets(dict.fromkeys(partitions, LATEST), timeout)

    @_guarded
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a timestamp (ms) in each partition, None if there is none."""
        found = self._list_offsets(dict(timestamps), timeout)
        return {p: offset if offset >= 0 else None for p, offset in found.items()}

    @_guarded
    def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the partition numbers of a topic; empty if it does not exist."""
        self._wait(self._calls.topic(topic, self._calls.deadline(timeout)))
        return self._network.core.partitions(topic)

    def _list_offsets(self, wanted: Mapping[TopicPartition, int], timeout: float | None) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = self._wait(self._calls.list_offsets(wanted, self._calls.deadline(timeout)))
        return found

    # -- access keys (KIP-944) ---------------------------------------------------------------------------------------

    def access_key(self) -> AccessKey:
        """Return the calling thread's key, inside a callback: give it to the thread that is to use the consumer.

        Raises:
            AccessKeyError: the thread is not inside a callback of this consumer.
        """
        return self._access.require_key()

    def access(self, key: AccessKey) -> AbstractContextManager[None]:
        """Use the consumer under a key, for the time of a ``with`` block; the callback must wait for its end."""
        return self._access.lend(key)

    def get_thread_access_key(self) -> AccessKey | None:
        """Return the calling thread's key, or None: KIP-944's own name."""
        return self._access.key

    def set_thread_access_key(self, key: AccessKey | None) -> None:
        """Set the calling thread's key: KIP-944's own name."""
        self._access.key = key

    # -- closing -----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Commit (if automatic), give up partitions, leave the group, end the network thread. May be repeated.

        Args:
            timeout: bound on waiting for the broker, by default 30 s; callbacks are not bounded.

        Raises:
            Exception: the first error of a callback, after everything is closed.
        """
        self._access.acquire()
        try:
            if self._closed:
                return
            self._wakeups = False
            self._mailbox.take_wakeup()
            deadline = time.monotonic() + (_CLOSE_SECONDS if timeout is None else timeout)
            try:
                self._leave("the consumer is being closed", deadline)
                self._auto_commit.await_pending(deadline)
            finally:
                self._closed = True
                self._network.stop(max(1.0, deadline - time.monotonic()))
        finally:
            self._access.release()

    def _leave(self, reason: str, deadline: float) -> None:
        """Run the callbacks for what is held, then leave; the first error of a callback is raised at the end."""
        failures: list[Exception] = []
        # A coordinator that does not answer must not use up the time for leaving.
        now = time.monotonic()
        commit_deadline = now + max(0.0, deadline - now) / 2
        if self._subscription.by_hand:
            self._auto_commit.now(commit_deadline)
        self._mailbox.discard_steps()
        if self._subscription.topics:
            metadata = self._network.core.group_metadata
            if metadata is not None and metadata.generation < 0:
                self._rebalance.lose(failures)
            else:
                self._leave_deadline = commit_deadline
                self._rebalance.revoke(self._subscription.assigned, failures)
                self._leave_deadline = None
        self._subscription.clear()
        if self._buffer is not None:
            self._buffer.clear()
        call = Call("leaving the group", deadline)
        # If it cannot be told, the broker finds out by itself after session.timeout.ms.
        with contextlib.suppress(TimeoutException, DisconnectException):
            self._network.submit(Leave(call, reason), call)
            wait_for(call, self._mailbox, interruptible=False)
        self._mailbox.discard_steps()
        self._group_failure = None
        if failures:
            raise failures[0]

    # -- small things ------------------------------------------------------------------------------------------------

    def _wait(self, call: Call) -> Any:
        return wait_for(call, self._mailbox, interruptible=True)

    def _before_revoking(self) -> None:
        self._auto_commit.now(self._leave_deadline or self._calls.deadline())

    def _out_of_range(self, partition: TopicPartition, offset: int) -> None:
        reset = RESETS.get(self._config.auto_offset_reset)
        if reset is None:
            raise OffsetOutOfRangeException(
                f"{partition}: the log does not have offset {offset}, and auto.offset.reset=none; seek() to one that "
                "it has"
            )
        self._subscription.seek_to(partition, reset)

    def _require_group(self, what: str) -> None:
        if self._config.group_id is None:
            raise ConfigException(f"{what} needs a group: set group.id")

    def _check_open(self) -> None:
        if self._closed:
            raise DisconnectException("the consumer is closed")
        self._network.check()
