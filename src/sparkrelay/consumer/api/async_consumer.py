"""The consumer for asyncio: each method runs an exchange of ``session`` in the current task.

There is no polling thread: the event loop is the application thread, and the network thread wakes it with
``loop.call_soon_threadsafe``. Callbacks may be coroutines; they run inside ``await poll()`` (or ``unsubscribe`` and
``close``), in the polling task. Cancelling an await is like ``wakeup``: there is no await between moving a position and
returning the records, so none is lost.

The consumer belongs to one event loop, and to one task at a time. A child task inherits nothing; a callback passes the
consumer on by its key, explicitly (see ``access``). Waiting for the own loop is an error.

Most methods are generated from those of ``Consumer`` by ``scripts/generate_async_consumer.py``.
"""

# ruff: noqa: ASYNC109 - the timeouts are those of Consumer: a poll that is over returns an empty table

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Literal, Self, TypeVar, overload

from sparkrelay.client.leader_requests import EARLIEST, LATEST
from sparkrelay.consumer.api.access import AccessControl, Tasks
from sparkrelay.consumer.api.exchanges import awaiting
from sparkrelay.consumer.api.face import Face
from sparkrelay.consumer.api.session import Session
from sparkrelay.consumer.base.arguments import seconds_of
from sparkrelay.errors import ConcurrentModificationError, ConfigException, DisconnectException

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

_ITERATION_SECONDS = 60.0


def _awaitable(committed: Future[None]) -> asyncio.Future[None]:
    future = asyncio.wrap_future(committed)
    # Its error need not be retrieved.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


class AsyncConsumer(Face):
    """Reads topics, alone or as a member of a group, for asyncio.

    Its methods are those of ``Consumer``, awaited, with the same arguments, results and errors; callbacks may be
    coroutine functions. One task at a time uses it, in the event loop that uses it first; ``wakeup`` may be called from
    any task or thread. ``async for table in consumer`` iterates over non-empty tables until the consumer is closed.

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

    async def _run(self, exchange: Exchange[R], *, yields: bool = False) -> R:
        """Run an exchange. With ``yields`` other tasks run first: else a call that always finds data starves them."""
        self._check_caller()
        key = self._access.acquire()
        try:
            self._session.check_open()
            if yields:
                # Here, where a cancellation loses nothing: no position has moved yet.
                await asyncio.sleep(0)
            return await awaiting(exchange, self._session.mailbox)
        finally:
            self._access.release(key)

    def _check_caller(self) -> None:
        self._check_process()
        self._check_loop()

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
        self._check_caller()
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

    # -- subscription -------------------------------------------------------------------------------------------------

    async def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Be a member of the group for these topics, instead of earlier ones; ``poll`` joins."""
        await self._run(self._session.subscribe(topics, on_assigned, on_revoked, on_lost))

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, outside of any group's rebalances; an empty collection is ``unsubscribe``."""
        await self._run(self._session.assign(partitions))

    async def unsubscribe(self) -> None:
        """Give up all partitions, and leave the group."""
        await self._run(self._session.unsubscribe())

    async def subscription(self) -> frozenset[str]:
        """Return the subscribed topics."""
        return self._call(lambda: self._session.subscription.topics)

    async def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._call(lambda: self._session.subscription.assigned)

    async def enforce_rebalance(self, reason: str = "the application asked") -> None:
        """Request a rebalance; it happens in one of the next ``poll`` calls."""
        self._call(lambda: self._session.enforce_rebalance(reason))

    async def expect_rebalance(self) -> None:
        """Send heartbeats quickly for three seconds, to learn of an imminent rebalance at once."""
        self._call(self._session.expect_rebalance)

    async def group_metadata(self) -> GroupMetadata:
        """Return the member's identity in its group, as transactional commits need it."""
        return self._call(self._session.group_metadata)

    # -- polling ------------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None) -> pa.Table:
        """Serve the group, and return records."""
        return await self._run(self._session.poll(timeout, max_records, max_bytes), yields=True)

    async def records(
        self, timeout: float, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> list[Record]:
        """Do what ``poll`` does, and return the rows one by one. Tables are much faster."""
        return await self._run(self._session.records(timeout, max_records, max_bytes), yields=True)

    # -- committing ---------------------------------------------------------------------------------------------------

    async def commit(self, offsets: OffsetsToCommit | None = None, *, timeout: float | None = None) -> None:
        """Commit offsets (of the next records to read), and wait; None for all positions."""
        await self._run(self._session.commit(offsets, timeout))

    async def commit_async(
        self, offsets: OffsetsToCommit | None = None, callback: CommitCallback | None = None
    ) -> asyncio.Future[None]:
        """Commit offsets without waiting. Failures are not repeated, because a newer commit may be under way."""
        return _awaitable(self._call(lambda: self._session.commit_async(offsets, callback)))

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
        """Return the group's committed offsets, None where there is none."""
        found = await self._run(self._session.committed(partitions, timeout))
        return found if with_metadata else {p: None if c is None else c.offset for p, c in found.items()}

    # -- positions ----------------------------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """Return the offset of the next record that ``poll`` returns; look it up if necessary."""
        return await self._run(self._session.position(partition, timeout))

    async def lag(self, partition: TopicPartition) -> int | None:
        """Return the number of offsets between the position and the readable end."""
        return self._call(lambda: self._session.lag(partition))

    async def seek(self, partition: TopicPartition, offset: int) -> None:
        """Set the position to ``offset``."""
        self._call(lambda: self._session.seek(partition, offset))

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set positions to the first available record; by default those of all assigned partitions."""
        self._call(lambda: self._session.seek_to(partitions, EARLIEST))

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Set positions after the last record; by default those of all assigned partitions."""
        self._call(lambda: self._session.seek_to(partitions, LATEST))

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until ``resume``."""
        self._call(lambda: self._session.set_paused("pause()", partitions, True))

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of these partitions again."""
        self._call(lambda: self._session.set_paused("resume()", partitions, False))

    async def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return self._call(self._session.subscription.paused)

    # -- asking -------------------------------------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first available offset of each partition."""
        return await self._run(self._session.edges("beginning_offsets()", partitions, EARLIEST, timeout))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record: with read_committed the last stable offset."""
        return await self._run(self._session.edges("end_offsets()", partitions, LATEST, timeout))

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a timestamp (ms) in each partition, or None."""
        return await self._run(self._session.for_times(timestamps, timeout))

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> tuple[int, ...]:
        """Return the partition numbers of a topic; empty if it does not exist."""
        return await self._run(self._session.partitions_for(topic, timeout))

    async def topics(self, *, timeout: float | None = None) -> frozenset[str]:
        """Return the names of all topics that this consumer may see, except Kafka's internal ones."""
        return await self._run(self._session.topics(timeout))

    # -- closing ------------------------------------------------------------------------------------------------------

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
            # Without a pause before: a cancelled task still leaves the group.
            await awaiting(self._session.close(wanted, for_good=for_good), self._session.mailbox)
        finally:
            self._access.release(key)
