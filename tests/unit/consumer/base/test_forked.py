"""A consumer in a process that was forked from its own: it has no network thread there. No broker is needed."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import traceback
import warnings

import pytest
from tests.waiting import LONG

from sparkrelay.consumer import AsyncConsumer, Consumer, NetworkThread
from sparkrelay.errors import DisconnectException, TimeoutException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
CONFIG = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "enable.auto.commit": "false"}
T0 = TopicPartition("t", 0)


def in_child(work):
    """Run `work` in a forked process, and return what it returned, as text; a child that hangs is killed."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.close(reads)
        signal.alarm(LONG)  # its default is to end the process
        try:
            said = str(work())
        except BaseException:  # noqa: BLE001 - the test reads it
            said = "raised: " + traceback.format_exc()
        try:
            os.write(writes, said.encode())
        finally:
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, "the child hung"
    return said


def complaint(call):
    try:
        call()
    except DisconnectException as error:
        return f"{'again' if error.retriable else 'never'}: {error}"
    return "nothing"


@pytest.fixture
def consumer():
    consumer = Consumer(CONFIG)
    consumer.assign([T0])
    yield consumer
    consumer.close(0)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.poll(0.01),
        lambda c: c.commit({T0: 1}),
        lambda c: c.assignment(),
        lambda c: c.seek(T0, 1),
        lambda c: c.metrics(),
    ],
)
def test_a_call_in_a_forked_process_names_both_processes(consumer, call):
    said = in_child(lambda: f"{complaint(lambda: call(consumer))} in {os.getpid()}")
    assert said.startswith("never: ")
    complained, _, child = said.rpartition(" in ")
    assert f"process {os.getpid()}" in complained
    assert f"process {child}" in complained
    assert "make a consumer in this process" in complained
    assert consumer.assignment() == {T0}


def test_closing_in_a_forked_process_lets_go_and_leaves_the_parent_alone(consumer):
    def work():
        with consumer:
            consumer.wakeup()
        consumer.close()
        return complaint(lambda: consumer.poll(0))

    assert in_child(work).startswith("never: ")
    assert consumer.poll(0.01).num_rows == 0
    with pytest.raises(TimeoutException):
        consumer.end_offsets([T0], timeout=0.01)


def test_forgetting_in_a_forked_process_does_nothing():
    consumers = [Consumer(CONFIG)]
    # What other tests have left to collect is not this test's.
    gc.collect()

    def work():
        with warnings.catch_warnings(record=True) as received:
            warnings.simplefilter("always")
            consumers.clear()
            gc.collect()
        return [str(each.message) for each in received if "was never closed" in str(each.message)]

    assert in_child(work) == "[]"
    consumers[0].assign([T0])
    assert consumers[0].poll(0.01).num_rows == 0
    consumers[0].close(0)


def test_a_shared_network_thread_serves_no_forked_process():
    with NetworkThread() as network:
        consumer = Consumer(CONFIG, network=network)

        def work():
            with network:
                return complaint(lambda: Consumer(CONFIG, network=network))

        said = in_child(work)
        assert said.startswith("never: ")
        assert f"process {os.getpid()}" in said
        assert "make a NetworkThread in this process" in said
        consumer.assign([T0])
        assert consumer.poll(0.01).num_rows == 0
        consumer.close(0)


def test_a_network_thread_that_was_not_used_yet_may_be_used_in_a_forked_process():
    network = NetworkThread()

    def work():
        with network, Consumer(CONFIG, network=network) as consumer:
            consumer.assign([T0])
            return consumer.poll(0.01).num_rows

    assert in_child(work) == "0"
    network.close()


def test_an_awaiting_consumer_in_a_forked_process():
    async def main():
        consumer = AsyncConsumer(CONFIG)
        await consumer.assign([T0])
        return consumer

    async def tried(consumer):
        try:
            await consumer.poll(0)
        except DisconnectException as error:
            said = str(error)
        await consumer.close()
        return said

    consumer = asyncio.run(main())
    said = in_child(lambda: asyncio.run(tried(consumer)))
    assert f"process {os.getpid()}" in said
    asyncio.run(consumer.close(0))
