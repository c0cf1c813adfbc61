"""The consumer of programs that block: each method runs an exchange of ``session`` on the calling thread.

Every call submits an event to the network thread and waits for its answer; nothing here touches a socket. Rebalance
callbacks and assignors run in the calling thread, inside ``poll``. See the consumer threading refactor; for access keys
KIP-944. ``async_consumer`` is the same for programs that await, and generated from this module, but for a few methods.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import TYPE_CHECKING, Concatenate, Literal, ParamSpec, Self, TypeVar, cast, overload

from sparkrelay.consumer.api.access import AccessControl
from sparkrelay.consumer.api.exchanges import blocking
from sparkrelay.consumer.api.face import Face
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.base.arguments import partitions_of, seconds_of
from sparkrelay.consumer.offsets.offsets import EARLIEST, LATEST
from sparkrelay.errors import ConfigException

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from sparkrelay.consumer.api.auto_commit import CommitCallback
    from sparkrelay.consumer.api.exchanges import Exchange
    from sparkrelay.consumer.api.rebalance import Callback
    from sparkrelay.consumer.api.record import Record
    from sparkrelay.consumer.base.assignor import GroupMetadata, PartitionAssignor
    from sparkrelay.consumer.base.committed_offsets import OffsetAndMetadata, OffsetsToCommit
    from sparkrelay.consumer.network.network_thread import NetworkThread
    from sparkrelay.types import TopicPartition

__all__ = ["Consumer"]

P = ParamSpec("P")
R = TypeVar("R")


def _guarded(method: Callable[Concatenate[Consumer, P], R]) -> Callable[Concatenate[Consumer, P], R]:
    """Let one thread at a time in, see ``access``."""

    @functools.wraps(method)
    def guarded(self: Consumer, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_process()
        key = self._access.acquire()
        try:
            self._session.check_open()
            return method(self, *args, **kwargs)
        finally:
            self._access.release(key)

    return cast("Callable[Concatenate[Consumer, P], R]", guarded)


class Consumer(Face):
    """Reads topics, alone or as a member of a group.

    Used by one thread at a time; ``wakeup`` may be called from any, and from signal handlers. Callbacks run inside
    ``poll`` (or ``unsubscribe`` and ``close``) and may call the consumer.

    Args:
        config: Kafka's consumer settings by their dotted keys, see ``ConsumerConfig``.
        assignors: client-side assignors to offer to the group instead of ``partition.assignment.strategy``, the most
            wanted first; names stand for built-in ones.
        key_deserializer: makes the column ``key`` of its bytes: ``"string"``, ``"long"``, ``"integer"``, ``"short"``,
            ``"double"``, ``"float"``, ``"boolean"``, ``"uuid"`` (as Kafka's own), ``Json(pyarrow.schema([...]))``, or a
            function that maps a binary pyarrow column to another. Also the setting ``key.deserializer``.
        value_deserializer: the same for ``value``.
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
        return blocking(exchange, self._session.mailbox)

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

    # -- subscription ------------------------------------------------------------------------------------------------

    @_guarded
    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Be a member of the group for these topics, instead of those before; ``poll`` joins.

        Callbacks are called with ``(consumer, partitions)``.

        Args:
            topics: names, or a pattern: a ``re.Pattern``, or names that begin with ``^``. Topics that do not exist are
                waited for. None at all is ``unsubscribe``.
            on_assigned: called with new partitions; positions may be sought in it.
            on_revoked: called with partitions that are about to go to others; commit in it. It may block, heartbeats
                go on.
            on_lost: called with partitions that others have already; without it ``on_revoked`` is called.

        Raises:
            ConfigException: no ``group.id``, a callback is a coroutine function, or partitions were assigned by hand.
        """
        self._require_plain(on_assigned, on_revoked, on_lost)
        self._run(self._session.subscribe(topics, on_assigned, on_revoked, on_lost))

    @_guarded
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, outside of any group's rebalances; an empty collection is ``unsubscribe``."""
        self._run(self._session.assign(partitions))

    @_guarded
    def unsubscribe(self) -> None:
        """Give up everything, and leave the group."""
        self._run(self._session.unsubscribe())

    @_guarded
    def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._session.subscription.topics

    @_guarded
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions held."""
        return self._session.subscription.assigned

    @_guarded
    def enforce_rebalance(self, reason: str = "the application asked") -> None:
        """Ask for a rebalance; it happens in one of the next ``poll`` calls."""
        self._session.enforce_rebalance(reason)

    @_guarded
    def expect_rebalance(self) -> None:
        """Send heartbeats quickly for three seconds: a rebalance is about to begin, which only an answer announces.

        For who knows that another member is gone before the group does. Nothing is asked for.
        """
        self._session.expect_rebalance()

    @_guarded
    def group_metadata(self) -> GroupMetadata:
        """Return the member's place in its group, as a transactional commit must name it."""
        return self._session.group_metadata()

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
            RecordDeserializationException: a record cannot be read; the position stays in front of it.
            KafkaException: the group or a partition failed for good.
            Exception: whatever a callback or an assignor raised; the group goes on.
        """
        return self._run(self._session.poll(timeout, max_records, max_bytes))

    @_guarded
    def records(self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None) -> list[Record]:
        """Do what ``poll`` does, and return the rows one by one. Tables are much faster."""
        return self._run(self._session.records(timeout, max_records, max_bytes))

    # -- committing --------------------------------------------------------------------------------------------------

    @_guarded
    def commit(self, offsets: OffsetsToCommit | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets (the next to be read), and wait until they are; None for all positions.

        What was committed with ``commit_async`` before is decided then, and its callbacks have run.

        Raises:
            CommitFailedException: the group went on without this consumer.
            UnknownTopicException: a topic was deleted, or deleted and created again; all others are committed.
            TimeoutException: it was not done within ``timeout``, by default ``default.api.timeout.ms``.
        """
        self._run(self._session.offsets.commit(offsets, timeout))

    @_guarded
    def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """Commit offsets without waiting. A failed one is not repeated: a newer one may be under way.

        Args:
            offsets: as for ``commit``.
            callback: called with ``(offsets, error)``, error None if all went well, inside one of the next calls of
                ``poll``, ``commit`` or ``close``, in the order of the commits.
        """
        return self._session.offsets.commit_async(offsets, callback)

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
            partitions: which to ask for; they need not be assigned.
            timeout: in seconds, by default ``default.api.timeout.ms``.
            with_metadata: whether to return ``OffsetAndMetadata`` instead of plain offsets.
        """
        found = self._committed(partitions, timeout)
        return found if with_metadata else {p: None if c is None else c.offset for p, c in found.items()}

    @_guarded
    def _committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._run(self._session.offsets.committed(partitions, timeout))

    # -- positions ---------------------------------------------------------------------------------------------------

    @_guarded
    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that ``poll`` will return; look it up if need be."""
        return self._run(self._session.offsets.position(partition, timeout))

    @_guarded
    def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end of what may be read.

        Never waits. None if position or end are not known yet; the end is then asked for, and known a little later.

        Raises:
            ConfigException: the partition is not assigned.
        """
        return self._session.offsets.lag(partition)

    @_guarded
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``."""
        self._session.offsets.seek(partition, offset)

    @_guarded
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record there is; no partitions mean all that are held."""
        self._session.offsets.seek_to(partitions, EARLIEST)

    @_guarded
    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last record; no partitions mean all that are held."""
        self._session.offsets.seek_to(partitions, LATEST)

    @_guarded
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._session.offsets.pause(partitions)

    @_guarded
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._session.offsets.resume(partitions)

    @_guarded
    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._session.subscription.paused()

    # -- asking ------------------------------------------------------------------------------------------------------

    @_guarded
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset there is in each partition."""
        wanted = dict.fromkeys(partitions_of("beginning_offsets()", partitions), EARLIEST)
        return self._run(self._session.offsets.list_offsets(wanted, timeout))

    @_guarded
    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable record: with read_committed the last stable offset."""
        wanted = dict.fromkeys(partitions_of("end_offsets()", partitions), LATEST)
        return self._run(self._session.offsets.list_offsets(wanted, timeout))

    @_guarded
    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a timestamp (ms) in each partition, None if there is none."""
        return self._run(self._session.offsets.for_times(timestamps, timeout))

    @_guarded
    def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the partition numbers of a topic; empty if it does not exist."""
        return self._run(self._session.offsets.partitions_for(topic, timeout))

    @_guarded
    def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics that this consumer may see, without Kafka's internal ones."""
        return self._run(self._session.offsets.topics(timeout))

    # -- closing -----------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None, *, for_good: bool = False) -> None:
        """Commit (if automatic), give up partitions, leave the group, end the network thread. May be repeated.

        In a process forked from the consumer's own it does nothing: the other process has the member.

        Args:
            timeout: bound on waiting for the broker, by default 30 s; callbacks are not bounded. The member leaves in
                any case.
            for_good: a static member (``group.instance.id``) gives up its place, too, instead of keeping it for
                ``session.timeout.ms``: KIP-1092's ``LEAVE_GROUP``. Also that of a former run, if it has not joined yet;
                not with ``group.protocol=consumer``, where the broker asks for the former run's member id.

        Raises:
            Exception: the first error of a callback, after everything is closed.
        """
        wanted = None if timeout is None else seconds_of("close()", timeout)
        if self._process != os.getpid():
            return
        key = self._access.acquire()
        try:
            self._run(self._session.close(wanted, for_good=for_good))
        finally:
            self._access.release(key)
