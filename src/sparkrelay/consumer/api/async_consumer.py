"""The consumer of programs that await: each method runs an exchange of ``session`` in the current task.

There is no thread that polls: the event loop is the application thread, and the network thread wakes it with
``loop.call_soon_threadsafe``. Callbacks may be coroutines; they run inside ``await poll()`` (or ``unsubscribe`` and
``close``), in the task that polls. Cancelling an await is like ``wakeup``: there is no await between the move of a
position and the return of the records, so none is lost.

The consumer belongs to one event loop, and to one task at a time. A child task inherits nothing; a callback hands the
consumer over by its key, explicitly (see ``access``). Whoever would wait for its own loop gets an error instead.

Most methods are generated from those of ``Consumer`` by ``scripts/generate_async_consumer.py``.
"""

# ruff: noqa: ASYNC109 - the timeouts are those of Consumer: a poll that is over returns an empty table

from __future__ import annotations

import asyncio
import functools
import os
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Self, TypeVar, cast, overload

from sparkrelay.consumer.api.access import AccessControl, Tasks
from sparkrelay.consumer.api.exchanges import awaiting
from sparkrelay.consumer.api.face import Face
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.base.arguments import partitions_of, seconds_of
from sparkrelay.consumer.offsets.offsets import EARLIEST, LATEST
from sparkrelay.errors import ConcurrentModificationError, ConfigException, DisconnectException

if TYPE_CHECKING:
    import re
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
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

__all__ = ["AsyncConsumer"]

P = ParamSpec("P")
R = TypeVar("R")

_ITERATION_SECONDS = 60.0


def _guarded(
    method: Callable[Concatenate[AsyncConsumer, P], Awaitable[R]],
) -> Callable[Concatenate[AsyncConsumer, P], Coroutine[Any, Any, R]]:
    """Let one task at a time in, see ``access``."""

    @functools.wraps(method)
    async def guarded(self: AsyncConsumer, *args: P.args, **kwargs: P.kwargs) -> R:
        self._check_process()
        self._check_loop()
        key = self._access.acquire()
        try:
            self._session.check_open()
            return await method(self, *args, **kwargs)
        finally:
            self._access.release(key)

    return cast("Callable[Concatenate[AsyncConsumer, P], Coroutine[Any, Any, R]]", guarded)


def _awaitable(committed: Future[None]) -> asyncio.Future[None]:
    future = asyncio.wrap_future(committed)
    # Nobody has to look at it.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


