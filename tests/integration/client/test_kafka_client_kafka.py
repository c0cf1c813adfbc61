import pytest
from tests.waiting import LONG

from sparkrelay.client.messages import EndTxnRequest, FetchRequest, MetadataRequest, ProduceRequest
from sparkrelay.client.produce import Producer
from sparkrelay.errors import DisconnectException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def fetch_request(topic, *, max_bytes, wait_ms=100, min_bytes=1):
    one = FetchRequest.FetchTopic
    part = one.FetchPartition(
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=[one(topic=topic, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
        max_version=12,
    )


def test_the_cluster_is_found_and_its_topics_described(client, make_topic):
    topic = make_topic("described", partitions=3)
    client.wait([client.request_metadata([topic, "no-such-topic"])], 10)
    assert client.metadata.partitions(topic) == (0, 1, 2)
    leader = client.metadata.leader(TopicPartition(topic, 0))
    assert client.metadata.brokers[leader].port
    assert client.metadata.leader_epoch(TopicPartition(topic, 0)) == 0
    assert client.metadata.topic_name(client.metadata.topic_id(topic)) == topic
    assert client.metadata.partitions("no-such-topic") is None
    assert client.metadata.topic_error("no-such-topic") == 3
    client.wait([client.request_metadata(None)], 10)
    assert "no-such-topic" not in client.metadata.topics()


def test_the_versions_we_rely_on_are_there(client):
    assert client.supports(ProduceRequest, 12)
    assert client.supports(EndTxnRequest, 5)
    assert client.supports(FetchRequest, 12)


def test_records_come_back_byte_for_byte_as_views_of_the_response(client, make_topic, batch):
    topic = make_topic("bytes")
    tp = TopicPartition(topic, 0)
    data = [bytes(batch([str(n) * 900_000])) for n in range(5)]
    producer = Producer(client)
    for one in data:
        producer.send(tp, one, transactional_id=None)
    producer.flush(LONG)
    response = client.send(fetch_request(topic, max_bytes=50 << 20), node=client.metadata.leader(tp))
    client.wait([response], 30)
    (part,) = response.result().responses[0].partitions
    assert isinstance(part.records, memoryview)
    # The broker writes offset and leader epoch into each batch (the first 16 bytes) and the rest stays as it was.
    position = 0
    for offset, one in enumerate(data):
        assert bytes(part.records[position : position + 8]) == offset.to_bytes(8, "big")
        assert part.records[position + 16 : position + len(one)] == one[16:]
        position += len(one)
    assert position == len(part.records)


def test_a_request_that_the_broker_holds_back_delays_only_its_lane(client, make_topic, wait_until):
    topic = make_topic("held")
    client.wait([client.request_metadata([topic])], 10)
    node = client.metadata.leader(TopicPartition(topic, 0))

    def fetched(wait_ms):
        return client.send(fetch_request(topic, max_bytes=1000, wait_ms=wait_ms), node=node, lane="fetch")

    def fetchable():
        answer = fetched(wait_ms=0)
        client.wait([answer], 30)
        return answer.result().responses[0].partitions[0].error_code == 0

    # A broker that does not know the new partition yet answers at once, with an error.
    wait_until(fetchable, f"{topic} cannot be fetched from")
    held = fetched(wait_ms=60_000)
    quick = [client.send(MetadataRequest(topics=[]), node=node) for _ in range(20)]
    client.wait(quick, 30)
    assert all(r.error is None for r in quick)
    assert not held.done, held.result()


@pytest.mark.long
def test_a_broker_that_dies_and_returns_is_found_again(connected):
    from sparkrelay.devkafka import DevKafka

    with DevKafka(heap_mb=256) as broker:
        client = connected(broker.bootstrap_servers)
        waiting = client.send(MetadataRequest(topics=[]), node=1)
        broker.kill()
        client.wait([waiting], 30)
        refused = client.send(MetadataRequest(topics=[]), node=1)
        client.wait([refused], 30)
        assert isinstance(refused.error, DisconnectException)
        broker.start()
        client.bootstrap(60)
        again = client.send(MetadataRequest(topics=[]), node=1)
        client.wait([again], 30)
        assert again.error is None
