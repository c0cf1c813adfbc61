"""Groups on a real broker: joins, leaves, kills; no partition is ever owned twice."""

from __future__ import annotations

import pytest
from tests.marks import marked
from tests.waiting import LONG

from sparkrelay.consumer import ClusterView, MemberAssignment
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def shared(parts, *members):
    """Return whether members hold all partitions, each once and evenly."""
    held = [member.held for member in members]
    even = max(map(len, held)) - min(map(len, held)) <= 1
    return even and sum(map(len, held)) == parts and len(set().union(*held)) == parts


@pytest.mark.parametrize("fetching", marked([True, False], {False}))
def test_members_join_leave_and_die_and_no_partition_is_owned_twice(members, make_topic, wait_until, fetching):
    topic = make_topic("group", partitions=7)
    a = members([topic], fetching=fetching)
    wait_until(lambda: shared(7, a), "a alone")
    b = members([topic], fetching=fetching)
    wait_until(lambda: shared(7, a, b), "a and b")
    c = members([topic], fetching=fetching)
    wait_until(lambda: shared(7, a, b, c), "all three")
    assert not any(kind == "lost" for m in (a, b, c) for kind, _ in m.story)

    b.stop()
    wait_until(lambda: shared(7, a, c), "b has left")
    c.vanish()
    wait_until(lambda: shared(7, a), "c has died")

    assert members.owners.clashes == []
    assert a.errors == b.errors == []


def test_cooperative_members_keep_what_stays(members, make_topic, wait_until):
    topic = make_topic("group", partitions=4)
    a = members([topic])
    wait_until(lambda: shared(4, a), "a alone")
    b = members([topic])
    wait_until(lambda: shared(4, a, b), "a and b")
    revoked = [partitions for kind, partitions in a.story if kind == "revoked"]
    assert [len(partitions) for partitions in revoked] == [2]


def test_eager_members_give_up_everything_first(members, make_topic, wait_until):
    topic = make_topic("group", partitions=4)
    a = members([topic], partition_assignment_strategy="range")
    wait_until(lambda: shared(4, a), "a alone")
    b = members([topic], partition_assignment_strategy="range")
    wait_until(lambda: shared(4, a, b), "a and b")
    assert ("revoked", tuple(TopicPartition(topic, p) for p in range(4))) in a.story
    assert members.owners.clashes == []


class Streams:
    """An assignor as the runtime's: user data both ways, a partition count of its own."""

    name = "stream"
    supports_cooperative = True

    def __init__(self, label, *, fail=None, extra=()):
        self.label, self.fail, self.extra = label, fail, extra
        self.seen, self.received, self.views = [], [], []

    def subscription_user_data(self, topics):
        return self.label.encode()

    def assign(self, cluster: ClusterView, members):
        if self.fail:
            raise self.fail
        self.views.append(cluster)
        self.seen.append(dict(members))
        everything = [TopicPartition(t, p) for t, parts in cluster.partitions.items() for p in parts] + list(self.extra)
        owner = {p: m for m, s in members.items() for p in s.owned_partitions}
        shares = {m: [] for m in members}
        for index, partition in enumerate(everything):
            target = sorted(members)[index % len(members)]
            if owner.get(partition, target) == target:
                shares[target].append(partition)
        return {m: MemberAssignment(tuple(parts), b"for " + members[m].user_data) for m, parts in shares.items()}

    def on_assignment(self, assignment, metadata):
        self.received.append((assignment, metadata))


def test_an_assignor_with_user_data_reaches_every_member(members, make_topic, wait_until):
    topic, made_later = make_topic("group", partitions=2), TopicPartition("not-subscribed", 0)
    one, two = Streams("one", extra=[made_later]), Streams("two", extra=[made_later])
    a = members([topic, "does-not-exist-yet"], assignors=[one], fetching=False)
    wait_until(lambda: len(a.held) == 3, "a alone")
    b = members([topic, "does-not-exist-yet"], assignors=[two], fetching=False)
    wait_until(lambda: len(a.held | b.held) == 3 and a.held and b.held and not a.held & b.held, "a and b")

    assert {m.user_data for m in (one.seen or two.seen)[-1].values()} == {b"one", b"two"}
    assert {m.topics for m in one.seen[-1].values()} == {frozenset({topic, "does-not-exist-yet"})}
    assert one.received[-1][0].user_data == b"for one"
    assert two.received[-1][0].user_data == b"for two"
    assert one.received[-1][1].member_id == a.consumer._network.core.group_metadata.member_id
    assert members.owners.clashes == []


