"""What a consumer does without any answer of a broker: its records are put into its buffer by the test."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.client.broker_errors import ErrorCode, broker_error
from sparkrelay.consumer import Consumer
from sparkrelay.consumer.api import session
from sparkrelay.consumer.base.events import ErrorRaised
from sparkrelay.consumer.fetch.fetching import Fetched
from sparkrelay.errors import (
    AuthorizationException,
    ConfigException,
    DisconnectException,
    OffsetOutOfRangeException,
    TimeoutException,
)
from sparkrelay.records.batches.encode import encode
from sparkrelay.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def records(*values):
    (batch,) = encode(None, pa.array(values, pa.binary()), timestamps=0)
    return memoryview(bytes(batch.data))


@pytest.fixture
def make():
    consumers = []

    def make(settings=(), **more):
        consumers.append(Consumer({"bootstrap.servers": "127.0.0.1:1", **dict(settings)}, **more))
        consumers[-1].assign([T0, T1])
        for partition in (T0, T1):
            consumers[-1].seek(partition, 0)
        return consumers[-1]

    yield make
    for consumer in consumers:
        consumer.close(0)


def beyond_python(column):
    """Return times after the year 9999."""
    return pa.array([2**60] * len(column), pa.timestamp("s"))


def test_records_that_cannot_be_converted_are_not_lost(make):
    consumer = make(value_deserializer=beyond_python)
    consumer._session._buffer.fetched([Fetched(T0, 0, records(b"a", b"b")), Fetched(T1, 0, records(b"c"))], 0.0)
    with pytest.raises((OverflowError, ValueError)):
        consumer.records(5)
    assert [consumer.position(p) for p in (T0, T1)] == [0, 0]


def test_an_interrupt_while_records_are_converted_loses_none(make, monkeypatch):
    def interrupted(table):
        raise KeyboardInterrupt

    consumer = make()
    consumer._session._buffer.fetched([Fetched(T0, 0, records(b"a", b"b"))], 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(session, "to_records", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.records(5)
    assert consumer.position(T0) == 0
    consumer._session._buffer.fetched([Fetched(T0, 0, records(b"a", b"b"))], 0.0)
    assert [record.value for record in consumer.records(5)] == [b"a", b"b"]


@pytest.mark.parametrize("number", [0, -1, 2.5, True])
@pytest.mark.parametrize("limit", ["max_records", "max_bytes"])
def test_a_limit_that_lets_nothing_through_is_refused(make, limit, number):
    consumer = make()
    with pytest.raises(ConfigException, match=rf"{limit}={number}"):
        consumer.poll(0.1, **{limit: number})
    with pytest.raises(ConfigException, match=rf"{limit}={number}"):
        consumer.records(0.1, **{limit: number})


@pytest.mark.parametrize("timeout", [math.nan, "1", None])
def test_a_time_that_is_none_is_refused(make, timeout):
    with pytest.raises(ConfigException, match=rf"poll\(\): timeout={timeout!r}"):
        make().poll(timeout)


def test_what_is_closed_stays_closed(make):
    # A program that tries again whatever may be tried again would do so for ever.
    consumer = make()
    consumer.close(0)
    with pytest.raises(DisconnectException, match="the consumer is closed") as caught:
        consumer.poll(1)
    assert not caught.value.retriable


def test_a_position_that_nothing_leads_to_is_an_error_at_once(make):
    consumer = make(settings={"auto.offset.reset": "none"})
    consumer.assign([T0, TopicPartition("u", 0)])
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeException, match=r"u-0.*auto\.offset\.reset=none.*seek"):
            consumer.position(("u", 0), timeout=LONG)
    assert consumer.position(T0) == 0
    consumer.seek(("u", 0), 7)
    assert consumer.position(("u", 0)) == 7


@pytest.mark.parametrize("method", ["pause", "resume", "seek_to_beginning", "seek_to_end"])
def test_nothing_changes_if_one_of_several_partitions_is_not_assigned(make, method):
    consumer = make()
    if method == "resume":
        consumer.pause([T0, T1])
    before = consumer.paused()
    for given in ([T0, ("u", 0), T1], iter([T0, T1, TopicPartition("t", 2)])):
        with pytest.raises(ConfigException, match="is not assigned to this consumer"):
            getattr(consumer, method)(given)
        assert consumer.paused() == before
        assert [consumer._session.subscription.get(p).position for p in (T0, T1)] == [0, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda c, p: c.seek(p, 1),
        lambda c, p: c.seek_to_end([p]),
        lambda c, p: c.pause([p]),
        lambda c, p: c.lag(p),
        lambda c, p: c.position(p),
    ],
)
def test_what_is_not_assigned_is_named_with_what_to_do(make, call):
    with pytest.raises(ConfigException, match=r"u-0 is not assigned.*assigned: t-0, t-1.*name it in assign\(\)"):
        call(make(), TopicPartition("u", 0))
    member = make({"group.id": "g", "enable.auto.commit": "false"})
    member.unsubscribe()
    member.subscribe(["u"])
    with pytest.raises(ConfigException, match=r"u-0 is not assigned.*assigned: none.*poll\(\) until.*on_assigned"):
        call(member, TopicPartition("u", 0))


@pytest.mark.parametrize("unwanted", ["assign", "subscribe"])
def test_the_refusal_of_a_topic_that_nobody_wants_any_more_is_not_raised(make, unwanted):
    consumer = make({"group.id": "g", "enable.auto.commit": "false"})
    if unwanted == "subscribe":
        consumer.unsubscribe()
        consumer.subscribe(["t"])
    refusal = broker_error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topic 'u'")
    consumer._session.mailbox.put(ErrorRaised(refusal, topic="u"))
    assert consumer.poll(0).num_rows == 0
    consumer._session.mailbox.put(ErrorRaised(refusal, topic="t"))
    with pytest.raises(AuthorizationException, match="topic 'u'"):
        consumer.poll(0)
    consumer._session.mailbox.put(ErrorRaised(refusal))
    with pytest.raises(AuthorizationException, match="topic 'u'"):
        consumer.poll(0)


def test_a_position_that_is_not_found_in_time_says_why(make):
    consumer = make({"auto.offset.reset": "earliest", "retry.backoff.ms": 1})
    consumer.assign([TopicPartition("u", 0)])
    with pytest.raises(TimeoutException):
        consumer.end_offsets([T0], timeout=0.01)
    wait_until(lambda: consumer._session.network.trouble is not None, "no trouble")
    with pytest.raises(TimeoutException, match=r"u-0.*last error: .*127\.0\.0\.1:1"):
        consumer.position(("u", 0), timeout=0.01)
