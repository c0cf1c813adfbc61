"""Topics that the broker refuses are an error for whoever wants them; waiting would not make them appear."""

from __future__ import annotations

import itertools

import pytest
from kafka.protocol.metadata import MetadataResponse

from sparkrelay.client.backoff import Backoff
from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.base.requests import RequestState
from sparkrelay.consumer.base.topic_metadata import TopicMetadataManager
from sparkrelay.errors import AuthorizationException, BrokerResponseException


@pytest.fixture
def metadata():
    return Metadata()


@pytest.fixture
def failures():
    return []


@pytest.fixture
def manager(metadata, failures):
    return TopicMetadataManager(metadata, max_age=300, state=RequestState(Backoff(0.1, 1.0)), fail=failures.append)


def ask(manager, metadata, metadata_message, codes, now=0.0):
    (unsent,) = manager.poll(now).requests
    answer(unsent, metadata, metadata_message, codes, now)


def answer(unsent, metadata, metadata_message, codes, now):
    response = metadata_message({})
    make = MetadataResponse.MetadataResponseTopic
    response.topics = [
        make(error_code=code, name=name, topic_id=None, is_internal=False, partitions=[])
        for name, code in codes.items()
    ]
    metadata.update(response, requested=unsent.request.topics)
    unsent.handle(None, None, now)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, BrokerResponseException),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationException),
    ],
)
def test_a_refused_topic_is_reported_and_not_looked_for_each_second(
    manager, metadata, metadata_message, failures, code, kind
):
    manager.want(["a b"])
    ask(manager, metadata, metadata_message, {"a b": code})
    (failure,) = failures
    assert isinstance(failure, kind)
    assert "topic 'a b'" in str(failure)
    assert code.name in str(failure)
    assert manager.poll(1.0).requests == ()
    assert manager.poll(1.0).wait == 299.0


def test_an_absent_topic_is_looked_for(manager, metadata, metadata_message, failures):
    manager.want(["later"])
    ask(manager, metadata, metadata_message, {"later": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert failures == []
    assert manager.refusal(["later"]) is None
    assert manager.poll(1.0).requests


def test_who_asks_gets_the_refusal_and_poll_does_not(manager, metadata, metadata_message, failures):
    received = []
    manager.ask(frozenset(["a b"]), lambda: received.append(manager.refusal(["a b"])))
    ask(manager, metadata, metadata_message, {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION})
    assert "'a b'" in str(received[0])
    assert failures == []


def looked_for(manager, metadata, metadata_message, codes, *, ticks):
    """Return when a manager asks, who is notified ten times a second that leaders are unknown."""
    times = []
    for now in ticks:
        for topic in codes:
            manager.stale(topic)
        for unsent in manager.poll(now).requests:
            times.append(now)
            answer(unsent, metadata, metadata_message, codes, now)
    return times


@pytest.mark.parametrize("wanted", [True, False])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_topic_that_is_not_there_is_asked_for_ever_more_slowly(manager, metadata, metadata_message, code, wanted):
    if wanted:
        manager.want(["x"])
    ticks = [tick / 10 for tick in range(600)]
    times = looked_for(manager, metadata, metadata_message, {"x": code}, ticks=ticks)
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[0] < 0.15
    assert all(0.95 < pause < 1.15 for pause in pauses[5:])


def test_the_wait_says_when_it_is_asked_for_again(manager, metadata, metadata_message):
    codes = {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    looked_for(manager, metadata, metadata_message, codes, ticks=[tick / 10 for tick in range(100)])
    manager.stale("x")
    wait = manager.poll(9.95).wait
    assert 0 < wait <= 1
    assert manager.poll(9.95 + wait).requests


def test_others_do_not_wait_for_a_topic_that_is_not_there(manager, metadata, metadata_message):
    codes = {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (*_, last) = looked_for(manager, metadata, metadata_message, codes, ticks=[tick / 10 for tick in range(100)])
    manager.stale("x")
    manager.stale("y")
    assert manager.poll(last + 0.11).requests


def test_who_wants_a_topic_anew_does_not_wait(manager, metadata, metadata_message):
    codes = {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (*_, last) = looked_for(manager, metadata, metadata_message, codes, ticks=[tick / 10 for tick in range(100)])
    manager.want(["x"])
    assert manager.poll(last + 0.11).requests


def test_a_topic_that_appeared_is_asked_for_at_once_when_its_leader_moves(manager, metadata, metadata_message):
    codes = {"x": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    (*_, last) = looked_for(manager, metadata, metadata_message, codes, ticks=[tick / 10 for tick in range(100)])
    manager.stale("x")
    (unsent,) = manager.poll(last + 1.01).requests
    metadata.update(metadata_message({"x": 1}), requested=unsent.request.topics)
    unsent.handle(None, None, last + 1.01)
    manager.stale("x")
    assert manager.poll(last + 1.12).requests
