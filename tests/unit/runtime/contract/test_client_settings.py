"""The settings of an instance's Kafka clients."""

from __future__ import annotations

import pytest

from sparkrelay.config import StreamsConfig
from sparkrelay.runtime.contract.client_settings import flush_seconds


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 45),
        ({"transaction.timeout.ms": 10_000}, 7.5),
        ({"transaction.timeout.ms": 600_000}, 120),
        ({"transaction.timeout.ms": 600_000, "producer.delivery.timeout.ms": 300_000}, 300),
        ({"producer.message.timeout.ms": 20_000}, 20),
    ],
)
def test_a_batch_waits_for_its_writes_as_long_as_its_transaction_and_the_producer_may(settings, seconds):
    config = StreamsConfig.from_dict({"application.id": "app", "bootstrap.servers": "localhost:1"} | settings)
    assert flush_seconds(config) == seconds