def test_a_leader_whose_assignor_raises_leaves_and_the_group_goes_on(members, make_topic, wait_until):
    topic = make_topic("group", partitions=2)
    bad, good = Streams("bad", fail=ValueError("cannot assign")), Streams("good")
    a = members([topic], assignors=[bad], fetching=False)
    wait_until(lambda: a.errors, "the error reaches the leader's poll")
    assert str(a.errors[0]) == "cannot assign"
    b = members([topic], assignors=[good], fetching=False)
    wait_until(lambda: b.held, "the other leads at last")
    bad.fail = None
    wait_until(lambda: a.held and b.held, "the bad one is back")
    assert members.owners.clashes == []


def test_the_leader_notices_new_topics_and_partitions(members, make_topic, kafka_admin, wait_until):
    from confluent_kafka.admin import NewPartitions, NewTopic

    topic = make_topic("group", partitions=1)
    late = f"{topic}-late"
    a = members([topic, late], metadata_max_age_ms=500)
    wait_until(lambda: len(a.held) == 1, "a has what there is")
    kafka_admin.create_topics([NewTopic(late, num_partitions=2)])[late].result(LONG)
    wait_until(lambda: len(a.held) == 3, "a has the new topic")
    kafka_admin.create_partitions([NewPartitions(topic, 2)])[topic].result(LONG)
    wait_until(lambda: len(a.held) == 4, "a has the new partition")


def test_enforced_rebalance_runs_the_assignor_again(members, make_topic, wait_until):
    topic, assignor = make_topic("group"), Streams("x")
    a = members([topic], assignors=[assignor], fetching=False)
    wait_until(lambda: a.held, "joined")
    before = len(assignor.seen)
    # From the member's own thread, through a callback of wakeup: the consumer is not for two threads.
    a.consumer._network.submit(__import__("sparkrelay.consumer.base.events", fromlist=["Rejoin"]).Rejoin("a test asks"))
    wait_until(lambda: len(assignor.seen) > before, "no second assignment")


def test_callbacks_may_call_the_consumer(members, make_topic, produce, wait_until):
    topic = make_topic("group", partitions=2)
    produce(topic, [{"value": str(i), "partition": i % 2} for i in range(20)])
    seen = {}

    def assigned(member, partitions):
        consumer = member.consumer
        seen["assignment"] = consumer.assignment()
        seen["beginning"] = consumer.beginning_offsets(partitions)
        seen["end"] = consumer.end_offsets(partitions)
        seen["position"] = [consumer.position(p) for p in partitions]
        for partition in partitions:
            consumer.seek(partition, 4)
        consumer.pause(partitions)
        seen["paused"] = consumer.paused()

    def revoked(member, partitions):
        seen["in revoked"] = (member.consumer.assignment(), [member.consumer.position(p) for p in partitions])
        member.consumer.commit(dict.fromkeys(partitions, 6))

    a = members([topic], hooks={"assigned": assigned, "revoked": revoked})
    wait_until(lambda: a.held, "joined")
    both = [TopicPartition(topic, p) for p in range(2)]
    assert seen["assignment"] == seen["paused"] == set(both)
    assert seen["beginning"] == dict.fromkeys(both, 0)
    assert seen["end"] == dict.fromkeys(both, 10)
    assert seen["position"] == [0, 0]
    a.stop()
    assert seen["in revoked"] == (set(both), [4, 4])
    b = members([topic])
    wait_until(lambda: b.held, "b joined")
    b.stop(leave=False)
    assert b.consumer.committed(both) == dict.fromkeys(both, 6)


def test_heartbeats_go_on_while_a_callback_blocks(members, make_topic, wait_until):
    import threading

    topic = make_topic("group", partitions=2)
    go = threading.Event()
    a = members([topic], hooks={"revoked": lambda *_: go.wait(LONG)}, session_timeout_ms=6000, fetching=False)
    wait_until(lambda: len(a.held) == 2, "a alone")
    b = members([topic], fetching=False)
    answered = a.consumer._network.core
    # Far longer than the session: without heartbeats a would be expelled and its partitions given to b.
    started = len(b.story)
    beats = _Beats(answered)
    wait_until(lambda: beats.seconds() > 9, "nine seconds of heartbeats")
    assert not b.held
    go.set()
    wait_until(lambda: shared(2, a, b), "b has its share")
    assert not any(kind == "lost" for kind, _ in a.story)
    assert members.owners.clashes == []
    del started


class _Beats:
    """How long heartbeats have been answered for: the next one is sent when the one before was answered."""

    def __init__(self, core):
        self._manager = next(m for m in core.managers if type(m).__name__ == "HeartbeatManager")
        self._first = self._manager._sent_at

    def seconds(self):
        return self._manager._sent_at - self._first
