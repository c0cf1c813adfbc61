"""A consumer that goes on to other topics, or is copied by a fork, on a real broker."""

from __future__ import annotations

import os
import re
import signal

import pytest
from tests.waiting import LONG, collect, wait_until

from sparkrelay.errors import DisconnectException, KafkaException, TimeoutException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_after_a_change_of_topics_no_old_rows_come_and_none_is_lost(
    make_consumer, make_topic, produce, group, protocol
):
    old, new = make_topic("old", partitions=2), make_topic("new", partitions=2)
    for topic in (old, new):
        produce(topic, [(str(i), str(i)) for i in range(3000)])
    consumer = make_consumer(
        group_id=group, group_protocol=protocol, enable_auto_commit=False, max_partition_fetch_bytes=5000
    )

    def revoked(consumer, _):
        consumer.commit()

    def rows(topics, count):
        def poll():
            table = consumer.poll(0.5, max_records=100)
            assert set(table["topic"].to_pylist()) <= topics
            return zip(table["topic"].to_pylist(), table["value"].to_pylist(), strict=True)

        return collect(poll, lambda seen: len(seen) >= count, f"not {count} records")

    consumer.subscribe([old], on_revoked=revoked)
    before = rows({old}, 100)
    consumer.subscribe([new], on_revoked=revoked)
    assert len(set(rows({new}, 3000))) == 3000
    consumer.subscribe([old, new], on_revoked=revoked)
    after = rows({old, new}, 3000 - len(before))
    assert len({*before, *after}) == 3000
    assert {topic for topic, _ in after} == {old}


def wait_until_it_says(call, pattern):
    """Call again until the TimeoutException that each call must raise has the answer of the broker."""

    def says():
        with pytest.raises(TimeoutException) as caught:
            call()
        return re.search(pattern, str(caught.value))

    wait_until(says, f"{pattern} is not said")


def test_a_refusal_goes_with_its_topic(make_consumer, make_topic, produce, read):
    topic = make_topic("wanted")
    produce(topic, [("k", "v")])
    consumer = make_consumer()
    bad, good = TopicPartition("a b", 0), TopicPartition(topic, 0)
    consumer.assign([bad])
    wait_until_it_says(lambda: consumer.position(bad, timeout=1), r"a b-0.*last error: .*INVALID_TOPIC_EXCEPTION")
    consumer.assign([good])
    assert [row["value"] for row in read(consumer, 1)] == [b"v"]
    consumer.assign([bad])
    with pytest.raises(KafkaException, match="INVALID_TOPIC_EXCEPTION"):
        consumer.poll(LONG)


@pytest.mark.long
def test_a_partition_that_is_not_there_is_named_when_time_runs_out(make_consumer, make_topic):
    absent = TopicPartition(make_topic("short", partitions=2), 7)
    consumer = make_consumer()
    consumer.assign([absent])
    says = rf"{absent}.*last error: .*has 2 partitions: UNKNOWN_TOPIC_OR_PARTITION"
    for call in (
        lambda: consumer.position(absent, timeout=1),
        lambda: consumer.end_offsets([absent], timeout=1),
        lambda: consumer.offsets_for_times({absent: 0}, timeout=1),
    ):
        wait_until_it_says(call, says)


def test_a_member_goes_on_when_a_fork_of_it_polls_and_closes(make_consumer, make_topic, produce, group, read):
    topic = make_topic("forked")
    consumer = make_consumer(group_id=group, enable_auto_commit=False)
    produce(topic, [("k", "1")])
    consumer.subscribe([topic])
    read(consumer, 1)
    place = consumer.group_metadata()
    child = os.fork()
    if not child:
        signal.alarm(60)
        status = 1
        try:
            consumer.poll(1)
        except DisconnectException:
            consumer.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    produce(topic, [("k", "2")])
    assert [row["value"] for row in read(consumer, 1)] == [b"2"]
    consumer.commit()
    assert consumer.group_metadata() == place
