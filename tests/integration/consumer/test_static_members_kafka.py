"""Static members (KIP-345) on a real broker: unnoticed restarts, a name that two claim, leaders that return."""

from __future__ import annotations

import pytest
from tests.waiting import LONG

from sparkrelay.errors import BrokerResponseException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def place(member):
    return member.consumer._network.core.group_metadata


def shared(parts, *members):
    held = [member.held for member in members]
    return all(held) and sum(map(len, held)) == parts and len(set().union(*held)) == parts


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_restart_within_the_session_causes_no_rebalance(members, make_topic, wait_until, strategy, who):
    topic = make_topic("static", partitions=5)
    settings = {"partition_assignment_strategy": strategy, "session_timeout_ms": 30_000}
    a = members([topic], group_instance_id="a", **settings)
    wait_until(lambda: shared(5, a), "a alone")
    b = members([topic], group_instance_id="b", **settings)
    wait_until(lambda: shared(5, a, b), "a and b")
    gone, stays, name = (a, b, "a") if who == "leader" else (b, a, "b")
    held, generation = gone.held.copy(), place(stays).generation
    # Who keeps what it has adopts a generation with nothing new, perhaps a moment after the others.
    moves = [event for event in stays.story if event[1]]

    gone.stop()
    back = members([topic], group_instance_id=name, **settings)
    wait_until(lambda: back.held == held, "it is back with what it had")
    assert place(back).generation == place(stays).generation == generation
    assert place(back).member_id != place(gone).member_id
    assert [event for event in stays.story if event[1]] == moves
    assert members.owners.clashes == []


@pytest.mark.long
def test_one_that_does_not_come_back_is_replaced(members, make_topic, wait_until):
    topic = make_topic("static", partitions=4)
    a = members([topic], group_instance_id="a")
    b = members([topic], group_instance_id="b")
    wait_until(lambda: shared(4, a, b), "a and b")
    b.stop()
    wait_until(lambda: shared(4, a), "a has all after the session timeout")
    assert members.owners.clashes == []


@pytest.mark.parametrize("ended", ["killed", "stopped"])
def test_one_that_goes_for_good_before_it_has_joined_gives_up_what_a_former_run_had(
    members, make_consumer, make_topic, wait_until, group, ended
):
    topic = make_topic("static", partitions=4)
    # Longer than the test waits.
    settings = {"session_timeout_ms": 300_000}
    a = members([topic], group_instance_id="a", **settings)
    b = members([topic], group_instance_id="b", **settings)
    wait_until(lambda: shared(4, a, b), "a and b")
    (b.vanish if ended == "killed" else b.stop)()
    again = make_consumer(group_id=group, group_instance_id="b", **settings)
    again.close(30, for_good=True)
    wait_until(lambda: shared(4, a), "a has all at once")
    assert members.owners.clashes == []


def test_a_second_member_with_the_same_name_fences_the_first(members, make_topic, wait_until):
    topic = make_topic("static", partitions=2)
    first = members([topic], group_instance_id="twin")
    wait_until(lambda: shared(2, first), "the first")
    second = members([topic], group_instance_id="twin")
    wait_until(lambda: first.errors, "the first learns of it")
    first.stop()
    wait_until(lambda: shared(2, second), "the second has its place")
    error = first.errors[0]
    assert isinstance(error, BrokerResponseException)
    assert error.name == "FENCED_INSTANCE_ID"
    assert "group.instance.id='twin'" in str(error)
    assert {type(e) for e in first.errors} == {BrokerResponseException}  # it stays so
    assert first.held == set()
    assert first.story[-1][0] == "lost"
    assert second.errors == []


def test_a_leader_that_returns_still_watches_its_topics(members, make_topic, kafka_admin, wait_until):
    from confluent_kafka.admin import NewPartitions

    topic = make_topic("static", partitions=2)
    settings = {"metadata_max_age_ms": 500, "session_timeout_ms": 30_000}
    a = members([topic], group_instance_id="a", **settings)
    wait_until(lambda: shared(2, a), "a alone")
    b = members([topic], group_instance_id="b", **settings)
    wait_until(lambda: shared(2, a, b), "a and b")
    held = a.held.copy()
    a.stop()
    a = members([topic], group_instance_id="a", **settings)
    wait_until(lambda: a.held == held, "a is back, and leads without having assigned")
    kafka_admin.create_partitions([NewPartitions(topic, 4)])[topic].result(LONG)
    wait_until(lambda: shared(4, a, b), "the new partitions are assigned")
    assert {TopicPartition(topic, p) for p in range(4)} == a.held | b.held
    assert members.owners.clashes == []
