"""PlaintextConsumerCallbackTest: what a callback may ask of the consumer that calls it, the ground of KIP-944."""

from __future__ import annotations

import pytest

from sparkrelay.errors import ConfigException

pytestmark = pytest.mark.integration


@pytest.fixture
def in_assigned(make_consumer, poll_until, topic):
    """`in_assigned(action)` runs `action(consumer)` inside `on_assigned`, and returns the consumer and the result."""

    def run(action):
        results = []

        def assigned(consumer, partitions):
            if partitions:  # under KIP-848 a member may join first and get partitions later
                results.append(action(consumer))

        consumer = make_consumer()
        consumer.subscribe([topic], on_assigned=assigned)
        poll_until(consumer, lambda: results, "no callback")
        return consumer, results[0]

    return run


@pytest.fixture
def in_revoked(make_consumer, poll_until, topic):
    """`in_revoked(action)` runs `action(consumer)` inside `on_revoked`, as the consumer closes."""

    def run(action):
        results = []
        consumer = make_consumer()
        consumer.subscribe([topic], on_revoked=lambda consumer, _: results.append(action(consumer)))
        poll_until(consumer, consumer.assignment, "no assignment")
        consumer.close()
        assert len(results) == 1
        return results[0]

    return run


def _refusal_of_assign(consumer, tp):
    with pytest.raises(ConfigException, match=r"assign\(\) after subscribe\(\)") as caught:
        consumer.assign([tp])
    return str(caught.value)


def test_assign_on_partitions_assigned(in_assigned, tp, partitions_of):
    consumer, refusal = in_assigned(lambda consumer: _refusal_of_assign(consumer, tp))
    assert "unsubscribe()" in refusal
    assert consumer.assignment() == partitions_of(tp.topic)


def test_assignment_on_partitions_assigned(in_assigned, tp):
    _, seen = in_assigned(lambda consumer: consumer.assignment())
    assert tp in seen


def test_beginning_offsets_on_partitions_assigned(in_assigned, tp):
    _, seen = in_assigned(lambda consumer: consumer.beginning_offsets([tp]))
    assert seen == {tp: 0}


def test_assign_on_partitions_revoked(in_revoked, tp):
    assert "unsubscribe()" in in_revoked(lambda consumer: _refusal_of_assign(consumer, tp))


def test_assignment_on_partitions_revoked(in_revoked, tp):
    assert tp in in_revoked(lambda consumer: consumer.assignment())


def test_beginning_offsets_on_partitions_revoked(in_revoked, tp):
    assert in_revoked(lambda consumer: consumer.beginning_offsets([tp])) == {tp: 0}


def test_get_position_of_newly_assigned_partition_on_partitions_assigned(in_assigned, tp):
    _, position = in_assigned(lambda consumer: consumer.position(tp))
    assert position == 0


def test_seek_and_pause_newly_assigned_partition_on_partitions_assigned(in_assigned, fill, expect_rows, tp):
    fill(tp, 120)

    def seek_and_pause(consumer):
        consumer.seek(tp, 100)
        consumer.pause([tp])

    consumer, _ = in_assigned(seek_and_pause)
    assert consumer.paused() == {tp}
    assert consumer.poll(0.1).num_rows == 0
    consumer.resume([tp])
    expect_rows(consumer, tp, 20, offset=100)
