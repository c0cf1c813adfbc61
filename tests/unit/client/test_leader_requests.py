"""Asking leaders while there are none. With a broker: tests/integration/client/test_admin_kafka.py."""

import socket

import pytest
from kafka.protocol.metadata import MetadataResponse

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.leader_requests import list_offsets_call, per_leader
from sparkrelay.client.transport.response import Response
from sparkrelay.errors import AuthorizationException, TimeoutException, UnknownTopicException
from sparkrelay.types import TopicPartition

END = -1
UNKNOWN_TOPIC, TOPIC_AUTHORIZATION_FAILED = 3, 29
Topic = MetadataResponse.MetadataResponseTopic
Partition = Topic.MetadataResponsePartition


def learn(client, leaders, *, error=0):
    """Have the client know topic ``orders``, with these leaders by partition."""
    partitions = [Partition(0, p, leader, 0, [1], [1], [], version=12) for p, leader in leaders.items()]
    topics = [Topic(error, "orders", None, False, partitions, version=12)]
    broker = MetadataResponse.MetadataResponseBroker(1, "127.0.0.1", 1, None, version=12)
    answer = MetadataResponse(brokers=[broker], controller_id=1, cluster_id="c", topics=topics, version=12)
    client.metadata.update(answer, requested=["orders"])


@pytest.fixture
def client():
    """A client that nobody answers: the port is bound, and not listened at."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with KafkaClient(ClientConfig(bootstrap_servers=f"127.0.0.1:{nobody.getsockname()[1]}")) as client:
            yield client


def ask(client):
    return per_leader(client, list_offsets_call(read_committed=False), {TopicPartition("orders", 0): END}, 0.3)


def test_a_partition_without_a_leader_is_waited_for(client):
    learn(client, {0: -1})
    with pytest.raises(TimeoutException, match="last error"):
        ask(client)


def test_a_topic_that_nobody_was_asked_about_is_not_missing(client):
    with pytest.raises(TimeoutException, match="last error"):
        ask(client)


@pytest.fixture
def answered(client, monkeypatch):
    """Brokers do answer, and say what the client knows already."""
    answer = Response(1)
    answer.finish(None, None)
    monkeypatch.setattr(client, "request_metadata", lambda topics: answer)


@pytest.mark.usefixtures("answered")
@pytest.mark.parametrize(("leaders", "error"), [({}, UNKNOWN_TOPIC), ({1: 1}, 0)], ids=["topic", "partition"])
def test_what_the_broker_does_not_have_is_missing(client, leaders, error):
    learn(client, leaders, error=error)
    with pytest.raises(UnknownTopicException, match="orders-0 did not exist within 0.3 s"):
        ask(client)


def test_what_was_missing_before_the_brokers_went_is_not_missing_for_good(client):
    """A broker that has just come up may not know its topics yet."""
    learn(client, {}, error=UNKNOWN_TOPIC)
    with pytest.raises(TimeoutException, match="last error"):
        ask(client)


@pytest.mark.usefixtures("answered")
def test_a_topic_that_may_not_be_described_is_not_waited_for(client):
    learn(client, {}, error=TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationException, match="orders-0.*TOPIC_AUTHORIZATION_FAILED"):
        ask(client)
