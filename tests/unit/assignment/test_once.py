"""What costs a question to the broker is asked for once, if at all."""

from __future__ import annotations

import threading

import pytest
from tests.waiting import LONG

from sparkrelay.assignment.once import Once


def test_a_value_is_fetched_when_it_is_first_asked_for():
    fetched = []
    once = Once(lambda: fetched.append("now") or len(fetched))
    assert fetched == []
    assert [once(), once()] == [1, 1]


def test_an_error_is_raised_each_time_and_nobody_asks_again():
    fetched = []

    def fetch():
        fetched.append("now")
        raise TimeoutError("no answer")

    once = Once(fetch)
    for _ in range(2):
        with pytest.raises(TimeoutError, match="no answer"):
            once()
    assert fetched == ["now"]


def test_two_threads_that_ask_share_one_answer():
    fetching, go, fetched, answers = threading.Event(), threading.Event(), [], []

    def fetch():
        fetching.set()
        assert go.wait(LONG)
        fetched.append("now")
        return len(fetched)

    once = Once(fetch)
    threads = [threading.Thread(target=lambda: answers.append(once())) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert fetching.wait(LONG)
    go.set()
    for thread in threads:
        thread.join(LONG)
    assert answers == [1, 1]
