"""Groups under KIP-848 on a real broker: the broker assigns, and no partition is ever owned twice."""

from __future__ import annotations

import re
import threading

import pytest
from tests.waiting import LONG, wait_until

from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.messages import ConsumerGroupHeartbeatRequest
from sparkrelay.consumer.group.heartbeats import HeartbeatManager
from sparkrelay.consumer.group.membership import MemberState
from sparkrelay.errors import KafkaException, UnsupportedVersionException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration

CLASSIC_ONLY = {"partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms"}


def shared(parts, *members):
    """Return whether members hold all partitions, each once and evenly."""
    held = [member.held for member in members]
    even = max(map(len, held)) - min(map(len, held)) <= 1
    return even and sum(map(len, held)) == parts and len(set().union(*held)) == parts


def story(member, kind):
    return [partitions for what, partitions in member.story if what == kind]


@pytest.fixture
def modern(members):
    """`members`, under `group.protocol=consumer`."""

    def make(topics, **config):
        return members(topics, without=CLASSIC_ONLY, **{"group_protocol": "consumer"} | config)

    make.owners = members.owners
    return make


@pytest.mark.long
@pytest.mark.parametrize("fetching", [True, False])
def test_members_join_leave_and_die_and_no_partition_is_owned_twice(modern, make_topic, wait_until, fetching):
    topic = make_topic("kip848", partitions=7)
    a = modern([topic], fetching=fetching)
    wait_until(lambda: shared(7, a), "a alone")
    b = modern([topic], fetching=fetching)
    wait_until(lambda: shared(7, a, b), "a and b")
    c = modern([topic], fetching=fetching)
    wait_until(lambda: shared(7, a, b, c), "all three")
    assert not any(story(m, "lost") for m in (a, b, c))

    b.stop()
    wait_until(lambda: shared(7, a, c), "b has left")
    c.vanish()
    wait_until(lambda: shared(7, a), "c has died")

    assert modern.owners.clashes == []
    assert a.errors == b.errors == []


def test_a_group_may_be_mixed_with_librdkafka(kafka, modern, make_topic, wait_until, group):
    from confluent_kafka import Consumer

    topic = make_topic("kip848", partitions=4)
    ours = modern([topic])
    wait_until(lambda: len(ours.held) == 4, "ours alone")
    theirs = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
        }
    )
    try:
        theirs.subscribe([topic])

        def even():
            theirs.poll(0.1)
            held = {TopicPartition(p.topic, p.partition) for p in theirs.assignment()}
            return len(held) == 2 and len(ours.held) == 2 and not held & ours.held

        wait_until(even, "both")
    finally:
        theirs.close()
    wait_until(lambda: len(ours.held) == 4, "ours alone again")
    assert modern.owners.clashes == []
    assert ours.errors == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_moves_to_the_new_protocol_member_by_member(members, modern, make_topic, wait_until, strategy):
    topic = make_topic("kip848", partitions=4)
    old = members([topic], partition_assignment_strategy=strategy)
    wait_until(lambda: shared(4, old), "the old protocol alone")
    new = modern([topic])
    wait_until(lambda: shared(4, old, new), "both protocols in one group")
    old.stop()
    wait_until(lambda: shared(4, new), "the new protocol alone")
    assert members.owners.clashes == []
    assert old.errors == new.errors == []


def test_an_expelled_member_loses_its_partitions_and_comes_back(kafka, modern, make_topic, wait_until, group):
    topic = make_topic("kip848", partitions=2)
    a = modern([topic])
    wait_until(lambda: shared(2, a), "a alone")
    place = a.consumer._network.core.group_metadata
    with KafkaClient(ClientConfig.from_dict({"bootstrap.servers": kafka.bootstrap_servers})) as client:
        client.bootstrap(30)
        last = ConsumerGroupHeartbeatRequest(group_id=group, member_id=place.member_id, member_epoch=-1)
        client.wait([client.send(last, node=next(iter(client.metadata.brokers)))], 30)
    wait_until(lambda: story(a, "lost"), "a knows of it")
    wait_until(lambda: shared(2, a), "a is back")
    again = a.consumer._network.core.group_metadata
    assert again.member_id == place.member_id
    assert again.generation > place.generation
    assert a.errors == []


def test_a_static_member_that_comes_back_finds_its_partitions(modern, make_topic, wait_until):
    topic = make_topic("kip848", partitions=4)
    a = modern([topic], group_instance_id="a")
    wait_until(lambda: shared(4, a), "a alone")
    b = modern([topic], group_instance_id="b")
    wait_until(lambda: shared(4, a, b), "a and b")
    before, reported = set(b.held), list(a.story)
    b.stop()
    again = modern([topic], group_instance_id="b")
    wait_until(lambda: again.held == before, "b is back")
    assert [entry for entry in a.story if entry[1]] == [entry for entry in reported if entry[1]]  # nothing moved
    assert modern.owners.clashes == []


