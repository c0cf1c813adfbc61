"""Whether topics have grown, asked of real brokers."""

import time

import pytest
from confluent_kafka.admin import NewPartitions as Wanted, NewTopic
from tests.two_racks import two_racks
from tests.waiting import LONG

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.new_partitions import NewPartitions
from sparkrelay.errors import TimeoutException

pytestmark = pytest.mark.integration


def asked(new_partitions, counts, timeout=LONG):
    new_partitions.ask(counts)
    return new_partitions.found(timeout)


@pytest.fixture
def admin_client(kafka):
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def test_topics_that_have_grown_are_found(connected, make_topic, admin_client, wait_until):
    some, other = make_topic("some", 2), make_topic("other", 1)
    new_partitions = NewPartitions(connected())
    assert asked(new_partitions, {some: 2, other: 1}) == frozenset()
    assert asked(new_partitions, {some: 1, other: 1}) == {some}
    admin_client.create_partitions([Wanted(other, 5)])[other].result(LONG)
    wait_until(lambda: asked(new_partitions, {some: 2, other: 1}) == {other}, "nobody says that it has grown")
    assert asked(new_partitions, {some: 2, other: 5}) == frozenset()


def test_an_answer_that_nobody_has_read_in_time_is_asked_for_again(kafka, make_topic):
    """A micro-batch may take longer than a request may."""
    topic = make_topic("some", 1)
    with KafkaClient(ClientConfig(bootstrap_servers=kafka.bootstrap_servers, request_timeout_ms=200)) as client:
        client.bootstrap(LONG)
        new_partitions = NewPartitions(client)
        new_partitions.ask({topic: 1})
        time.sleep(0.3)
        assert new_partitions.found(LONG) == frozenset()


@pytest.mark.long
def test_a_broker_that_is_silent_holds_nobody_up(tmp_path):
    from confluent_kafka.admin import AdminClient

    with two_racks(tmp_path / "second") as (first, second):
        admin = AdminClient({"bootstrap.servers": first.bootstrap_servers})
        admin.create_topics([NewTopic("t", num_partitions=1, replica_assignment=[[1]])])["t"].result(LONG)
        with KafkaClient(ClientConfig(bootstrap_servers=first.bootstrap_servers)) as client:
            client.bootstrap(LONG)
            new_partitions = NewPartitions(client, further_timeout=2.0)
            assert asked(new_partitions, {"t": 1}) == frozenset()
            second.pause()
            waited = []
            for _ in range(3):
                began = time.monotonic()
                assert asked(new_partitions, {"t": 1}) == frozenset()
                waited.append(time.monotonic() - began >= 2.0)
            assert waited == [True, False, False], "it is waited for once"
            assert asked(new_partitions, {"t": 0}) == {"t"}
            first.pause()
            new_partitions.ask({"t": 1})
            with pytest.raises(TimeoutException, match="no broker answered within 1 s whether topics t have new part"):
                new_partitions.found(1.0)
            first.resume()
            second.resume()
