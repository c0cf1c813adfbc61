"""Two brokers in two racks: reading from the nearer replica (KIP-392), and going on when it dies."""

from __future__ import annotations

import time

import pytest

from sparkrelay.consumer import Consumer, TopicPartition
from sparkrelay.devkafka import DevKafka
from sparkrelay.devkafka.ports import LOOPBACK, free_port
from sparkrelay.errors import KafkaException

pytestmark = pytest.mark.integration

T = TopicPartition("t", 0)


def properties(broker, name):
    text = next(broker.data_dir.glob(f"**/{name}")).read_text()
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


@pytest.fixture
def two_brokers(tmp_path):
    """Broker 1 (controller, rack a), broker 2 (rack b), and a topic that 1 leads and both have."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    near = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    with DevKafka(server_properties=near | {"broker.rack": "a"}, heap_mb=256) as first:
        voters = properties(first, "server.properties")["controller.quorum.voters"].replace("\\", "")
        port, folder = free_port(), tmp_path / "second"
        # The second joins the first's cluster.
        kraft = folder / "kraft"
        kraft.mkdir(parents=True)
        cluster = properties(first, "meta.properties")["cluster.id"]
        (kraft / "meta.properties").write_text(f"version=1\ncluster.id={cluster}\nnode.id=2\n")
        joining = {
            "broker.rack": "b",
            "node.id": "2",
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "controller.quorum.voters": voters,
        }
        with DevKafka(port=port, data_dir=folder, server_properties=near | joining, heap_mb=256) as second:
            admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
            wait(lambda: len(admin.list_topics(timeout=10).brokers) == 2, "the second broker did not join")
            # Assigned by hand: the first replica leads.
            admin.create_topics([NewTopic("t", num_partitions=1, replica_assignment=[[1, 2]])])["t"].result(30)
            producer = Producer({"bootstrap.servers": first.bootstrap_servers, "acks": "all"})
            for number in range(100):
                producer.produce("t", str(number))
            assert producer.flush(60) == 0
            wait(
                lambda: len(admin.list_topics("t", timeout=10).topics["t"].partitions[0].isrs) == 2, "no second replica"
            )
            yield first, second, producer


def wait(condition, complaint):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.05)


def read_all(consumer, numbers):
    seen, deadline = [], time.monotonic() + 90
    while len(seen) < len(numbers):
        assert time.monotonic() < deadline, f"{len(seen)} of {len(numbers)}"
        try:
            seen += [int(value) for value in consumer.poll(0.5).column("value").to_pylist()]
        except KafkaException as error:
            assert error.retriable, error  # noqa: PT017 - the broker is away
    assert seen == list(numbers)


def test_the_nearer_replica_is_read_and_the_leader_when_it_dies(two_brokers):
    first, second, producer = two_brokers
    settings = {
        "bootstrap.servers": first.bootstrap_servers, "auto.offset.reset": "earliest", "client.rack": "b",
        "retry.backoff.ms": 50, "request.timeout.ms": 5000, "fetch.max.wait.ms": 100,
    }  # fmt: skip
    with Consumer(settings) as consumer:
        consumer.assign([T])
        read_all(consumer, range(100))
        fetches = consumer._session.network.core._fetches
        wait(lambda: fetches._under_way == {T: 2}, "the nearer replica is not read")
        assert fetches._metadata.leader(T) == 1
        second.kill()
        for number in range(100, 200):
            producer.produce("t", str(number))
        assert producer.flush(60) == 0
        read_all(consumer, range(100, 200))
        wait(lambda: fetches._under_way == {T: 1}, "the leader is not read")


def test_without_a_rack_the_leader_is_read(two_brokers):
    first, _, _ = two_brokers
    with Consumer({"bootstrap.servers": first.bootstrap_servers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([T])
        read_all(consumer, range(100))
        fetches = consumer._session.network.core._fetches
        wait(lambda: fetches._under_way == {T: 1}, "nothing is asked for")
        assert not fetches._replicas
