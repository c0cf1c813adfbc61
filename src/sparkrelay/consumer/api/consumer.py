"""The blocking consumer: each method runs an exchange of ``session`` on the calling thread.

Every call submits an event to the network thread and waits for its answer; nothing here touches a socket. Rebalance
callbacks and assignors run in the calling thread, inside ``poll``. See the consumer threading refactor; for access keys
KIP-944. ``async_consumer`` is generated from this module, except for a few methods.
"""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING, Literal, Self, TypeVar, overload

from sparkrelay.client.leader_requests import EARLIEST, LATEST
from sparkrelay.consumer.api.access import AccessControl
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.face import Face
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.base.arguments import seconds_of
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from sparkrelay.client.group_requests import GroupMetadata, OffsetAndMetadata
    from sparkrelay.consumer.api.auto_commit import CommitCallback
    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.api.rebalance import Callback
    from sparkrelay.consumer.api.record import Record
    from sparkrelay.consumer.base.arguments import OffsetsToCommit
    from sparkrelay.consumer.base.assignor import PartitionAssignor
    from sparkrelay.consumer.network.network_thread import NetworkThread
    from sparkrelay.types import TopicPartition

R = TypeVar("R")


class Consumer(Face):
    """Reads topics, alone or as a member of a group.

    Used by one thread at a time; ``wakeup`` may be called from any thread, and from signal handlers. Callbacks run
    inside ``poll`` (or ``unsubscribe`` and ``close``) and may call the consumer.

    Args:
        config: Kafka's consumer settings by their dotted keys, see ``ConsumerConfig``.
        assignors: client-side assignors to offer to the group instead of ``partition.assignment.strategy``, in order of
            preference; names refer to built-in ones.
        key_deserializer: converts the bytes of column ``key``: ``"string"``, ``"long"``, ``"integer"``, ``"short"``,
            ``"double"``, ``"float"``, ``"boolean"``, ``"uuid"`` (as Kafka's own), ``Json(pyarrow.schema([...]))``, or a
            function that maps a binary pyarrow column to another. Also the setting ``key.deserializer``.
        value_deserializer: the same for ``value``.
        fetching: False for a consumer that is only a member of its group: ``poll`` then serves rebalances and returns
            an empty table as soon as a callback ran; ``wakeup`` ends a waiting ``poll`` without an error.
        network: a thread shared with other consumers; None for its own.

    Raises:
        ConfigException: a setting is unknown, malformed or out of range.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        assignors: Sequence[PartitionAssignor | str] = (),
        key_deserializer: object | None = None,
        value_deserializer: object | None = None,
        fetching: bool = True,
        network: NetworkThread | None = None,
    ) -> None:
        self._access = AccessControl()
        self._process = os.getpid()
        self._session = Session(
            self,
            config,
            self._access,
            assignors=assignors,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            fetching=fetching,
            network=network,
        )
        self._network = self._session.network

    def _run(self, exchange: Exchange[R]) -> R:
        return self._call(lambda: blocking(exchange, self._session.mailbox))

    @staticmethod
    def _require_plain(*callbacks: Callback | None) -> None:
        for callback in callbacks:
            if inspect.iscoroutinefunction(callback):
                raise ConfigException(
                    f"subscribe(): {callback!r} is a coroutine function, and Consumer cannot await; use AsyncConsumer, "
                    "or give a plain function"
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- subscription -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Be a member of the group for these topics, instead of earlier ones; ``poll`` joins.

        Callbacks are called with ``(consumer, partitions)``.

        Args:
            topics: names, or a pattern: a ``re.Pattern``, or names that begin with ``^``. Topics that do not exist yet
                may appear later. An empty collection is ``unsubscribe``.
            on_assigned: called with new partitions; may call ``seek``.
            on_revoked: called with partitions that are about to be given to others; may commit. It may block:
                heartbeats continue.
            on_lost: called with partitions that others own already; defaults to ``on_revoked``.

        Raises:
            ConfigException: no ``group.id``, a callback is a coroutine function, or ``assign`` was called.
        """
        self._require_plain(on_assigned, on_revoked, on_lost)
        self._run(self._session.subscribe(topics, on_assigned, on_revoked, on_lost))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, outside of any group's rebalances; an empty collection is ``unsubscribe``."""
        self._run(self._session.assign(partitions))

    def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        self._run(self._session.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._call(lambda: self._session.subscription.topics)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._call(lambda: self._session.subscription.assigned)

    def enforce_rebalance(self, reason: str = "the application asked") -> None:
        """Request a rebalance; it happens in one of the next ``poll`` calls."""
        self._call(lambda: self._session.enforce_rebalance(reason))

    def expect_rebalance(self) -> None:
        """Send heartbeats quickly for three seconds, to learn of an imminent rebalance at once.

        For callers that know of another member's end before the group does. It does not request a rebalance.
        """
        self._call(self._session.expect_rebalance)

    def group_metadata(self) -> GroupMetadata:
        """Return the member's identity in its group, as transactional commits need it."""
        return self._call(self._session.group_metadata)

    # -- polling ------------------------------------------------------------------------------------------------------

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
            RecordDeserializationException: a record cannot be read; the position stays at it.
            KafkaException: the group or a partition failed for good.
            Exception: the error of a callback or an assignor; the group continues.
        """
        return self._run(self._session.poll(timeout, max_records, max_bytes))

    def records(self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None) -> list[Record]:
        """Do what ``poll`` does, and return the rows one by one. Tables are much faster."""
        return self._run(self._session.records(timeout, max_records, max_bytes))

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(self, offsets: OffsetsToCommit | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets (of the next records to read), and wait; None for all positions.

        It also waits for earlier ``commit_async`` commits and runs their callbacks.

        Raises:
            CommitFailedException: the consumer is no longer a member of the group.
            UnknownTopicException: a topic was deleted, or deleted and created again; all others are committed.
            TimeoutException: it was not done within ``timeout``, by default ``default.api.timeout.ms``.
        """
        self._run(self._session.commit(offsets, timeout))

    def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """Commit offsets without waiting. Failures are not repeated, because a newer commit may be under way.

        Args:
            offsets: as for ``commit``.
            callback: called with ``(offsets, error)``, error None on success, inside one of the next calls of
                ``poll``, ``commit`` or ``close``, in the order of the commits.
        """
        return self._call(lambda: self._session.commit_async(offsets, callback))

    @overload
    def committed(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
        with_metadata: Literal[False] = False,
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None, with_metadata: Literal[True]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None, with_metadata: bool = False
    ) -> Mapping[TopicPartition, int | OffsetAndMetadata | None]:
        """Return the group's committed offsets, None where there is none.

        Args:
            partitions: any partitions, also unassigned ones.
            timeout: in seconds, by default ``default.api.timeout.ms``.
            with_metadata: whether to return ``OffsetAndMetadata`` instead of plain offsets.
        """
        found = self._run(self._session.committed(partitions, timeout))
        return found if with_metadata else {p: None if c is None else c.offset for p, c in found.items()}

    # -- positions ----------------------------------------------------------------------------------------------------

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that ``poll`` returns; look it up if necessary."""
        return self._run(self._session.position(partition, timeout))

    def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the readable end.

        Never waits. None while position or end are unknown; the end is then requested, and known a little later.

        Raises:
            ConfigException: the partition is not assigned.
        """
        return self._call(lambda: self._session.lag(partition))

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position to ``offset``."""
        self._call(lambda: self._session.seek(partition, offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set positions to the first available record; by default those of all assigned partitions."""
        self._call(lambda: self._session.seek_to(partitions, EARLIEST))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set positions after the last record; by default those of all assigned partitions."""
        self._call(lambda: self._session.seek_to(partitions, LATEST))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._call(lambda: self._session.set_paused("pause()", partitions, True))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._call(lambda: self._session.set_paused("resume()", partitions, False))

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._call(self._session.subscription.paused)

    # -- asking -------------------------------------------------------------------------------------------------------

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first available offset of each partition."""
        return self._run(self._session.edges("beginning_offsets()", partitions, EARLIEST, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record: with read_committed the last stable offset."""
        return self._run(self._session.edges("end_offsets()", partitions, LATEST, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a timestamp (ms) in each partition, or None."""
        return self._run(self._session.for_times(timestamps, timeout))

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the partition numbers of a topic; empty if it does not exist."""
        return self._run(self._session.partitions_for(topic, timeout))

    def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics that this consumer may see, except Kafka's internal ones."""
        return self._run(self._session.topics(timeout))

    # -- closing ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None, *, for_good: bool = False) -> None:
        """Commit (if automatic), give up partitions, leave the group, end the network thread. May be repeated.

        In a process forked from the consumer's own it does nothing: the other process has the member.

        Args:
            timeout: bound on waiting for the broker, by default 30 s; callbacks are not bounded. The member leaves in
                any case.
            for_good: a static member (``group.instance.id``) gives up its place, too, instead of keeping it for
                ``session.timeout.ms``: KIP-1092's ``LEAVE_GROUP``. This includes a place that a former run left; not
                with ``group.protocol=consumer``, where the broker needs the former run's member id.

        Raises:
            Exception: the first error of a callback, after everything is closed.
        """
        wanted = None if timeout is None else seconds_of("close()", timeout)
        if self._process != os.getpid():
            return
        key = self._access.acquire()
        try:
            blocking(self._session.close(wanted, for_good=for_good), self._session.mailbox)
        finally:
            self._access.release(key)
