"""PlaintextConsumerCloseTest: a Fetch that the broker holds back does not hold `close` back."""

from __future__ import annotations

import threading

import pytest

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("timeout", [None, 280.0], ids=["default", "timeout"])
def test_close_ignores_fetch_max_wait_ms(make_consumer, fill, read, topic, tp, tp2, poll_until, wait_until, timeout):
    """Kafka waits for it in a default `close`, to end the fetch session; the broker forgets ours by itself."""
    fill(tp, 100)
    consumer = make_consumer(fetch_max_wait_ms=600_000)
    consumer.subscribe([topic])
    read(consumer, 100)
    fetches = consumer._network.core._fetches
    poll_until(consumer, lambda: fetches._under_way.keys() == {tp, tp2}, "no Fetch of both partitions is under way")
    closing = threading.Thread(target=consumer.close, args=(timeout,), daemon=True)
    closing.start()
    wait_until(lambda: not closing.is_alive(), "close waits for a Fetch that the broker holds back", 60)


def test_close_leaves_group_on_interrupt(make_consumer, await_assignment, partitions_of, topic, story):
    """KAFKA-16985: Ctrl-C in a callback of `close` does not keep the member from leaving (its session lasts 10 min)."""

    def revoked(_, partitions):
        story.callbacks()["on_revoked"](_, partitions)
        raise KeyboardInterrupt

    consumer = make_consumer(session_timeout_ms=600_000, max_poll_interval_ms=600_000)
    consumer.subscribe([topic], **story.callbacks() | {"on_revoked": revoked})
    await_assignment(consumer, partitions_of(topic))
    with pytest.raises(KeyboardInterrupt):
        consumer.close()
    assert story.kinds() == ["assigned", "revoked"]
    other = make_consumer()
    other.subscribe([topic])
    await_assignment(other, partitions_of(topic))
