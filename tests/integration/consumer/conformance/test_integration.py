"""ConsumerIntegrationTest: failing listeners, a protocol that the broker does not speak, racks, quick changes."""

from __future__ import annotations

import pytest
from tests.integration.consumer.conformance.protocols import only_classic, only_consumer, without_members
from tests.waiting import LONG

from sparkrelay.errors import UnsupportedVersionException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def test_fetch_partitions_after_failed_listener(make_consumer, fill, poll_until, read, topic, tp):
    """An `on_assigned` that failed is called again, and its partitions are read once it has returned."""
    fill(tp, 1)
    calls, rows = [], []

    def assigned(_, partitions):
        if partitions:  # under KIP-848 a member may join first and get partitions later
            calls.append(partitions)
        if len(calls) == 1:
            raise ValueError("temporary error")

    consumer = make_consumer()
    consumer.subscribe([topic], on_assigned=assigned)
    with pytest.raises(ValueError, match="temporary error"):
        rows += poll_until(consumer, lambda: rows, "the error did not come")
    rows += read(consumer, 1)
    assert len(rows) == 1
    assert calls[0] == calls[1] == [tp, tp._replace(partition=1)]


def test_fetch_partitions_with_always_failed_listener(make_consumer, fill, topic, tp):
    """Until `on_assigned` has returned, no record comes: it may be about to seek."""
    fill(tp, 1)

    def assigned(*_):
        raise ValueError("always failed")

    consumer, errors = make_consumer(), 0
    consumer.subscribe([topic], on_assigned=assigned)
    while errors < 5:
        try:
            assert consumer.poll(0.5).num_rows == 0
        except ValueError:
            errors += 1
    consumer.close()


@pytest.mark.long
@without_members
def test_rapid_assign_auto_commit_correctness(make_consumer, fill, read, wait_until, tp, tp2):
    """What was read of a partition is committed as the next one is assigned, however quickly."""
    fill(tp, 10)
    fill(tp2, 10)
    consumer = make_consumer(enable_auto_commit=True, auto_commit_interval_ms=300_000, max_poll_records=1)
    for i in range(10):
        for partition in (tp, tp2):
            consumer.assign([partition])
            (row,) = read(consumer, 1)
            assert (row["partition"], row["offset"]) == (partition.partition, i)
    consumer.assign([tp, tp2])
    other = make_consumer()
    wait_until(lambda: other.committed([tp, tp2]) == {tp: 10, tp2: 10}, "not committed")


@pytest.fixture(scope="module")
def old_kafka():
    """A broker that speaks the classic protocol only."""
    from sparkrelay.devkafka import DevKafka

    with DevKafka(server_properties={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        yield broker


@only_consumer
def test_consumer_with_consumer_protocol_disabled(old_kafka, make_consumer):
    """The error says what to do about it."""
    consumer = make_consumer(bootstrap_servers=old_kafka.bootstrap_servers)
    consumer.subscribe(["t"])
    with pytest.raises(UnsupportedVersionException, match="group.protocol"):
        consumer.poll(LONG)


class Racks:
    """An assignor that notes the racks of the members."""

    name = "racks"
    supports_cooperative = False

    def __init__(self):
        self.seen = []

    def subscription_user_data(self, topics):
        return b""

    def assign(self, cluster, members):
        from sparkrelay.consumer import MemberAssignment

        self.seen.append(sorted(member.rack or "" for member in members.values()))
        first, *rest = members
        everything = tuple(TopicPartition(t, p) for t, parts in cluster.partitions.items() for p in parts)
        return {first: MemberAssignment(everything)} | {member: MemberAssignment(()) for member in rest}

    def on_assignment(self, assignment, metadata):
        pass


@only_classic
def test_rack_aware_assignment(members, wait_until, topic):
    """The assignor learns each member's `client.rack`."""
    assignors = [Racks(), Racks()]
    for number, assignor in enumerate(assignors):
        members([topic], assignors=[assignor], client_rack=f"rack{number}", fetching=False)
    wait_until(lambda: any(["rack0", "rack1"] in assignor.seen for assignor in assignors), "racks are not known")
