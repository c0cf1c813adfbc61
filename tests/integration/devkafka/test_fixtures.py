"""The fixtures that all other integration tests stand on."""

import pytest
from tests.waiting import LONG

pytestmark = pytest.mark.integration


def test_rows_come_back_in_order(make_topic, produce, consumed):
    topic = make_topic("fixture", partitions=2)
    produce(topic, [{"key": "a", "value": str(i), "partition": i % 2} for i in range(10)])
    produce(topic, [{"partition": 1, "value": None, "headers": [("h", b"x")], "timestamp": 1_000}])

    rows = consumed(topic)

    assert [(p, o) for p, o, _, _ in rows] == [(0, i) for i in range(5)] + [(1, i) for i in range(6)]
    assert rows[0] == (0, 0, b"a", b"0")
    assert rows[-1] == (1, 5, None, None)
    last = consumed(topic, full=True)[-1]
    assert last.headers() == [("h", b"x")]
    assert last.timestamp()[1] == 1_000


def test_keys_are_placed_as_java_places_them(make_topic, produce, consumed):
    topic = make_topic("murmur", partitions=16)
    produce(topic, [("user-42", {"n": 1})])
    [(partition, _, _, value)] = consumed(topic)
    # murmur2("user-42"), sign bit cleared, modulo 16.
    assert partition == _murmur2(b"user-42") % 16
    assert value == b'{"n": 1}'


def test_open_and_aborted_transactions_are_not_consumed(kafka, kafka_admin, make_topic, produce, consumed, wait_until):
    from confluent_kafka import IsolationLevel, Producer, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    topic = make_topic("txn", config={"cleanup.policy": "compact"})
    produce(topic, [("k", "1")], transactional_id=f"{topic}-a")
    aborting = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"{topic}-b"})
    aborting.init_transactions(LONG)
    aborting.begin_transaction()
    aborting.produce(topic, b"2", b"k")
    aborting.flush(LONG)
    aborting.abort_transaction(LONG)

    def stable_end():
        at = {TopicPartition(topic, 0): OffsetSpec.latest()}
        (end,) = kafka_admin.list_offsets(at, isolation_level=IsolationLevel.READ_COMMITTED).values()
        return end.result(LONG).offset

    # The end of a transaction is answered before its marker is written.
    wait_until(lambda: stable_end() == 4, "two records and two markers are not there")
    assert [value for *_, value in consumed(topic)] == [b"1"]
    assert [value for *_, value in consumed(topic, read_committed=False)] == [b"1", b"2"]


def test_topics_of_one_hint_differ(make_topic):
    assert make_topic("same") != make_topic("same")


def _murmur2(data):
    mask, m, seed = 0xFFFFFFFF, 0x5BD1E995, 0x9747B28C
    h = (seed ^ len(data)) & mask
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ (k >> 24)) * m & mask
        h = (h * m & mask) ^ k
    tail = data[whole:]
    if tail:
        h = ((h ^ int.from_bytes(tail, "little")) * m) & mask
    h = (h ^ (h >> 13)) * m & mask
    return (h ^ (h >> 15)) & 0x7FFFFFFF
