import uuid

import pytest

from sparkrelay.client.admin import Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.devkafka.topics import create_topic, delete_topic, describe_topic
from sparkrelay.errors import BrokerResponseException, UnknownTopicException

pytestmark = pytest.mark.integration


@pytest.fixture
def name():
    return f"topics-{uuid.uuid4()}"


def test_life_of_a_topic(kafka, name):
    address = kafka.bootstrap_servers
    assert create_topic(address, name, partitions=3, config={"cleanup.policy": "compact"})

    found = describe_topic(address, name)
    assert found.partitions == (0, 1, 2)
    assert found.configs["cleanup.policy"] == "compact"

    assert not create_topic(address, name, partitions=7, exist_ok=True)
    assert len(describe_topic(address, name).partitions) == 3
    with pytest.raises(BrokerResponseException, match=name) as refused:
        create_topic(address, name)
    assert refused.value.name == "TOPIC_ALREADY_EXISTS"

    delete_topic(address, name)
    with pytest.raises(UnknownTopicException, match=name):
        describe_topic(address, name)


def test_a_missing_topic_is_named(kafka, name):
    with pytest.raises(UnknownTopicException, match=name):
        describe_topic(kafka.bootstrap_servers, name)
    with pytest.raises(UnknownTopicException, match=name):
        delete_topic(kafka.bootstrap_servers, name)
    delete_topic(kafka.bootstrap_servers, name, missing_ok=True)


def test_the_broker_has_the_transactions_that_we_need(kafka):
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers)) as client:
        client.bootstrap(30)
        assert Admin(client).features()["transaction.version"] == 2
