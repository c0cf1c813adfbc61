"""A member of a real group that is forgotten: its thread and connections end, and others get its partitions."""

from __future__ import annotations

import gc
import warnings

import pytest
from tests.waiting import LONG

from sparkrelay.consumer import Consumer

pytestmark = pytest.mark.integration


@pytest.mark.long
def test_a_forgotten_member_ends_and_others_go_on(kafka, make_topic, produce, members, group, wait_until):
    topic = make_topic("forgotten", partitions=2)
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(10)])
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 200,
            "partition.assignment.strategy": "cooperative-sticky",
        }
    )
    consumer.subscribe([topic], on_revoked=lambda *_: None)
    while not consumer.poll(5, max_records=1).num_rows:
        pass
    thread = consumer._session.network.thread._thread
    with warnings.catch_warnings(record=True, action="always") as caught:
        del consumer
        gc.collect()
    assert any("was never closed" in str(warning.message) for warning in caught)
    thread.join(LONG)
    assert not thread.is_alive()
    heir = members([topic])
    wait_until(lambda: len(heir.held) == 2, "the group has noticed")
