"""Bytes: our Produce request against two other writers, our Fetch response against kafka-python's."""

import uuid

import pytest
from hypothesis import given, strategies as st
from kafka.protocol.consumer import FetchResponse as StockFetchResponse
from kafka.protocol.producer import ProduceRequest
from kio.schema.produce.v12.request import ProduceRequest as KioProduceRequest
from kio.schema.produce.v13.request import ProduceRequest as KioProduceById
from kio.schema.request_header.v2.header import RequestHeader as KioHeader
from kio.serial import entity_reader

from sparkrelay.client.messages import FetchResponse
from sparkrelay.client.messages.produce_request import ProduceBatches, uvarint


def ours(topics, transactional_id=None, version=12, ids=None):
    request = ProduceBatches(topics, transactional_id=transactional_id, timeout_ms=30_000, ids=ids)
    request.API_VERSION = version
    return request.encode_parts(77, "me")


def theirs(topics, transactional_id=None, version=12):
    data = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            data(name=name, partition_data=[data.PartitionProduceData(index=p, records=r) for p, r in parts.items()])
            for name, parts in topics.items()
        ],
        version=version,
    )
    request.with_header(correlation_id=77, client_id="me")
    return bytes(request.encode(header=True, framed=True))


def test_what_was_added_by_request_is_not_added_by_writing():
    topics = {"t": {0: b"batch"}}
    implicit = ProduceBatches(topics, transactional_id="x", timeout_ms=1)
    joined = ProduceBatches(topics, transactional_id="x", timeout_ms=1, joined=True)
    outside = ProduceBatches(topics, transactional_id=None, timeout_ms=1)
    by_id = ProduceBatches(topics, transactional_id="x", timeout_ms=1, ids={"t": uuid.UUID(int=1)})
    requests = implicit, joined, outside, by_id
    assert [(r._min_version, r._max_version) for r in requests] == [(12, 12), (9, 11), (9, 12), (12, 13)]


names = st.text(st.sampled_from("abc.-_"), min_size=1, max_size=200)
topics = st.dictionaries(
    names, st.dictionaries(st.integers(0, 99), st.binary(min_size=61, max_size=300), min_size=1, max_size=4), max_size=4
)


@given(topics, st.none() | names, st.integers(9, 12))
def test_produce_requests_equal_kafka_pythons(what, transactional_id, version):
    assert b"".join(ours(what, transactional_id, version)) == theirs(what, transactional_id, version)


def test_produce_requests_are_read_by_kio():
    raw = b"".join(ours({"t": {3: b"x" * 100}}, "tx"))
    header, size = entity_reader(KioHeader)(raw, 4)
    assert (header.request_api_key, header.request_api_version, header.correlation_id) == (0, 12, 77)
    message, _ = entity_reader(KioProduceRequest)(raw, 4 + size)
    assert (message.transactional_id, message.acks) == ("tx", -1)
    assert message.topic_data[0].partition_data[0].records == b"x" * 100


def test_the_newest_produce_requests_name_topics_by_their_ids():
    raw = b"".join(ours({"t": {3: b"x" * 100}}, "tx", 13, {"t": uuid.UUID(int=7)}))
    _, size = entity_reader(KioHeader)(raw, 4)
    message, _ = entity_reader(KioProduceById)(raw, 4 + size)
    assert [topic.topic_id for topic in message.topic_data] == [uuid.UUID(int=7)]
    assert message.topic_data[0].partition_data[0].records == b"x" * 100


def test_batches_are_not_copied():
    batch = memoryview(bytearray(100))
    assert any(part is batch for part in ours({"t": {0: batch}}))


@given(st.integers(0, 2**31))
def test_uvarint_has_seven_bits_a_byte(value):
    data = uvarint(value)
    assert sum((b & 0x7F) << 7 * i for i, b in enumerate(data)) == value
    assert all(b >= 0x80 for b in data[:-1])
    assert data[-1] < 0x80


def fetch_response(records, version):
    topic = StockFetchResponse.FetchableTopicResponse
    return StockFetchResponse(
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[
            topic(
                topic="t",
                topic_id=uuid.UUID(int=5),
                partitions=[
                    topic.PartitionData(
                        partition_index=i,
                        error_code=0,
                        high_watermark=9,
                        last_stable_offset=8,
                        log_start_offset=0,
                        aborted_transactions=[topic.PartitionData.AbortedTransaction(producer_id=4, first_offset=2)],
                        preferred_read_replica=-1,
                        records=data,
                    )
                    for i, data in enumerate(records)
                ],
            )
        ],
        version=version,
    )


@given(st.lists(st.none() | st.binary(max_size=500), max_size=4), st.integers(4, 18))
def test_fetched_records_are_views_with_kafka_pythons_content(records, version):
    raw = memoryview(bytes(fetch_response(records, version).encode(version=version)))
    message = FetchResponse[version].decode(raw)
    stock = StockFetchResponse[version].decode(raw)
    for mine, other, data in zip(message.responses[0].partitions, stock.responses[0].partitions, records, strict=True):
        assert mine.records is None if data is None else isinstance(mine.records, memoryview)
        assert (mine.records if data is None else bytes(mine.records)) == data
        assert other.records == data
        assert not isinstance(other.records, memoryview)
        assert mine.last_stable_offset == 8
        assert mine.aborted_transactions[0].first_offset == 2


def test_records_that_end_beyond_the_response_are_refused():
    raw = bytes(fetch_response([b"x" * 100], 4).encode(version=4))
    with pytest.raises(ValueError, match="beyond the response"):
        FetchResponse[4].decode(memoryview(raw[:-10]))
