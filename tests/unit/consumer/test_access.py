"""KIP-944's test plan, and what it leaves out."""

from __future__ import annotations

import threading

import pytest

from sparkrelay.consumer.access import AccessControl
from sparkrelay.errors import AccessKeyError, ConcurrentModificationError


@pytest.fixture
def access():
    return AccessControl()


def call(access, inside=lambda: None):
    key = access.acquire()
    try:
        return inside()
    finally:
        access.release(key)


def on_thread(action, name="other"):
    result = {}

    def run():
        try:
            result["value"] = action()
        except Exception as error:  # noqa: BLE001
            result["error"] = error

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join(10)
    if "error" in result:
        raise result["error"]
    return result.get("value")


def test_in_a_callback_the_same_thread_may_call(access):
    assert call(access, lambda: call(access, lambda: call(access, lambda: "three deep"))) == "three deep"
    assert access.key is None


def test_in_a_callback_another_thread_is_refused_and_both_are_named(access):
    with pytest.raises(ConcurrentModificationError, match="thread 'other' called a consumer that thread 'MainThread'"):
        call(access, lambda: on_thread(lambda: call(access)))


def test_in_a_callback_another_thread_with_the_key_may_call(access):
    def callback():
        key = access.require_key()

        def other():
            with access.lend(key):
                call(access)
                call(access, lambda: call(access))
            assert access.key is None
            return "done"

        return on_thread(other)

    assert call(access, callback) == "done"
    call(access)


def test_two_threads_with_one_key_exactly_one_is_refused(access):
    inside, go = threading.Event(), threading.Event()
    outcomes = []

    def callback():
        key = access.require_key()

        def first():
            with access.lend(key):
                call(access, lambda: (inside.set(), go.wait(10)))
            outcomes.append("first")

        def second():
            with access.lend(key), pytest.raises(ConcurrentModificationError):
                call(access)
            outcomes.append("second refused")

        thread = threading.Thread(target=first)
        thread.start()
        assert inside.wait(10)
        on_thread(second)
        go.set()
        thread.join(10)

    call(access, callback)
    assert outcomes == ["second refused", "first"]


def test_a_callback_that_returns_too_early_is_an_error_and_the_consumer_recovers(access):
    inside, go, threads = threading.Event(), threading.Event(), []

    def callback():
        key = access.require_key()

        def other():
            with access.lend(key):
                call(access, lambda: (inside.set(), go.wait(10)))

        threads.append(threading.Thread(target=other, name="late"))
        threads[0].start()
        assert inside.wait(10)

    with pytest.raises(AccessKeyError, match="while thread 'late' was still using the consumer"):
        call(access, callback)
    with pytest.raises(ConcurrentModificationError):
        call(access)
    go.set()
    threads[0].join(10)
    call(access)


def test_an_exception_in_a_nested_call_releases(access):
    with pytest.raises(ZeroDivisionError):
        call(access, lambda: call(access, lambda: 1 / 0))
    on_thread(lambda: call(access))


def test_a_stale_key_is_nothing(access):
    key = call(access, access.require_key)
    with access.lend(key):
        call(access)  # nobody uses the consumer: anybody may

    def other():
        with access.lend(key):
            call(access)

    with pytest.raises(ConcurrentModificationError):
        call(access, lambda: on_thread(other))


def test_outside_of_callbacks_there_is_no_key(access):
    with pytest.raises(AccessKeyError, match="has no key"):
        access.require_key()


def test_a_new_thread_inherits_nothing(access):
    assert call(access, lambda: on_thread(lambda: access.key)) is None