def test_a_static_member_that_is_fenced_frees_its_name_and_comes_back(modern, make_topic, wait_until):
    """The broker has forgotten the last epoch, as after an unclean election of its log's leader."""
    topic = make_topic("kip848", partitions=2)
    a = modern([topic], group_instance_id="a")
    wait_until(lambda: shared(2, a), "a alone")
    membership = a.consumer._network.core.membership
    # No answer that is under way may give it its epoch again.
    wait_until(lambda: membership.state is MemberState.STABLE and not membership._declaring, "a has acknowledged")
    membership._place(membership.metadata.generation + 7, membership.metadata.member_id)
    wait_until(lambda: story(a, "lost") or a.errors, "a knows of it")
    wait_until(lambda: shared(2, a) or a.errors, "a is back")
    assert a.errors == []


@pytest.mark.parametrize("flags", [re.IGNORECASE, re.IGNORECASE | re.MULTILINE | re.DOTALL])
def test_a_patterns_flags_hold_for_the_broker_too(modern, make_topic, wait_until, flags):
    topic = make_topic("kip848", partitions=2)
    a = modern(re.compile(f"nothing|{re.escape(topic.upper())}", flags))
    wait_until(lambda: shared(2, a), "the topic is found by its name in capitals")
    assert a.errors == []


def test_a_second_member_with_the_name_of_a_living_one_is_refused(modern, make_topic, wait_until):
    topic = make_topic("kip848", partitions=2)
    a = modern([topic], group_instance_id="a")
    wait_until(lambda: shared(2, a), "a alone")
    double = modern([topic], group_instance_id="a")
    wait_until(lambda: double.errors, "refused")
    assert re.search(r"group\.instance\.id='a'.*UNRELEASED_INSTANCE_ID", str(double.errors[0]))
    assert shared(2, a)


def test_a_member_that_does_not_poll_is_out_and_comes_back(modern, make_consumer, make_topic, group, wait_until):
    topic = make_topic("kip848", partitions=2)
    lost, given = [], []
    slow = make_consumer(group_id=group, group_protocol="consumer", max_poll_interval_ms=3000, enable_auto_commit=False)
    slow.subscribe(
        [topic], on_assigned=lambda _, p: given.extend(p), on_lost=lambda _, p: lost.extend(p), on_revoked=None
    )

    def polled():
        slow.poll(0.2)
        return len(slow.assignment()) == 2

    wait_until(polled, "joined")
    other = modern([topic])
    wait_until(lambda: shared(2, other), "the other has it all, because nobody polls")
    assert not lost
    wait_until(lambda: slow.poll(0.2) is not None and lost, "partitions are lost when polled again")
    assert sorted(lost) == [TopicPartition(topic, p) for p in range(2)]
    wait_until(lambda: slow.poll(0.2) is not None and len(slow.assignment()) == 1, "joined again")
    wait_until(lambda: len(other.held) == 1, "shared")
    assert len(given) == 3


def test_new_partitions_and_topics_are_assigned(modern, make_topic, kafka_admin, wait_until):
    from confluent_kafka.admin import NewPartitions, NewTopic

    topic = make_topic("kip848", partitions=1)
    late = f"{topic}-late"
    a = modern([topic, late], metadata_max_age_ms=500)
    wait_until(lambda: len(a.held) == 1, "a has what there is")
    kafka_admin.create_topics([NewTopic(late, num_partitions=2)])[late].result(LONG)
    wait_until(lambda: len(a.held) == 3, "a has the new topic")
    kafka_admin.create_partitions([NewPartitions(topic, 2)])[topic].result(LONG)
    wait_until(lambda: len(a.held) == 4, "a has the new partition")


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_pattern_stands_for_topics_that_come_and_go(members, make_topic, kafka_admin, wait_until, protocol):
    first = make_topic("kip848")
    make_topic("kip848-other")
    pattern = re.compile(f"{re.escape(first)}(-more.*)?")
    without = CLASSIC_ONLY if protocol == "consumer" else ()
    a = members(pattern, without=without, group_protocol=protocol, metadata_max_age_ms=500)
    wait_until(lambda: {p.topic for p in a.held} == {first}, "the topic there is")
    second = f"{first}-more"
    kafka_admin.create_topics([_new_topic(second)])[second].result(LONG)
    wait_until(lambda: {p.topic for p in a.held} == {first, second}, "the new topic too")
    b = members(pattern, without=without, group_protocol=protocol, metadata_max_age_ms=500)
    wait_until(lambda: shared(2, a, b), "both")
    kafka_admin.delete_topics([second])[second].result(LONG)
    wait_until(lambda: {p.topic for p in a.held | b.held} == {first}, "the topic is gone")
    assert members.owners.clashes == []
    assert a.errors == b.errors == []


def _new_topic(name):
    from confluent_kafka.admin import NewTopic

    return NewTopic(name, num_partitions=1)


