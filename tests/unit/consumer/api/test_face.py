"""A consumer that nobody holds any more ends what it began, and says that it should have been closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import warnings
import weakref

import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.consumer import AsyncConsumer, Consumer, NetworkThread
from sparkrelay.types import TopicPartition

T0 = TopicPartition("t", 0)
SETTINGS = {"bootstrap.servers": "127.0.0.1:1", "client.id": "forgotten", "group.id": "g"}


@contextlib.contextmanager
def recorded():
    """What is said in the block about consumers that were never closed."""
    said = []
    with warnings.catch_warnings(record=True, action="always") as caught:
        yield said
    said += [str(w.message) for w in caught if w.category is ResourceWarning and "'forgotten'" in str(w.message)]


def thread_of(consumer):
    return consumer._session.network.thread._thread


def used_blocking(**more):
    consumer = Consumer(SETTINGS, **more)
    consumer.subscribe(["t"], on_assigned=lambda *_: None)
    consumer.poll(0)
    consumer.unsubscribe()
    consumer.assign([T0])
    consumer.seek(T0, 3)
    consumer.commit_async()
    consumer.poll(0)
    return consumer


def used_awaiting(**more):
    async def main():
        consumer = AsyncConsumer(SETTINGS, **more)
        await consumer.assign([T0])
        await consumer.seek(T0, 3)
        await consumer.poll(0)
        return consumer

    return asyncio.run(main())


@pytest.mark.parametrize("use", [used_blocking, used_awaiting], ids=["blocking", "awaiting"])
def test_a_forgotten_consumer_ends_its_thread_and_warns(use):
    consumer = use()
    gone, thread = weakref.ref(consumer), thread_of(consumer)
    with recorded() as said:
        del consumer
    assert gone() is None  # at once: nothing of its own makes a circle with it
    assert len(said) == 1
    assert "close()" in said[0]
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_consumer_whose_callback_holds_it_is_found_by_the_collector():
    consumer = Consumer(SETTINGS)
    consumer.subscribe(["t"], on_assigned=lambda *_, consumer=consumer: consumer)
    thread = thread_of(consumer)
    with recorded() as said:
        del consumer
        gc.collect()
    assert len(said) == 1
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_shared_thread_goes_on_without_it():
    with NetworkThread() as network:
        consumer, other = used_blocking(network=network), used_blocking(network=network)
        handle, thread = consumer._session.network, thread_of(consumer)
        with recorded() as said:
            del consumer
            gc.collect()
        assert len(said) == 1
        wait_until(lambda: handle.dead, "the consumer that was left open lives")
        assert thread.is_alive()
        other.poll(0)
        other.close(0)


@pytest.mark.parametrize("end", ["closed", "closed_by_thread"])
def test_who_is_closed_says_nothing(end):
    with recorded() as said:
        network = NetworkThread()
        consumer = used_blocking(network=network)
        if end == "closed":
            consumer.close(0)
        network.close()
        del consumer
        gc.collect()
    assert said == []


def test_a_warning_that_is_an_error_does_not_keep_the_thread(monkeypatch):
    raised = []
    monkeypatch.setattr("sys.excepthook", lambda kind, error, trace: raised.append(error))
    monkeypatch.setattr("sys.unraisablehook", lambda what: raised.append(what.exc_value))
    consumer = used_blocking()
    thread = thread_of(consumer)
    with warnings.catch_warnings(action="error"):
        del consumer
        gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()
    assert [type(error) for error in raised if "'forgotten'" in str(error)] == [ResourceWarning]
