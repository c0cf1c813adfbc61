"""AsyncConsumer on a real broker: cancellation loses nothing, callbacks are coroutines, tasks hand over their key."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import random
import threading

import pytest
from tests.waiting import LONG, collect_async, wait_until

from sparkrelay.consumer import AsyncConsumer, Consumer
from sparkrelay.errors import (
    AccessKeyError,
    ConcurrentModificationError,
    DisconnectException,
    WakeupException,
)
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


@pytest.fixture
def settings(kafka, group):
    def make(**config):
        base = {
            "bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
            "enable.auto.commit": False, "heartbeat.interval.ms": 200, "session.timeout.ms": 6000,
        }  # fmt: skip
        return base | {key.replace("_", "."): value for key, value in config.items()}

    return make


async def read(consumer, count):
    async def poll():
        return (await consumer.poll(0.5)).to_pylist()

    return await collect_async(poll, lambda rows: len(rows) >= count, f"not {count} records")


async def until(condition, poller):
    async def poll():
        await poller()
        return ()

    await collect_async(poll, lambda _: condition(), "the condition did not come true")


def test_both_faces_have_the_same_methods():
    blocking, awaited = ({name: getattr(face, name) for name in dir(face)} for face in (Consumer, AsyncConsumer))
    names = {name for name in blocking if not name.startswith("_")}
    assert names == {name for name in awaited if not name.startswith("_")}
    not_awaited = {"wakeup", "metrics", "access_key", "access", "get_thread_access_key", "set_thread_access_key"}
    for name in names:
        assert inspect.iscoroutinefunction(awaited[name]) == (name not in not_awaited), name
        assert list(inspect.signature(blocking[name]).parameters) == list(inspect.signature(awaited[name]).parameters)


def test_subscribe_poll_commit_and_all_the_rest(settings, make_topic, produce):
    topic = make_topic("async", partitions=2)
    produce(topic, [{"value": str(i), "partition": i % 2, "timestamp": 1000 + i} for i in range(100)])
    both = [TopicPartition(topic, p) for p in range(2)]
    story = []

    async def assigned(consumer, partitions):
        await asyncio.sleep(0.01)
        story.append(("assigned", sorted(partitions), await consumer.beginning_offsets(partitions)))

    def revoked(consumer, partitions):
        story.append(("revoked", sorted(partitions)))

    async def main():
        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
            rows = await read(consumer, 100)
            assert sorted(int(row["value"]) for row in rows) == list(range(100))
            assert story == [("assigned", both, dict.fromkeys(both, 0))]
            assert await consumer.subscription() == {topic}
            assert await consumer.assignment() == set(both)
            assert await consumer.position(both[0]) == 50
            await consumer.commit()
            assert await consumer.committed(both) == dict.fromkeys(both, 50)
            received = []
            future = await consumer.commit_async(dict.fromkeys(both, 7), lambda *args: received.append(args))
            await future
            await consumer.commit({both[0]: 8})
            assert received == [(dict.fromkeys(both, 7), None)]
            assert await consumer.end_offsets(both) == dict.fromkeys(both, 50)
            assert await consumer.offsets_for_times({both[1]: 1051}) == {both[1]: 25}
            assert await consumer.partitions_for(topic) == (0, 1)
            assert topic in await consumer.topics()
            assert (await consumer.group_metadata()).generation >= 1
            await consumer.pause(both)
            assert await consumer.paused() == set(both)
            await consumer.seek(both[1], 40)
            await consumer.resume([both[1]])
            records = await consumer.records(30)
            assert [(r.partition, r.offset) for r in records] == [(1, n) for n in range(40, 50)]
            await consumer.seek_to_beginning()
            await consumer.seek_to_end([both[0]])
            assert await consumer.position(both[0]) == 50
        assert story[1:] == [("revoked", both)]
        with pytest.raises(DisconnectException, match="closed"):
            await consumer.poll(1)

    asyncio.run(main())


def test_async_for_goes_through_tables(settings, make_topic, produce):
    topic = make_topic("async")
    produce(topic, [("k", str(i)) for i in range(30)])

    async def main():
        seen = 0
        async with AsyncConsumer(settings()) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            async for table in consumer:
                assert table.num_rows
                seen += table.num_rows
                if seen == 30:
                    await consumer.close()
        return seen

    assert asyncio.run(main()) == 30


@pytest.mark.long
def test_cancellations_at_random_lose_no_record_and_repeat_none(settings, make_topic, produce):
    topic = make_topic("async", partitions=3)
    total, seen = 3000, []
    rng = random.Random(5)

    async def main():
        async with AsyncConsumer(settings(fetch_max_wait_ms=5, max_partition_fetch_bytes=2000)) as consumer:
            await consumer.subscribe([topic])
            writer = asyncio.create_task(asyncio.to_thread(write))
            cancelled = 0

            async def polled_or_cancelled():
                nonlocal cancelled
                poll = asyncio.create_task(consumer.poll(0.2, max_records=rng.choice([1, 7, 50])))
                for _ in range(rng.randrange(4)):
                    await asyncio.sleep(rng.choice([0, 0, 0.001, 0.01]))
                if rng.random() < 0.7:
                    poll.cancel()
                try:
                    seen.extend((await poll).to_pylist())
                except asyncio.CancelledError:
                    cancelled += 1

            await until(lambda: len(seen) >= total and cancelled >= 100, polled_or_cancelled)
            await writer
            assert asyncio.current_task().cancelling() == 0

    def write():
        for start in range(0, total, 100):
            produce(topic, [{"value": str(i), "partition": i % 3} for i in range(start, start + 100)])

    asyncio.run(main())
    assert sorted(int(row["value"]) for row in seen) == list(range(total))


def test_timeouts_around_poll_lose_no_record(settings, make_topic, produce):
    """asyncio.wait_for runs poll in another task, and may cancel it at the moment at which it ends."""
    topic = make_topic("async")
    produce(topic, [("k", str(i)) for i in range(500)])
    rng, seen = random.Random(7), []

    async def main():
        async with AsyncConsumer(settings()) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])

            async def poll():
                with contextlib.suppress(TimeoutError):
                    seen.extend(await asyncio.wait_for(consumer.records(1, max_records=3), rng.choice([0.0005, 0.005])))

            await until(lambda: len(seen) >= 500, poll)

    asyncio.run(main())
    assert [record.offset for record in seen] == list(range(500))


def test_writers_that_commit_when_partitions_are_revoked(settings, make_topic, produce):
    """The worked example: a callback gathers writers, and they commit under its key, one after another."""
    topic = make_topic("async", partitions=3)
    produce(topic, [{"value": str(i), "partition": i % 3} for i in range(30)])
    outcomes = []

    async def main():
        async def revoked(consumer, partitions):
            key, turn = consumer.access_key(), asyncio.Lock()

            async def writer(partition):
                with pytest.raises(ConcurrentModificationError):  # a child task inherits nothing
                    await consumer.assignment()
                await asyncio.sleep(random.random() / 50)  # flushing
                async with turn, consumer.access(key):
                    await consumer.commit({partition: await consumer.position(partition)})
                outcomes.append(partition)

            await asyncio.gather(*(writer(partition) for partition in partitions))

        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic], on_revoked=revoked)
            await read(consumer, 30)
            await consumer.unsubscribe()
            parts = [TopicPartition(topic, p) for p in range(3)]
            assert sorted(outcomes) == parts
            assert await consumer.committed(parts) == dict.fromkeys(parts, 10)

    asyncio.run(main())


def test_two_tasks_at_once_are_refused_and_named(settings, make_topic):
    topic = make_topic("async")

    async def main():
        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic])
            poll = asyncio.create_task(consumer.poll(LONG), name="the poller")
            await asyncio.sleep(0.05)  # at least a turn of the loop, in which the poll begins
            asyncio.current_task().set_name("the other")
            with pytest.raises(ConcurrentModificationError, match="task 'the other' called .* task 'the poller' is us"):
                await consumer.commit()
            consumer.wakeup()
            with pytest.raises(WakeupException):
                await poll
            await consumer.assignment()

    asyncio.run(main())


def test_writers_that_all_use_the_key_at_once_are_refused_but_one(settings, make_topic, produce):
    topic = make_topic("async")
    produce(topic, [("k", "v")])
    outcomes = []

    async def main():
        async def revoked(consumer, partitions):
            key, inside, go = consumer.access_key(), asyncio.Event(), asyncio.Event()

            async def first():
                with consumer.access(key):
                    # A call that lasts: an answer of the broker may come before the others have their turn.
                    held = consumer._access.acquire()
                    inside.set()
                    await go.wait()
                    consumer._access.release(held)
                    await consumer.committed(partitions)

            async def writer():
                await inside.wait()
                with consumer.access(key):
                    await consumer.committed(partitions)

            one = asyncio.create_task(first())
            refused = await asyncio.gather(*(writer() for _ in range(2)), return_exceptions=True)
            go.set()
            outcomes.extend([await one, *refused])

        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic], on_revoked=revoked)
            await read(consumer, 1)
            await consumer.unsubscribe()

    asyncio.run(main())
    assert [type(outcome) for outcome in outcomes] == [type(None), *[ConcurrentModificationError] * 2]


def test_a_callback_that_leaves_a_writer_behind_is_an_error_and_no_record_is_lost(settings, make_topic, produce):
    topic = make_topic("async")
    produce(topic, [("k", str(i)) for i in range(10)])

    async def main():
        stragglers, go = [], asyncio.Event()

        async def assigned(consumer, partitions):
            key = consumer.access_key()

            async def straggler():
                with consumer.access(key):
                    await consumer.end_offsets(partitions)
                    # On a busy machine the answer may be there before the callback goes on.
                    await go.wait()

            stragglers.append(asyncio.create_task(straggler(), name="straggler"))
            await asyncio.sleep(0)

        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic], on_assigned=assigned)
            with pytest.raises(AccessKeyError, match="while task 'straggler' was still using the consumer"):
                await until(lambda: False, lambda: consumer.poll(0.2))
            go.set()
            await asyncio.gather(*stragglers)
            rows = await read(consumer, 10)
            assert [row["offset"] for row in rows] == list(range(10))

    asyncio.run(main())


@pytest.mark.parametrize("hit", ["on_assigned", "on_revoked"])
def test_a_cancelled_callback_still_ends_the_step(settings, make_topic, produce, hit):
    """KAFKA-18160: the group knows of it, and the cancellation comes out of poll."""
    topic = make_topic("async")
    produce(topic, [("k", str(i)) for i in range(10)])

    async def main():
        inside = asyncio.Event()

        async def callback(consumer, partitions):
            if not inside.is_set():  # on_assigned is called again until it returns
                inside.set()
                await asyncio.sleep(600)

        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic], **{hit: callback})
            if hit == "on_revoked":
                await read(consumer, 10)
                work = asyncio.create_task(consumer.unsubscribe())
            else:
                work = asyncio.create_task(until(lambda: False, lambda: consumer.poll(LONG)))
            await inside.wait()
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            if hit == "on_revoked":
                assert await consumer.subscription() == frozenset()
                await consumer.subscribe([topic])
            assert len(await read(consumer, 10)) == 10

    asyncio.run(main())


def test_a_cancelled_commit_goes_on_and_the_consumer_stays_usable(settings, make_topic):
    topic = make_topic("async")
    partition = TopicPartition(topic, 0)

    async def main():
        async with AsyncConsumer(settings()) as consumer:
            await consumer.assign([partition])
            commit = asyncio.create_task(consumer.commit({partition: 5}))
            await asyncio.sleep(0)
            commit.cancel()
            with pytest.raises(asyncio.CancelledError):
                await commit
            found = []

            async def look():
                found.append(await consumer.committed([partition]))

            await until(lambda: {partition: 5} in found, look)

    asyncio.run(main())


def test_another_event_loop_is_refused(settings, make_topic):
    topic = make_topic("async")
    made = []

    async def main():
        consumer = AsyncConsumer(settings())
        made.append(consumer)
        await consumer.subscribe([topic])
        errors = []

        async def elsewhere():
            try:
                await consumer.poll(1)
            except ConcurrentModificationError as error:
                errors.append(error)

        await asyncio.to_thread(asyncio.run, elsewhere())
        assert "each loop needs a consumer of its own" in str(errors[0])
        await consumer.poll(0)

    asyncio.run(main())
    asyncio.run(made[0].close())  # its loop is gone: closing must be possible


def test_a_thread_reaches_the_consumer_through_its_loop(settings, make_topic):
    """A thread of asyncio.to_thread inherits no key; a coroutine that it sends to the loop is a task like others."""
    topic = make_topic("async")
    outcomes = []

    async def main():
        loop = asyncio.get_running_loop()

        async def assigned(consumer, partitions):
            key = consumer.access_key()

            async def with_key():
                with consumer.access(key):
                    return await consumer.assignment()

            def work():
                with pytest.raises(ConcurrentModificationError):
                    asyncio.run_coroutine_threadsafe(consumer.assignment(), loop).result(LONG)
                outcomes.append(asyncio.run_coroutine_threadsafe(with_key(), loop).result(LONG))

            await asyncio.to_thread(work)

        async with AsyncConsumer(settings()) as consumer:
            await consumer.subscribe([topic], on_assigned=assigned)
            await until(lambda: outcomes, lambda: consumer.poll(0.2))

    asyncio.run(main())
    assert outcomes == [{TopicPartition(topic, 0)}]


def test_wakeup_and_close_during_a_callback(settings, make_topic):
    topic = make_topic("async")

    async def main():
        async def assigned(consumer, partitions):
            consumer.wakeup()

        consumer = AsyncConsumer(settings())
        await consumer.subscribe([topic], on_assigned=assigned)
        with pytest.raises(WakeupException):
            await until(lambda: False, lambda: consumer.poll(LONG))

        async def closing(consumer, partitions):
            await consumer.close()

        await consumer.unsubscribe()
        await consumer.subscribe([topic], on_assigned=closing)
        with pytest.raises(DisconnectException, match="closed"):
            await until(lambda: False, lambda: consumer.poll(LONG))
        await consumer.close()

    asyncio.run(main())


def test_other_tasks_run_while_it_polls_and_while_it_finds_records(settings, make_topic, produce):
    topic = make_topic("async")
    produce(topic, [("k", str(i)) for i in range(100)])

    async def main():
        turns = 0

        async def other():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with AsyncConsumer(settings()) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            await read(consumer, 1)
            task = asyncio.create_task(other())
            await asyncio.sleep(0)
            before = turns
            await consumer.seek_to_beginning()
            await read(consumer, 100)
            for _ in range(50):
                await consumer.seek(TopicPartition(topic, 0), 0)
                await consumer.poll(0)
            assert turns > before + 50
            task.cancel()

    asyncio.run(main())


def test_closing_in_the_middle_leaves_no_thread(settings, make_topic):
    topic = make_topic("async")

    async def main():
        in_callback = asyncio.Event()

        async def never_ending(consumer, partitions):
            in_callback.set()
            await asyncio.Event().wait()

        consumer = AsyncConsumer(settings(client_id="async-check"))
        await consumer.subscribe([topic], on_revoked=never_ending)
        held = []

        async def poll():
            await consumer.poll(0.2)
            held.extend(await consumer.assignment())

        await until(lambda: held, poll)
        closing = asyncio.create_task(consumer.close())
        await in_callback.wait()  # without it, closing may be over before it is cancelled
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await consumer.close()

    asyncio.run(main())
    wait_until(lambda: not any("async-check" in thread.name for thread in threading.enumerate()), "a thread is left")
