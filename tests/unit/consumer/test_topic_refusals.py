"""Topics that the broker refuses are an error for whoever wants them; waiting would not make them appear."""

from __future__ import annotations

import pytest
from kafka.protocol.metadata import MetadataResponse

from sparkrelay.client.broker_errors import ErrorCode
from sparkrelay.client.metadata import Metadata
from sparkrelay.consumer.requests import RequestState
from sparkrelay.consumer.topic_metadata import TopicMetadataManager
from sparkrelay.errors import AuthorizationException, BrokerResponseException


@pytest.fixture
def metadata():
    return Metadata()


@pytest.fixture
def failures():
    return []


@pytest.fixture
def manager(metadata, failures):
    return TopicMetadataManager(metadata, max_age=300, state=RequestState(0.1, 1.0), fail=failures.append)


def ask(manager, metadata, metadata_message, codes, now=0.0):
    (unsent,) = manager.poll(now).requests
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
def test_a_refused_topic_is_told_and_not_looked_for_each_second(
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
    heard = []
    manager.ask(frozenset(["a b"]), lambda: heard.append(manager.refusal(["a b"])))
    ask(manager, metadata, metadata_message, {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION})
    assert "'a b'" in str(heard[0])
    assert failures == []
