"""Programs on trio and anyio: Consumer in worker threads with keys, AsyncConsumer on anyio's asyncio backend."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
import trio
from tests.unit.consumer.silent_group import LeavingCore
from tests.waiting import LONG

from sparkrelay.consumer import AsyncConsumer, Consumer
from sparkrelay.consumer.api import session
from sparkrelay.consumer.base.events import Hold, JoinNeeded
from sparkrelay.errors import AccessKeyError, ConcurrentModificationError, ConfigException
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.commit": False}


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    monkeypatch.setattr(session, "ConsumerCore", lambda *_, **__: LeavingCore())


def hold(consumer):
    """Let a consumer hold two partitions at offset 7; its next poll runs `on_revoked` with both."""
    subscription = consumer._session.subscription
    subscription.assign_from_group((T0, T1))
    subscription.release()
    for partition in (T0, T1):
        subscription.seek(partition, 7)
    consumer._session.mailbox.put(JoinNeeded(1, Hold.REVOKE, frozenset({"t"}), frozenset()))


@pytest.fixture
def consumer():
    consumer = Consumer(SETTINGS)
    yield consumer
    consumer.close(0)


# Outside asyncio


def test_without_an_event_loop_an_awaiting_consumer_says_what_to_use():
    consumer = AsyncConsumer(SETTINGS)
    polling = consumer.poll(0)
    with pytest.raises(
        ConfigException, match=r"running asyncio event loop.*trio\.to_thread\.run_sync.*backend='asyncio'"
    ):
        polling.send(None)
    consumer._session.network.stop(30)


@pytest.mark.parametrize("run", [trio.run, lambda main: anyio.run(main, backend="trio")], ids=["trio", "anyio"])
def test_under_trio_an_awaiting_consumer_says_what_to_use(run):
    async def main():
        consumer = AsyncConsumer(SETTINGS)
        for use in (lambda: consumer.poll(0), consumer.close, consumer.__aenter__):
            with pytest.raises(ConfigException, match="use Consumer"):
                await use()
        consumer._session.network.stop(30)

    run(main)


# Keys


def test_trio_tasks_use_the_consumer_by_the_key_of_a_callback(consumer):
    reported = []

    def revoked(consumer, partitions):
        trio.from_thread.run(flush, consumer, consumer.access_key(), partitions)

    async def flush(consumer, key, partitions):
        turn = trio.Lock()

        def position(partition):
            with consumer.access(key):
                return partition, consumer.position(partition)

        async def write(partition):
            async with turn:
                reported.append(await trio.to_thread.run_sync(position, partition))

        async with trio.open_nursery() as nursery:
            for partition in partitions:
                nursery.start_soon(write, partition)

    async def main():
        await trio.to_thread.run_sync(lambda: consumer.subscribe(["t"], on_revoked=revoked))
        hold(consumer)
        await trio.to_thread.run_sync(consumer.poll, 0)

    trio.run(main)
    assert sorted(reported) == [(T0, 7), (T1, 7)]


def test_anyio_tasks_use_an_awaiting_consumer_by_the_key_of_a_callback():
    reported = []

    async def revoked(consumer, partitions):
        key, turn = consumer.access_key(), anyio.Lock()

        async def write(partition):
            async with turn, consumer.access(key):
                reported.append((partition, await consumer.position(partition)))

        async with anyio.create_task_group() as group:
            for partition in partitions:
                group.start_soon(write, partition)

    async def main():
        async with AsyncConsumer(SETTINGS) as consumer:
            await consumer.subscribe(["t"], on_revoked=revoked)
            hold(consumer)
            await consumer.poll(0)
            with anyio.move_on_after(0.01) as scope:
                await consumer.poll(60)
            assert scope.cancelled_caught
            assert (await consumer.poll(0)).num_rows == 0, "it is usable after a cancelled poll"

    anyio.run(main, backend="asyncio")
    assert sorted(reported) == [(T0, 7), (T1, 7)]


def test_kip_944s_own_methods_let_a_thread_in(consumer):
    seen = []

    def use(key):
        with pytest.raises(ConcurrentModificationError):
            consumer.position(T0)
        assert consumer.get_thread_access_key() is None
        consumer.set_thread_access_key(key)
        seen.append(consumer.position(T0))
        assert consumer.get_thread_access_key() is key, "a call leaves it as it was"
        consumer.set_thread_access_key(None)
        with pytest.raises(ConcurrentModificationError):
            consumer.position(T0)

    def revoked(consumer, _partitions):
        key = consumer.get_thread_access_key()
        assert key is consumer.access_key()
        with ThreadPoolExecutor(1) as worker:
            worker.submit(use, key).result(LONG)

    assert consumer.get_thread_access_key() is None
    consumer.subscribe(["t"], on_revoked=revoked)
    hold(consumer)
    consumer.poll(0)
    assert seen == [7]
    assert consumer.get_thread_access_key() is None
    with pytest.raises(AccessKeyError, match="is not a key"):
        consumer.set_thread_access_key("a key")
