"""Errors that are kept are raised as copies: one object would gather the tracebacks of all who raise it."""

from __future__ import annotations

import traceback

import pytest

from sparkrelay.consumer import Consumer
from sparkrelay.consumer.base.errors import copy_of
from sparkrelay.consumer.base.events import ErrorRaised
from sparkrelay.errors import BrokerResponseException, DisconnectException, OffsetOutOfRangeException
from sparkrelay.types import TopicPartition


class PickyError(Exception):
    """Cannot be made from its args."""

    def __init__(self, *, name):
        super().__init__(f"about {name}")
        self.name = name


def made(error, **attributes):
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a", 2),
        PickyError(name="x"),
        DisconnectException("closed", retriable=False),
        BrokerResponseException("no", code=3, name="X"),
        made(KeyError("k"), more=1),
        OSError(2, "no such file", "f"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        OffsetOutOfRangeException("gone"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_says_the_same(error):
    copy = copy_of(error)
    assert copy is not error
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert copy.__cause__ is error
    assert copy.__traceback__ is None


@pytest.fixture
def consumer():
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "auto.offset.reset": "none"}
    consumer = Consumer(settings)
    yield consumer
    consumer.close(0)


def caught(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001 - looked at by the test
        return error
    raise AssertionError("nothing was raised")


def test_what_the_group_failed_of_is_raised_anew_by_each_poll(consumer):
    consumer.subscribe(["t"])
    kept = KeyError("of the group")
    consumer._session.mailbox.put(ErrorRaised(kept, fatal=True))
    errors = [caught(lambda: consumer.poll(0)) for _ in range(3)]
    assert len({id(error) for error in errors}) == 3
    assert all(type(error) is KeyError and error.args == kept.args for error in errors)
    assert len({len(traceback.extract_tb(error.__traceback__)) for error in errors[1:]}) == 1
    assert kept.__traceback__ is None


def test_why_there_is_no_position_is_raised_anew_by_each_call(consumer):
    partition = TopicPartition("t", 0)
    consumer.assign([partition])
    kept = OffsetOutOfRangeException("nothing is committed")
    consumer._session.subscription.get(partition).lacking = kept
    errors = [caught(lambda: consumer.position(partition)) for _ in range(3)]
    assert len({id(error) for error in errors}) == 3
    assert all(type(error) is type(kept) and str(error) == str(kept) for error in errors)
    assert kept.__traceback__ is None