class AsyncConsumer(Face):
    """Reads topics, alone or as a member of a group, for asyncio.

    Used by one task at a time; ``wakeup`` may be called from any task or thread. It belongs to the event loop that
    uses it first. ``async for table in consumer`` goes through tables that are not empty, until the consumer is closed.

    Args:
        config: Kafka's consumer settings by their dotted keys, see ``ConsumerConfig``.
        assignors: see ``Consumer``; they are plain objects, and run in the event loop.
        key_deserializer: see ``Consumer``.
        value_deserializer: see ``Consumer``.
        network: see ``Consumer``.

    Raises:
        ConfigException: a setting is unknown, malformed or out of range; or a method is awaited outside asyncio.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        assignors: Sequence[PartitionAssignor | str] = (),
        key_deserializer: object | None = None,
        value_deserializer: object | None = None,
        network: NetworkThread | None = None,
    ) -> None:
        self._access = AccessControl(Tasks())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._session = Session(
            self,
            config,
            self._access,
            assignors=assignors,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            fetching=True,
            network=network,
        )
        self._network = self._session.network

    async def _run(self, exchange: Exchange[R]) -> R:
        # A program that always finds records would never let other tasks run, nor itself be cancelled. It happens
        # before any position moves.
        await asyncio.sleep(0)
        return await awaiting(exchange, self._session.mailbox)

    def _check_loop(self, *, closing: bool = False) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ConfigException(
                "AsyncConsumer needs a running asyncio event loop, and there is none here. With trio, or without "
                "coroutines, use Consumer (with trio in worker threads: trio.to_thread.run_sync(consumer.poll, 1.0)); "
                "with anyio use its asyncio backend, anyio.run(main, backend='asyncio')"
            ) from None
        if closing and self._loop is not None and self._loop.is_closed():
            self._loop = None
            self._access.abandon()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ConcurrentModificationError(
                f"this AsyncConsumer belongs to the event loop {self._loop!r}, and was called in {loop!r}; each loop "
                "needs a consumer of its own. From another thread use "
                "asyncio.run_coroutine_threadsafe(..., loop)"
            )

    async def __aenter__(self) -> Self:
        self._check_process()
        self._check_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> Self:
        if self._session.closed:
            raise DisconnectException("the consumer is closed", retriable=False)
        return self

    async def __anext__(self) -> pa.Table:
        while True:
            try:
                table = await self.poll(_ITERATION_SECONDS)
            except DisconnectException:
                if self._session.closed:
                    raise StopAsyncIteration from None
                raise
            if table.num_rows:
                return table

    # -- subscription ------------------------------------------------------------------------------------------------

    @_guarded
    async def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Be a member of the group for these topics, instead of those before; ``poll`` joins.

        Callbacks are called with ``(consumer, partitions)``, and may be coroutine functions.

        Args:
            topics: names, or a pattern: a ``re.Pattern``, or names that begin with ``^``. Topics that do not exist are
                waited for. None at all is ``unsubscribe``.
            on_assigned: called with new partitions; positions may be sought in it.
            on_revoked: called with partitions that are about to go to others; commit in it. It may block, heartbeats
                go on.
            on_lost: called with partitions that others have already; without it ``on_revoked`` is called.

        Raises:
            ConfigException: no ``group.id``, or partitions were assigned by hand.
        """
        await self._run(self._session.subscribe(topics, on_assigned, on_revoked, on_lost))

    @_guarded
    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, outside of any group's rebalances; an empty collection is ``unsubscribe``."""
        await self._run(self._session.assign(partitions))

    @_guarded
    async def unsubscribe(self) -> None:
        """Give up everything, and leave the group."""
        await self._run(self._session.unsubscribe())

    @_guarded
    async def subscription(self) -> frozenset[str]:
        """Return the topics subscribed to."""
        return self._session.subscription.topics

    @_guarded
    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions held."""
        return self._session.subscription.assigned

    @_guarded
    async def enforce_rebalance(self, reason: str = "the application asked") -> None:
        """Ask for a rebalance; it happens in one of the next ``poll`` calls."""
        self._session.enforce_rebalance(reason)

    @_guarded
    async def expect_rebalance(self) -> None:
        """Send heartbeats quickly for three seconds: a rebalance is about to begin, which only an answer announces.

        For who knows that another member is gone before the group does. Nothing is asked for.
        """
        self._session.expect_rebalance()

    @_guarded
    async def group_metadata(self) -> GroupMetadata:
        """Return the member's place in its group, as a transactional commit must name it."""
        return self._session.group_metadata()

    # -- polling -----------------------------------------------------------------------------------------------------

    @_guarded
    async def poll(self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None) -> pa.Table:
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
        return await self._run(self._session.poll(timeout, max_records, max_bytes))

    @_guarded
    async def records(
        self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> list[Record]:
        """Do what ``poll`` does, and return the rows one by one. Tables are much faster."""
        return await self._run(self._session.records(timeout, max_records, max_bytes))

    # -- committing --------------------------------------------------------------------------------------------------

    @_guarded
    async def commit(self, offsets: OffsetsToCommit | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets (the next to be read), and wait until they are; None for all positions.

        What was committed with ``commit_async`` before is decided then, and its callbacks have run.

        Raises:
            CommitFailedException: the group went on without this consumer.
            UnknownTopicException: a topic was deleted, or deleted and created again; all others are committed.
            TimeoutException: it was not done within ``timeout``, by default ``default.api.timeout.ms``.
        """
        await self._run(self._session.offsets.commit(offsets, timeout))

    @_guarded
    async def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> asyncio.Future[None]:
        """Commit offsets without waiting. A failed one is not repeated: a newer one may be under way.

        Args:
            offsets: as for ``commit``.
            callback: called with ``(offsets, error)``, error None if all went well, inside one of the next calls of
                ``poll``, ``commit`` or ``close``, in the order of the commits.
        """
        return _awaitable(self._session.offsets.commit_async(offsets, callback))

    @overload
    async def committed(
        self,
        partitions: Iterable[TopicPartition],
        *,
        timeout: float | None = None,
        with_metadata: Literal[False] = False,
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None, with_metadata: Literal[True]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None, with_metadata: bool = False
    ) -> Mapping[TopicPartition, int | OffsetAndMetadata | None]:
        """Return the group's committed offsets, None where there is none.

        Args:
            partitions: which to ask for; they need not be assigned.
            timeout: in seconds, by default ``default.api.timeout.ms``.
            with_metadata: whether to return ``OffsetAndMetadata`` instead of plain offsets.
        """
        found = await self._committed(partitions, timeout)
        return found if with_metadata else {p: None if c is None else c.offset for p, c in found.items()}

    @_guarded
    async def _committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self._run(self._session.offsets.committed(partitions, timeout))

    # -- positions ---------------------------------------------------------------------------------------------------

    @_guarded
    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that ``poll`` will return; look it up if need be."""
        return await self._run(self._session.offsets.position(partition, timeout))

    @_guarded
    async def lag(self, partition: TopicPartition) -> int | None:
        """Return how many offsets are between the position and the end of what may be read.

        Never waits. None if position or end are not known yet; the end is then asked for, and known a little later.

        Raises:
            ConfigException: the partition is not assigned.
        """
        return self._session.offsets.lag(partition)

    @_guarded
    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``."""
        self._session.offsets.seek(partition, offset)

    @_guarded
    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on at the first record there is; no partitions mean all that are held."""
        self._session.offsets.seek_to(partitions, EARLIEST)

    @_guarded
    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Go on behind the last record; no partitions mean all that are held."""
        self._session.offsets.seek_to(partitions, LATEST)

    @_guarded
    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._session.offsets.pause(partitions)

    @_guarded
    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._session.offsets.resume(partitions)

    @_guarded
    async def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._session.subscription.paused()

    # -- asking ------------------------------------------------------------------------------------------------------

    @_guarded
    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset there is in each partition."""
        wanted = dict.fromkeys(partitions_of("beginning_offsets()", partitions), EARLIEST)
        return await self._run(self._session.offsets.list_offsets(wanted, timeout))

    @_guarded
    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset behind the last readable record: with read_committed the last stable offset."""
        wanted = dict.fromkeys(partitions_of("end_offsets()", partitions), LATEST)
        return await self._run(self._session.offsets.list_offsets(wanted, timeout))

    @_guarded
    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a timestamp (ms) in each partition, None if there is none."""
        return await self._run(self._session.offsets.for_times(timestamps, timeout))

    @_guarded
    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the partition numbers of a topic; empty if it does not exist."""
        return await self._run(self._session.offsets.partitions_for(topic, timeout))

    @_guarded
    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics that this consumer may see, without Kafka's internal ones."""
        return await self._run(self._session.offsets.topics(timeout))

    # -- closing -----------------------------------------------------------------------------------------------------

    async def close(self, timeout: float | None = None, *, for_good: bool = False) -> None:
        """Commit (if automatic), give up partitions, leave the group, end the network thread. May be repeated.

        A static member keeps its place for ``session.timeout.ms``, unless it is closed ``for_good`` (KIP-1092).
        """
        wanted = None if timeout is None else seconds_of("close()", timeout)
        if self._process != os.getpid():
            return
        self._check_loop(closing=True)
        key = self._access.acquire()
        try:
            await self._run(self._session.close(wanted, for_good=for_good))
        finally:
            self._access.release(key)
