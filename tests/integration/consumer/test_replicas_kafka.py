"""Two brokers in two racks: reading from the nearer replica (KIP-392), and going on when it dies."""

from __future__ import annotations

import pytest
from tests.two_racks import two_racks
from tests.waiting import LONG, collect, wait_until

from sparkrelay.consumer import Consumer, TopicPartition
from sparkrelay.errors import KafkaException

pytestmark = [pytest.mark.integration, pytest.mark.in_order]

T = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def two_brokers(tmp_path_factory):
    """Broker 1 (controller, rack a), broker 2 (rack b), and a topic that 1 leads and both have."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    with two_racks(tmp_path_factory.mktemp("second")) as (first, second):
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        # Assigned by hand: the first replica leads.
        admin.create_topics([NewTopic("t", num_partitions=1, replica_assignment=[[1, 2]])])["t"].result(LONG)
        producer = Producer({"bootstrap.servers": first.bootstrap_servers, "acks": "all"})
        for number in range(100):
            producer.produce("t", str(number))
        assert producer.flush(LONG) == 0
        wait_until(
            lambda: len(admin.list_topics("t", timeout=LONG).topics["t"].partitions[0].isrs) == 2, "no second replica"
        )
        yield first, second, producer


def read_all(consumer, numbers):
    def poll():
        try:
            return [int(value) for value in consumer.poll(0.5).column("value").to_pylist()]
        except KafkaException as error:
            assert error.retriable, error  # noqa: PT017 - the broker is away
            return ()

    assert collect(poll, lambda seen: len(seen) >= len(numbers), f"not {len(numbers)} records") == list(numbers)


def test_without_a_rack_the_leader_is_read(two_brokers):
    first, _, _ = two_brokers
    with Consumer({"bootstrap.servers": first.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([T])
        read_all(consumer, range(100))
        fetches = consumer._session.network.core._fetches
        wait_until(lambda: fetches._under_way == {T: 1}, "nothing is asked for")
        assert not fetches._replicas


def test_the_nearer_replica_is_read_and_the_leader_when_it_dies(two_brokers):
    # After the other test: the broker that it kills stays dead.
    first, second, producer = two_brokers
    settings = {
        "bootstrap.servers": first.bootstrap_servers, "auto.offset.reset": "earliest", "client.rack": "b",
        "retry.backoff.ms": 50, "request.timeout.ms": 5000, "fetch.max.wait.ms": 100,
    }  # fmt: skip
    with Consumer(settings) as consumer:
        consumer.assign([T])
        read_all(consumer, range(100))
        fetches = consumer._session.network.core._fetches
        wait_until(lambda: fetches._under_way == {T: 2}, "the nearer replica is not read")
        assert fetches.metadata.leader(T) == 1
        second.kill()
        for number in range(100, 200):
            producer.produce("t", str(number))
        assert producer.flush(LONG) == 0
        read_all(consumer, range(100, 200))
        wait_until(lambda: fetches._under_way == {T: 1}, "the leader is not read")