def test_a_pattern_that_the_broker_cannot_read_is_an_error(modern, wait_until):
    a = modern(re.compile("(?=x)y"))
    wait_until(lambda: a.errors, "refused")
    assert re.search(r"pattern='\(\?=x\)y'.*INVALID_REGULAR_EXPRESSION", str(a.errors[0]))


def test_an_assignor_that_the_broker_has_not_is_an_error(modern, make_topic, wait_until):
    a = modern([make_topic("kip848")], group_remote_assignor="nope")
    wait_until(lambda: a.errors, "refused")
    assert re.search(r"group\.remote\.assignor='nope'.*uniform, range.*UNSUPPORTED_ASSIGNOR", str(a.errors[0]))


def test_offsets_committed_while_giving_up_are_where_the_next_owner_begins(modern, make_topic, produce, wait_until):
    topic = make_topic("kip848", partitions=4)
    produce(topic, [{"value": str(i), "partition": i % 4} for i in range(40)])
    begun, committed = {}, {}

    def revoked(member, partitions):
        offsets = {p: 3 + p.partition for p in partitions}
        member.consumer.commit(offsets)
        committed.update(offsets)

    def assigned(member, partitions):
        begun.update({p: member.consumer.position(p) for p in partitions})

    a = modern([topic], hooks={"revoked": revoked})
    wait_until(lambda: len(a.held) == 4, "a alone")
    b = modern([topic], hooks={"assigned": assigned})
    wait_until(lambda: shared(4, a, b), "a and b")
    assert begun == committed
    assert len(begun) == 2
    a.stop()
    wait_until(lambda: shared(4, b), "b alone")
    assert begun == committed
    assert a.errors == b.errors == []


def test_every_record_is_read_and_committed_although_members_come_and_go(modern, make_topic, produce, wait_until):
    topic = make_topic("kip848", partitions=6)
    produce(topic, [{"value": str(i), "partition": i % 6} for i in range(6000)])
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 50, "max_poll_records": 50}
    a = modern([topic], **settings)
    wait_until(lambda: a.held, "a has begun")
    b = modern([topic], **settings)
    wait_until(lambda: shared(6, a, b), "a and b")
    a.stop()
    wait_until(lambda: shared(6, b), "b alone")
    every = [TopicPartition(topic, p) for p in range(6)]
    reader = b.consumer
    b.stop(leave=False)
    for _ in range(200):
        reader.poll(0.1)
        if set(reader.committed(every).values()) == {1000}:
            break
    assert reader.committed(every) == dict.fromkeys(every, 1000)
    assert modern.owners.clashes == []
    assert a.errors == b.errors == []


def test_the_epoch_is_the_generation_and_only_the_broker_rebalances(make_consumer, make_topic, group, wait_until):
    consumer = make_consumer(group_id=group, group_protocol="consumer")
    consumer.subscribe([make_topic("kip848")])
    assert consumer.group_metadata().generation == -1
    wait_until(lambda: consumer.poll(0.2) is not None and consumer.assignment(), "joined")
    before = consumer.group_metadata()
    assert before.generation > 0
    assert before.member_id
    consumer.enforce_rebalance("I like it")
    consumer.poll(1.0)
    assert consumer.group_metadata() == before
    consumer.unsubscribe()
    assert consumer.group_metadata().generation == -1


@pytest.mark.long
def test_heartbeats_go_on_while_a_callback_blocks(modern, make_topic, wait_until):
    topic = make_topic("kip848", partitions=2)
    blocked, go = threading.Event(), threading.Event()

    def revoked(*_):
        blocked.set()
        go.wait(LONG)

    a = modern([topic], hooks={"revoked": revoked}, fetching=False)
    wait_until(lambda: len(a.held) == 2, "a alone")
    b = modern([topic], fetching=False)
    wait_until(blocked.is_set, "a gives something up")
    beats = next(m for m in a.consumer._network.core.managers if isinstance(m, HeartbeatManager))
    begun = beats._sent_at
    # Longer than the broker's session timeout: a silent member would be expelled, and b have its partitions.
    wait_until(lambda: beats._sent_at - begun > 12, "twelve seconds of heartbeats")
    assert not b.held
    go.set()
    wait_until(lambda: shared(2, a, b), "b has its share")
    assert not story(a, "lost")
    assert modern.owners.clashes == []


@pytest.mark.long
def test_a_cluster_without_the_protocol_is_named():
    from sparkrelay.consumer import Consumer
    from sparkrelay.devkafka import DevKafka

    with DevKafka(server_properties={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.protocol": "consumer"}
        with Consumer(settings) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KafkaException) as caught:
                wait_until(lambda: False, "no error", between=lambda: consumer.poll(0.5))
    assert isinstance(caught.value, UnsupportedVersionException)
    assert "group.protocol='classic'" in str(caught.value)
