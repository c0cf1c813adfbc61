"""The future of ``commit_async`` does what a ``concurrent.futures.Future`` does, but for its lock."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time

import pytest
from tests.waiting import LONG

from sparkrelay.consumer.api.commit_future import CommitFuture
from sparkrelay.consumer.base.call import Call
from sparkrelay.errors import ConfigException


@pytest.fixture
def call():
    return Call("committing offsets", time.monotonic() + 60)


@pytest.fixture
def future(call):
    return CommitFuture(call)


def test_it_is_done_with_its_call(call, future):
    assert isinstance(future, concurrent.futures.Future)
    assert not future.done()
    assert not future.running()
    assert "pending" in repr(future)
    with pytest.raises(TimeoutError, match="committing offsets is not done after 0 s"):
        future.result(0)
    call.resolve(None)
    assert future.done()
    assert "done" in repr(future)
    assert future.result() is None
    assert future.exception() is None
    assert not future.cancel()
    assert not future.cancelled()


def test_the_first_outcome_counts(call, future):
    call.fail(ValueError("first"))
    call.resolve(None)
    call.fail(ValueError("second"))
    assert str(future.exception()) == "first"
    with pytest.raises(ValueError, match="first"):
        future.result()


def test_any_thread_may_wait_for_it(call, future):
    seen = []
    threads = [threading.Thread(target=lambda: seen.append(future.result(LONG))) for _ in range(3)]
    for thread in threads:
        thread.start()
    call.resolve(None)
    for thread in threads:
        thread.join(LONG)
    assert seen == [None] * 3


def test_it_may_be_cancelled(call, future):
    assert future.cancel()
    assert future.cancel()
    assert future.cancelled()
    assert call.done
    with pytest.raises(concurrent.futures.CancelledError):
        future.result()
    with pytest.raises(concurrent.futures.CancelledError):
        future.exception()


def test_callbacks_are_called_once_and_their_errors_are_logged(call, future, caplog):
    received = []
    future.add_done_callback(lambda _: 1 / 0)
    future.add_done_callback(received.append)
    call.resolve(None)
    call.resolve(None)
    future.add_done_callback(received.append)
    assert received == [future, future]
    assert "a listener of a call failed: committing offsets" in caplog.text


def test_asyncio_wraps_it(call, future):
    async def main():
        wrapped = asyncio.wrap_future(future)
        call.resolve(None)
        assert await wrapped is None

    asyncio.run(main())


def test_a_cancelled_task_cancels_it(future):
    async def main():
        asyncio.wrap_future(future).cancel()
        await asyncio.sleep(0)
        assert future.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize(
    "wait", [concurrent.futures.wait, lambda futures: list(concurrent.futures.as_completed(futures))]
)
def test_what_would_lock_it_is_refused(future, wait):
    with pytest.raises(ConfigException, match=r"call result\(\) of each future"):
        wait([future])


def test_two_threads_that_decide_at_once_notify_everybody_once():
    for _ in range(300):
        call, received, go = Call("x", time.monotonic() + 60), [], threading.Barrier(3)
        deciders = [
            threading.Thread(target=lambda result=result, call=call, go=go: (go.wait(), call.resolve(result)))
            for result in (1, 2)
        ]
        for thread in deciders:
            thread.start()
        go.wait()
        for _ in range(20):
            call.when_done(lambda done, received=received: received.append(done.result()))
        for thread in deciders:
            thread.join()
        assert received == [call.result()] * 20
