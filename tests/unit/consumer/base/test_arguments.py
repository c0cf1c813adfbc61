"""Wrong arguments are refused where they are given, and do the consumer no harm. No broker is needed."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import pytest

from sparkrelay.consumer import AsyncConsumer, Consumer, OffsetAndMetadata
from sparkrelay.consumer.base.arguments import offset_of, partition_of, partitions_of, seconds_of
from sparkrelay.errors import ConfigException, DisconnectException, TimeoutException
from sparkrelay.types import TopicPartition

T0 = TopicPartition("t", 0)


@pytest.fixture
def consumer():
    consumer = Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.commit": "false"})
    yield consumer
    consumer.close(0)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda c: c.assign(["t"]), r"assign\(\): 't' is not a partition.*TopicPartition"),
        (lambda c: c.assign("t"), r"assign\(\): 't' is not a collection of partitions"),
        (lambda c: c.assign(T0), r"assign\(\): 't' is not a partition"),
        (lambda c: c.assign([("t", 2**31)]), r"partition number 2147483648 of 't'"),
        (lambda c: c.assign([("t", -1)]), r"partition number -1 of 't'"),
        (lambda c: c.assign([("t", True)]), r"partition number True of 't'"),
        (lambda c: c.assign([("", 0)]), r"topic ''"),
        (lambda c: c.assign([(7, 0)]), r"topic 7"),
        (lambda c: c.assign([("\udc80", 0)]), r"topic '\\udc80'"),
        (lambda c: c.subscribe(["\udc80"]), r"topic '\\udc80'"),
        (lambda c: c.subscribe([7]), r"topic 7"),
        (lambda c: c.partitions_for("\udc80", timeout=0.01), r"topic '\\udc80'"),
        (lambda c: c.partitions_for(7, timeout=0.01), r"topic 7"),
        (lambda c: c.seek("t", 5), r"seek\(\): 't' is not a partition"),
        (lambda c: c.seek(T0, 2**63), r"seek\(\): offset 9223372036854775808 of t-0"),
        (lambda c: c.seek(T0, 5.0), r"seek\(\): offset 5\.0 of t-0"),
        (lambda c: c.seek(T0, -1), r"seek\(\): offset -1 of t-0"),
        (lambda c: c.seek_to_end(["t"]), r"seek_to_beginning\(\) or seek_to_end\(\): 't'"),
        (lambda c: c.pause([0]), r"pause\(\): 0 is not a partition"),
        (lambda c: c.resume(7), r"resume\(\): 7 is not a collection"),
        (lambda c: c.position("t"), r"position\(\): 't'"),
        (lambda c: c.lag("t"), r"lag\(\): 't'"),
        (lambda c: c.committed(["t"], timeout=0.01), r"committed\(\): 't'"),
        (lambda c: c.commit({"t": 5}), r"commit: 't' is not a partition"),
        (lambda c: c.commit([T0]), r"commit of .*: give a mapping"),
        (lambda c: c.commit_async([T0]), r"commit of .*: give a mapping"),
        (lambda c: c.commit({T0: 2**63}), r"commit: offset 9223372036854775808 of t-0"),
        (lambda c: c.commit_async({T0: 5.0}), r"commit: offset 5\.0 of t-0"),
        (lambda c: c.commit({T0: OffsetAndMetadata(5, leader_epoch=2**31)}), r"leader epoch 2147483648 of t-0"),
        (lambda c: c.commit({T0: OffsetAndMetadata(5, metadata="\udc80")}), r"metadata '\\udc80' of t-0"),
        (lambda c: c.commit({T0: OffsetAndMetadata(5, metadata=b"x")}), r"metadata b'x' of t-0"),
        (lambda c: c.end_offsets(["t"], timeout=0.01), r"'t' is not a partition"),
        (lambda c: c.beginning_offsets(["t"], timeout=0.01), r"'t' is not a partition"),
        (lambda c: c.offsets_for_times({T0: 2**63}, timeout=0.01), r"timestamp 9223372036854775808 of t-0"),
        (lambda c: c.offsets_for_times({T0: 0.5}, timeout=0.01), r"timestamp 0\.5 of t-0"),
        (lambda c: c.offsets_for_times({T0: -1}, timeout=0.01), r"timestamp -1 of t-0.*end_offsets\(\)"),
        (lambda c: c.offsets_for_times([T0], timeout=0.01), r"offsets_for_times\(\): .*mapping"),
        (lambda c: c.end_offsets([T0], timeout=math.nan), r"timeout=nan"),
        (lambda c: c.commit({T0: 1}, timeout="1"), r"timeout='1'"),
        (lambda c: c.assign([("t", 2**31)]), r"give an int from 0 to 2\*\*31 - 1"),
        (lambda c: c.enforce_rebalance(5), r"enforce_rebalance\(\): reason 5: give a string"),
        (lambda c: c.enforce_rebalance(None), r"enforce_rebalance\(\): reason None: give a string"),
        (lambda c: c.enforce_rebalance(b"x"), r"enforce_rebalance\(\): reason b'x': give a string"),
        (lambda c: c.enforce_rebalance("\ud800"), r"enforce_rebalance\(\): reason '\\ud800'.*UTF-8"),
        (lambda c: c.enforce_rebalance("ä" * 16_384), r"enforce_rebalance\(\): reason .*32768 bytes.*32767"),
        (lambda c: c.commit({T0: OffsetAndMetadata(5, "x" * 32_768)}), r"metadata .* of t-0.*32768 bytes.*32767"),
        (lambda c: c.commit_async({T0: OffsetAndMetadata(5, "x" * 32_768)}), r"metadata .* of t-0.*32768.*32767"),
        (lambda c: c.subscribe(["t" * 250]), r"subscribe\(\): topic 't+\.\.\..*250 .*249"),
        (lambda c: c.assign([("t" * 250, 0)]), r"assign\(\): topic .*250 .*249"),
        (lambda c: c.subscribe(None), r"subscribe\(\): None is not a collection of topics"),
        (lambda c: c.subscribe(5), r"subscribe\(\): 5 is not a collection of topics"),
        (lambda c: c.subscribe(b"t"), r"subscribe\(\): b't' is not a collection of topics"),
        (lambda c: c.subscribe(["^["]), r"subscribe\(\): '\^\['.*regular expression"),
        (lambda c: c.subscribe(["t", "^a", "^["]), r"subscribe\(\): '\^\['.*regular expression"),
        (lambda c: c.subscribe(["t"], on_assigned=5), r"subscribe\(\): on_assigned=5 is not a function"),
        (lambda c: c.subscribe(["t"], on_revoked="f"), r"subscribe\(\): on_revoked='f' is not a function"),
        (lambda c: c.subscribe(["t"], on_lost=[]), r"subscribe\(\): on_lost=\[\] is not a function"),
        (lambda c: c.commit_async({T0: 1}, 5), r"commit_async\(\): callback=5 is not a function"),
        (lambda c: c.beginning_offsets(None), r"beginning_offsets\(\): None is not a collection of partitions"),
        (lambda c: c.end_offsets(5), r"end_offsets\(\): 5 is not a collection of partitions"),
        (lambda c: c.end_offsets([["t", 0]]), r"end_offsets\(\): \['t', 0\] is not a partition"),
        (lambda c: c.close("x"), r"close\(\): timeout='x' is not a number"),
        (lambda c: c.close(math.nan), r"close\(\): timeout=nan is not a number"),
        (lambda c: c.close(10**400), r"close\(\): timeout=10{50,}\.\.\."),
        (lambda c: c.poll(10**5000), r"poll\(\): timeout=an int .*is not a number"),
    ],
)
def test_a_wrong_argument_is_refused_and_the_consumer_goes_on(consumer, call, says):
    with pytest.raises(ConfigException, match=says):
        call(consumer)
    consumer._network.core.awaits_poll  # noqa: B018 - the managers are there
    assert consumer.assignment() == frozenset()
    consumer.assign([T0])
    consumer.seek(T0, 5)
    with pytest.raises(TimeoutException):
        consumer.end_offsets([T0], timeout=0.01)


def test_plain_tuples_are_partitions(consumer):
    consumer.assign([("t", 0), ("t", np.int64(1))])
    assert consumer.assignment() == {T0, TopicPartition("t", 1)}
    consumer.seek(("t", 0), np.int64(5))
    assert consumer.position(("t", 0)) == 5
    consumer.pause([("t", 1)])
    assert consumer.paused() == {("t", 1)}
    for call in (consumer.committed, consumer.end_offsets):
        with pytest.raises(TimeoutException):
            call([("t", 0)], timeout=0.01)
    with pytest.raises(TimeoutException):
        consumer.commit({("t", 0): 5}, timeout=0.01)


def test_what_is_right_is_returned_in_our_own_types():
    assert type(partition_of("x", ("t", 1))) is TopicPartition
    assert partitions_of("x", {("t", 1): 2}) == [TopicPartition("t", 1)]
    assert type(offset_of("x", T0, np.int32(3))) is int
    assert seconds_of("x", 1) == 1.0
    assert seconds_of("x", math.inf) == math.inf


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
@pytest.mark.parametrize(
    ("args", "more", "says"),
    [
        ((None,), {}, r"config=None is not a mapping; give \{'bootstrap\.servers'"),
        (("x",), {}, r"config='x' is not a mapping"),
        (([("bootstrap.servers", "127.0.0.1:1")],), {}, r"config=\[.*is not a mapping"),
        (({"bootstrap.servers": "127.0.0.1:1"},), {"network": 5}, r"network=5 is not a NetworkThread"),
    ],
)
def test_a_consumer_of_nothing_that_could_be_one_is_refused(kind, args, more, says):
    with pytest.raises(ConfigException, match=says):
        kind(*args, **more)


def test_going_through_the_tables_of_a_closed_consumer_raises_as_poll_does():
    async def main():
        consumer = AsyncConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
        await consumer.close(0)
        with pytest.raises(DisconnectException, match="the consumer is closed"):
            async for _ in consumer:
                pass

    asyncio.run(main())


def test_the_awaiting_face_refuses_the_same():
    async def main():
        async with AsyncConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}) as consumer:
            for call, says in [
                (lambda: consumer.close("x"), r"close\(\): timeout='x'"),
                (lambda: consumer.end_offsets(None), r"end_offsets\(\): None"),
                (lambda: consumer.subscribe(["t"], on_lost=5), r"on_lost=5"),
                (lambda: consumer.commit_async({T0: 1}, 5), r"callback=5"),
                (lambda: consumer.enforce_rebalance(5), r"reason 5"),
            ]:
                with pytest.raises(ConfigException, match=says):
                    await call()
            assert await consumer.assignment() == frozenset()
            await consumer.close(0)

    asyncio.run(main())
