"""KIP-944's test plan, and what it leaves out."""

from __future__ import annotations

import _thread
import threading

import pytest
from tests.waiting import LONG

from sparkrelay.consumer.api.access import AccessControl
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
    thread.join(LONG)
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
                call(access, lambda: (inside.set(), go.wait(LONG)))
            outcomes.append("first")

        def second():
            with access.lend(key), pytest.raises(ConcurrentModificationError):
                call(access)
            outcomes.append("second refused")

        thread = threading.Thread(target=first)
        thread.start()
        assert inside.wait(LONG)
        on_thread(second)
        go.set()
        thread.join(LONG)

    call(access, callback)
    assert outcomes == ["second refused", "first"]


def test_a_callback_that_returns_too_early_is_an_error_and_the_consumer_recovers(access):
    inside, go, threads = threading.Event(), threading.Event(), []

    def callback():
        key = access.require_key()

        def other():
            with access.lend(key):
                call(access, lambda: (inside.set(), go.wait(LONG)))

        threads.append(threading.Thread(target=other, name="late"))
        threads[0].start()
        assert inside.wait(LONG)

    with pytest.raises(AccessKeyError, match="while thread 'late' was still using the consumer"):
        call(access, callback)
    with pytest.raises(ConcurrentModificationError):
        call(access)
    go.set()
    threads[0].join(LONG)
    call(access)


def test_an_exception_in_a_nested_call_releases(access):
    with pytest.raises(ZeroDivisionError):
        call(access, lambda: call(access, lambda: 1 / 0))
    on_thread(lambda: call(access))


def test_a_callback_that_returns_while_a_thread_is_in_its_block_is_found_out(access):
    """Also if that thread is between two calls: it would go on when the partitions are gone."""
    inside, go, done = threading.Event(), threading.Event(), []

    def callback():
        key = access.require_key()

        def other():
            with access.lend(key):
                call(access)
                inside.set()
                go.wait(LONG)
                with pytest.raises(
                    AccessKeyError, match="thread 'late' may not use the consumer any more: its key has"
                ):
                    call(access)
            call(access)
            done.append(access.key)

        thread = threading.Thread(target=other, name="late")
        thread.start()
        assert inside.wait(LONG)
        with pytest.raises(AccessKeyError, match="thread 'late' was still using the consumer, in a call or in 'with"):
            access.check()
        call(access)  # KIP-944 counts calls: whoever runs the callback may call in between
        return thread

    threads = []
    with pytest.raises(AccessKeyError, match="to thread 'MainThread' while thread 'late' was still using"):
        call(access, lambda: threads.append(callback()))
    call(access)
    go.set()
    threads[0].join(LONG)
    assert done == [None]
    call(access)
    assert access._inside == []


def test_a_thread_that_threading_does_not_know_is_found_out_too(access):
    inside, go, left = threading.Event(), threading.Event(), threading.Event()

    def callback():
        key = access.require_key()

        def other():
            with access.lend(key):
                inside.set()
                go.wait(LONG)
            left.set()

        _thread.start_new_thread(other, ())
        assert inside.wait(LONG)

    with pytest.raises(AccessKeyError, match=r"while a thread without a name \(\d+\) was still using"):
        call(access, callback)
    go.set()
    assert left.wait(LONG)
    call(access)


def test_what_was_handed_over_is_for_one_block_at_a_time(access):
    def callback():
        block = access.lend(access.require_key())
        with block:
            with pytest.raises(
                AccessKeyError, match="thread 'MainThread' may not enter the block of thread 'MainThread'"
            ):
                block.__enter__()
            with pytest.raises(AccessKeyError, match="thread 'other' may not enter the block"):
                on_thread(block.__enter__)
            call(access)
        with block:
            call(access)
        assert access._inside == []

    call(access, callback)


def test_a_misused_key_is_one_more_way_to_use_a_consumer_at_once():
    assert issubclass(AccessKeyError, ConcurrentModificationError), "KIP-944 has one exception for both"


def test_a_thread_that_ended_without_leaving_is_not_inside(access):
    def callback():
        key = access.require_key()
        on_thread(lambda: (access.lend(key).__enter__(), call(access)))
        access.check()

    call(access, callback)


def test_whoever_runs_the_callback_may_enter_with_its_own_key(access):
    def callback():
        with access.lend(access.require_key()):
            call(access)
            access.check()

    call(access, callback)


def test_a_key_that_is_over_lets_nobody_in(access):
    key = call(access, access.require_key)
    block = access.lend(key)
    for use in (lambda: None, lambda: call(access)):
        with pytest.raises(AccessKeyError, match="may not use the consumer: its key has expired: the callback"), block:
            use()
    assert access.key is None

    def other():
        with access.lend(key):
            call(access)

    with pytest.raises(AccessKeyError, match="thread 'other' may not use the consumer: its key has expired"):
        call(access, lambda: on_thread(other))


def test_a_key_that_is_over_but_was_set_is_nothing(access):
    """As in KIP-944: a thread that never takes it back may call an idle consumer."""
    key = call(access, access.require_key)

    def other():
        access.key = key
        call(access)

    on_thread(other)
    with pytest.raises(ConcurrentModificationError, match="that thread 'MainThread' is using; its key has expired"):
        call(access, lambda: on_thread(other))


@pytest.mark.parametrize("value", [None, 5, "k", object()])
def test_what_is_no_key_is_refused(access, value):
    with pytest.raises(AccessKeyError, match=r"access\(\): .* is not a key; take consumer.access_key\(\) inside"):
        access.lend(value)
    if value is not None:
        with pytest.raises(AccessKeyError, match=r"set_thread_access_key\(\): .* is not a key"):
            access.key = value
    assert access.key is None


def test_the_key_of_another_consumer_is_refused(access):
    key = call(other := AccessControl(), other.require_key)
    with pytest.raises(AccessKeyError, match=r"access\(\): <AccessKey .* is the key of another consumer"):
        access.lend(key)
    with pytest.raises(AccessKeyError, match=r"set_thread_access_key\(\): .* is the key of another consumer"):
        access.key = key
    call(access)


def test_outside_of_callbacks_there_is_no_key(access):
    with pytest.raises(AccessKeyError, match="has no key"):
        access.require_key()


def test_a_new_thread_inherits_nothing(access):
    assert call(access, lambda: on_thread(lambda: access.key)) is None
