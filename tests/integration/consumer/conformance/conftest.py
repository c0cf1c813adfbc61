"""Kafka's own consumer integration tests, said again as ours: each of them runs once per group protocol.

Which of Kafka's tests is which of ours, and why some are not here, stands in `INVENTORY.md`.
Sessions are short: of classic members by their own settings, of KIP-848 members by the broker's (`BROKER` in
`tests/conftest.py`).
"""

from __future__ import annotations

import time

import pytest
from tests.waiting import collect

from sparkrelay.types import TopicPartition

PROTOCOLS = ("classic", "consumer")

#: Timestamp of the first record of `fill`, in milliseconds: young enough not to be deleted as expired.
START_MS = int(time.time() * 1000)

#: Settings that KIP-848 leaves to the broker.
CLASSIC_ONLY = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")


@pytest.fixture(params=PROTOCOLS)
def protocol(request):
    """The `group.protocol` of all consumers of a test."""
    return request.param


@pytest.fixture
def make_consumer(make_consumer, protocol, group):
    """`make_consumer(...)` as elsewhere; by default in the test's group, with its protocol and without auto-commit."""

    def make(**config):
        settings = {
            "group_id": group,
            "group_protocol": protocol,
            "enable_auto_commit": False,
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 6000,
            "metadata_max_age_ms": 1000,
        } | config
        if settings["group_protocol"] == "consumer":
            settings = {key: value for key, value in settings.items() if key not in CLASSIC_ONLY}
        return make_consumer(**settings)

    return make


@pytest.fixture
def topic(make_topic):
    """A topic of two partitions."""
    return make_topic("conform", partitions=2)


@pytest.fixture
def tp(topic):
    """Its first partition."""
    return TopicPartition(topic, 0)


@pytest.fixture
def tp2(topic):
    """Its second partition."""
    return TopicPartition(topic, 1)


@pytest.fixture
def fill(produce):
    """`fill(partition, count)` writes records `key i`, `value i`, with a millisecond between their timestamps."""

    def fill(partition, count, **config):
        rows = [
            {"key": f"key {i}", "value": f"value {i}", "partition": partition.partition, "timestamp": START_MS + i}
            for i in range(count)
        ]
        produce(partition.topic, rows, **config)

    return fill


@pytest.fixture
def poll_until():
    """`poll_until(consumer, condition, complaint)` polls until the condition holds, and returns the rows that came."""

    def poll_until(consumer, condition, complaint="the condition did not come true"):
        return collect(lambda: consumer.poll(0.1).to_pylist(), lambda _: condition(), complaint)

    return poll_until


@pytest.fixture
def await_assignment(poll_until):
    """`await_assignment(consumer, partitions)` polls until exactly these partitions are assigned."""

    def await_assignment(consumer, partitions):
        wanted = set(partitions)
        return poll_until(consumer, lambda: consumer.assignment() == wanted, f"not assigned {sorted(wanted)}")

    return await_assignment


@pytest.fixture
def expect_rows(read):
    """`expect_rows(consumer, partition, count, offset=0, index=offset)`: read, and compare with what `fill` wrote."""

    def expect_rows(consumer, partition, count, *, offset=0, index=None, timestamp_type=0):
        rows = read(consumer, count)
        first = offset if index is None else index
        assert [(row["topic"], row["partition"]) for row in rows] == [tuple(partition)] * len(rows)
        assert [row["offset"] for row in rows][:count] == list(range(offset, offset + count))
        for i, row in enumerate(rows[:count], first):
            assert (row["key"], row["value"]) == (b"key %d" % i, b"value %d" % i)
            assert row["timestampType"] == timestamp_type
            if timestamp_type == 0:
                assert round(row["timestamp"].timestamp() * 1000) == START_MS + i
        return rows

    return expect_rows


class Story:
    """What callbacks got, in order."""

    def __init__(self):
        self.events = []

    def count(self, kind):
        return sum(1 for what, partitions in self.events if what == kind and partitions)

    def kinds(self):
        """What happened to partitions; calls without any, which KIP-848 makes when a member joins, are left out."""
        return [what for what, partitions in self.events if partitions]

    def callbacks(self):
        return {
            f"on_{kind}": lambda _, partitions, kind=kind: self.events.append((kind, tuple(partitions)))
            for kind in ("assigned", "revoked", "lost")
        }


@pytest.fixture
def story():
    """`consumer.subscribe([topic], **story.callbacks())`, then `story.count("assigned")` and `story.events`."""
    return Story()


def both(topic, count=2):
    """All partitions of a topic."""
    return {TopicPartition(topic, p) for p in range(count)}


@pytest.fixture
def partitions_of():
    """`partitions_of(topic, count=2)`: its partitions as a set."""
    return both


@pytest.fixture
def start_ms():
    """Timestamp of `fill`'s first record."""
    return START_MS


@pytest.fixture
def short_session(protocol):
    """Seconds of silence after which the broker takes a member for dead.

    Short enough to be outlasted, long enough for a busy machine. KIP-848 leaves it to the broker: `BROKER`.
    """
    return {"classic": 5, "consumer": 10}[protocol]
