import time

import pytest
from tests.waiting import LONG

from sparkrelay.client.admin import EARLIEST, LATEST, Admin, TopicSpec
from sparkrelay.errors import (
    BrokerResponseException,
    OffsetOutOfRangeException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def test_topics_are_made_described_and_deleted(admin, kafka_admin):
    name = f"admin-{time.time_ns()}"
    assert admin.create_topics({name: TopicSpec(3, configs={"cleanup.policy": "compact"})}) == {name}
    assert len(kafka_admin.list_topics(name, timeout=LONG).topics[name].partitions) == 3
    described = admin.describe_topics([name])[name]
    assert described.partitions == (0, 1, 2)
    assert described.configs["cleanup.policy"] == "compact"
    assert described.topic_id is not None
    assert name in admin.list_topics()
    assert "__consumer_offsets" not in admin.list_topics()
    admin.delete_topics([name])
    assert admin.partitions([name]) == {name: None}
    with pytest.raises(UnknownTopicException, match=name):
        admin.describe_topics([name])
    with pytest.raises(UnknownTopicException, match=f"{name} does not exist"):
        admin.delete_topics([name])
    admin.delete_topics([name], missing_ok=True)


def test_racks_of_replicas(admin, make_topic):
    name = make_topic("racks", partitions=2)
    racks = admin.replica_racks([name, "no-such-topic"])
    assert racks == {TopicPartition(name, partition): {"rack-1"} for partition in range(2)}


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(admin, make_topic):
    name = make_topic("exists")
    with pytest.raises(BrokerResponseException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics({name: TopicSpec(1)})
    assert admin.create_topics({name: TopicSpec(1)}, exist_ok=True) == frozenset()


def test_a_refused_topic_gives_the_brokers_reason(admin):
    with pytest.raises(BrokerResponseException, match=r"replication factor of 3.*INVALID_REPLICATION_FACTOR"):
        admin.create_topics({f"refused-{time.time_ns()}": TopicSpec(1, replication_factor=3)})


def test_offsets_by_position_and_time(admin, make_topic, produce):
    topic = make_topic("offsets", partitions=2)
    produce(topic, [{"value": str(i), "partition": 0, "timestamp": 1000 * i} for i in range(1, 6)])
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.list_offsets({zero: LATEST, one: LATEST}) == {zero: 5, one: 0}
    assert admin.list_offsets({zero: 2500, one: 2500}) == {zero: 2, one: -1}
    assert admin.delete_records({zero: 3}) == {zero: 3}
    assert admin.list_offsets({zero: EARLIEST, one: EARLIEST}) == {zero: 3, one: 0}
    with pytest.raises(OffsetOutOfRangeException, match=f"{topic}-0 before 99"):
        admin.delete_records({zero: 99})


def test_offsets_of_what_does_not_exist(client):
    with pytest.raises(UnknownTopicException, match="nowhere-0 did not exist within 10 s"):
        Admin(client, timeout=10).list_offsets({TopicPartition("nowhere", 0): LATEST})


def test_committed_offsets_are_those_of_other_clients_too(admin, make_topic, kafka):
    from confluent_kafka import Consumer, TopicPartition as Position

    topic, group = make_topic("committed", partitions=3), f"group-{time.time_ns()}"
    partitions = [TopicPartition(topic, p) for p in range(3)]
    assert admin.committed_offsets(group, partitions) == {}
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[Position(topic, 0, 7), Position(topic, 2, 0)], asynchronous=False)
    consumer.close()
    assert admin.committed_offsets(group, partitions) == {partitions[0]: 7, partitions[2]: 0}


def test_the_clusters_features(admin):
    assert admin.features()["transaction.version"] == 2


@pytest.mark.long
def test_no_broker_is_a_timeout_that_says_so(connected):
    from sparkrelay.devkafka import DevKafka

    with DevKafka(heap_mb=256) as broker:
        admin = Admin(connected(broker.bootstrap_servers), timeout=3)
        broker.kill()
        with pytest.raises(TimeoutException, match=r"creating topics t: not done after 3 s; last error: .*REFUSED"):
            admin.create_topics({"t": TopicSpec(1)})
