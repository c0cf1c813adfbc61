"""How far behind the consumer is: the lag that Kafka's tests read from its metrics, `lag()` and a metric here.

Its lead, the distance from the log's start, is two calls here.
"""

from __future__ import annotations

import pytest
from tests.integration.consumer.conformance.protocols import without_members
from tests.waiting import LONG

from sparkrelay.errors import ConfigException

pytestmark = pytest.mark.integration


@without_members
def test_per_partition_lag_with_max_poll_records(make_consumer, fill, read, tp):
    fill(tp, 1000)
    consumer = make_consumer(max_poll_records=10)
    consumer.assign([tp])
    assert len(read(consumer, 10)) == 10
    assert consumer.lag(tp) == consumer.metrics()[f"{tp}.records-lag"] == 990


@without_members
def test_per_partition_lead_with_max_poll_records(make_consumer, fill, read, tp):
    fill(tp, 1000)
    consumer = make_consumer(max_poll_records=10)
    consumer.assign([tp])
    assert len(read(consumer, 10)) == 10
    assert consumer.position(tp) - consumer.beginning_offsets([tp])[tp] == 10


@pytest.mark.parametrize("by_hand", [False, True], ids=["subscribe", "assign"])
def test_per_partition_lag_ends_with_the_assignment(
    make_consumer, make_topic, fill, read, await_assignment, partitions_of, topic, tp, tp2, by_hand
):
    other = make_topic("conform", partitions=2)
    fill(tp, 100)
    consumer = make_consumer(max_poll_records=10)
    if by_hand:
        consumer.assign([tp])
    else:
        consumer.subscribe([topic, other])
    read(consumer, 10)
    assert consumer.lag(tp) == consumer.metrics()[f"{tp}.records-lag"] == 90
    if by_hand:
        consumer.assign([tp2])
    else:
        consumer.subscribe([other])
        await_assignment(consumer, partitions_of(other))
    for what in (consumer.lag, consumer.position):
        with pytest.raises(ConfigException, match=f"{tp} is not assigned"):
            what(tp)
    assert f"{tp}.records-lag" not in consumer.metrics()


@without_members
def test_per_partition_lag_when_read_committed(kafka, make_consumer, fill, read, tp):
    """The end is the last stable offset: records of an open transaction are nothing to catch up with."""
    from confluent_kafka import Producer

    fill(tp, 100)
    consumer = make_consumer(isolation_level="read_committed", max_poll_records=10)
    writer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"tx-{tp.topic}"})
    writer.init_transactions(LONG)
    writer.begin_transaction()
    writer.produce(tp.topic, value=b"open", partition=0)
    writer.flush(LONG)
    consumer.assign([tp])
    read(consumer, 10)
    assert consumer.lag(tp) == consumer.metrics()[f"{tp}.records-lag"] == 90
    writer.abort_transaction(LONG)


@without_members
def test_lag_is_asked_for_if_nothing_was_read_yet(make_consumer, fill, poll_until, tp):
    """KIP-695: `lag()` never waits; what it does not know it asks for."""
    fill(tp, 100)
    consumer = make_consumer()
    consumer.assign([tp])
    consumer.pause([tp])
    consumer.seek(tp, 30)
    poll_until(consumer, lambda: consumer.lag(tp) is not None, "the lag is not known")
    assert consumer.lag(tp) == 70
