"""Assignors on a real broker: built-in ones, a program's own and its mistakes, and the way to cooperative ones."""

from __future__ import annotations

import threading

import pytest
from tests.waiting import LONG

from sparkrelay.consumer import MemberAssignment
from sparkrelay.errors import BrokerResponseException, ConfigException, KafkaException
from sparkrelay.types import TopicPartition

pytestmark = pytest.mark.integration


def shared(parts, *members):
    held = [member.held for member in members]
    even = max(map(len, held)) - min(map(len, held)) <= 1
    return even and sum(map(len, held)) == parts and len(set().union(*held)) == parts


@pytest.fixture
def flow(kafka):
    """`flow(topic, partitions)` writes on and on; `stop()` returns how many records each partition has."""
    from confluent_kafka import Producer

    class Flow:
        def __init__(self, topic, partitions):
            self.count, self._stop = 0, threading.Event()
            self._thread = threading.Thread(target=self._run, args=(topic, partitions), daemon=True)
            self._thread.start()

        def _run(self, topic, partitions):
            producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0})
            while not self._stop.wait(0.02):
                for partition in range(partitions):
                    producer.produce(topic, b"x", partition=partition)
                assert producer.flush(LONG) == 0
                self.count += 1

        def stop(self):
            self._stop.set()
            self._thread.join(LONG)
            return self.count

    made = []

    def make(topic, partitions):
        made.append(Flow(topic, partitions))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.mark.parametrize("name", ["roundrobin", "sticky", "org.apache.kafka.clients.consumer.StickyAssignor"])
def test_eager_assignors_share_the_partitions(members, make_topic, wait_until, name):
    topic = make_topic("assignors", partitions=6)
    a = members([topic], partition_assignment_strategy=name)
    wait_until(lambda: shared(6, a), "a alone")
    b = members([topic], partition_assignment_strategy=name)
    wait_until(lambda: shared(6, a, b), "a and b")
    before = a.held.copy()
    c = members([topic], partition_assignment_strategy=name)
    wait_until(lambda: shared(6, a, b, c), "all three")
    if name != "roundrobin":
        assert a.held < before  # user data said so: a had given it up
    assert members.owners.clashes == []


@pytest.mark.long
def test_the_double_rolling_bounce_from_eager_to_cooperative(members, make_topic, wait_until, flow, caplog):
    """KIP-429: first everybody learns the new assignor beside the old one, then everybody forgets the old one."""
    topic = make_topic("bounce", partitions=6)
    written = flow(topic, 6)

    def member(strategies):
        config = {"enable_auto_commit": True, "auto_commit_interval_ms": 300}
        return members([topic], partition_assignment_strategy=strategies, **config)

    gone, living = [], [member("range") for _ in range(3)]
    wait_until(lambda: shared(6, *living), "all eager")
    for strategies in ("cooperative-sticky,range", "cooperative-sticky"):
        for index in range(3):
            living[index].stop()
            gone.append(living[index])
            living[index] = member(strategies)
            wait_until(lambda: shared(6, *living), f"{index + 1} members offer {strategies}")
    kept = [set(m.held) for m in living]
    reported = [len(m.story) for m in living]
    living.append(member("cooperative-sticky"))
    wait_until(lambda: shared(6, *living), "one more")
    for m, before, at in zip(living, kept, reported, strict=False):
        revoked = [p for kind, parts in m.story[at:] if kind == "revoked" for p in parts]
        assert set(revoked) == before - m.held  # cooperative at last: what stays was never given up

    count = written.stop()
    everybody = gone + living
    everything = {(topic, p, offset) for p in range(6) for offset in range(count)}
    wait_until(lambda: everything <= {r for m in everybody for r in m.read}, "records were lost")
    if "automatic commit failed" not in caplog.text:
        # Each hand-over committed first, so none came twice. A commit may fail, as in Java, when a member leaves while
        # the group waits for its leader.
        assert sum(len(m.read) for m in everybody) == len(everything)
    assert members.owners.clashes == []
    assert [m.errors for m in everybody] == [[]] * len(everybody)


def test_a_group_without_a_common_assignor_says_so(members, make_topic, wait_until):
    topic = make_topic("assignors")
    a = members([topic], partition_assignment_strategy="range")
    wait_until(lambda: a.held, "a alone")
    b = members([topic], partition_assignment_strategy="roundrobin,sticky")
    wait_until(lambda: b.errors, "b is refused")
    b.stop()
    assert isinstance(b.errors[0], BrokerResponseException)
    assert b.errors[0].name == "INCONSISTENT_GROUP_PROTOCOL"
    assert "partition.assignment.strategy=roundrobin,sticky" in str(b.errors[0])
    assert a.errors == []


class Backwards:
    """Gives all partitions to the member that comes last."""

    name = "backwards"
    supports_cooperative = False

    def __init__(self, answer=None):
        self.answer, self.threads = answer, set()

    def subscription_user_data(self, topics):
        return b"hello"

    def assign(self, cluster, members):
        self.threads.add(threading.current_thread())
        if self.answer is not None:
            return self.answer(members)
        everything = [TopicPartition(t, p) for t, parts in cluster.partitions.items() for p in parts]
        return {max(members): MemberAssignment(tuple(everything))}

    def on_assignment(self, assignment, metadata):
        self.threads.add(threading.current_thread())


def test_an_assignor_of_ones_own_beside_built_in_ones(members, make_topic, wait_until):
    topic, mine, other = make_topic("own", partitions=2), Backwards(), Backwards()
    a = members([topic], assignors=[mine, "range"])
    wait_until(lambda: len(a.held) == 2, "a alone")
    assert mine.threads == {a._thread}
    b = members([topic], assignors=["range", other])
    wait_until(lambda: shared(2, a, b) or {len(a.held), len(b.held)} == {0, 2}, "a and b agree on one of the two")
    c = members([topic], partition_assignment_strategy="range")
    wait_until(lambda: sum(map(len, (a.held, b.held, c.held))) == 2 and not c.held, "three agree on range")
    wait_until(lambda: all(len(m.held) <= 1 for m in (a, b, c)), "range gives each at most one")
    assert members.owners.clashes == []
    assert a.errors == b.errors == c.errors == []


def test_nonsense_is_refused_before_anything_is_sent(members, make_topic, wait_until):
    topic = make_topic("own")
    mine = Backwards(lambda members: dict.fromkeys([*members, "nobody"], MemberAssignment()))
    a = members([topic], assignors=[mine])
    wait_until(lambda: a.errors, "the error reaches poll")
    assert isinstance(a.errors[0], KafkaException)
    assert "assignor 'backwards' gives partitions to 'nobody'" in str(a.errors[0])
    assert not any(kind == "assigned" for kind, _ in a.story)
    mine.answer = None
    wait_until(lambda: a.held, "it joins again")


def test_two_of_a_name_are_refused(make_consumer):
    with pytest.raises(ConfigException, match="two assignors are named 'range'"):
        make_consumer(
            group_id="g", partition_assignment_strategy="range,org.apache.kafka.clients.consumer.RangeAssignor"
        )
    with pytest.raises(ConfigException, match="two assignors are named 'backwards'"):
        make_consumer(group_id="g", assignors=[Backwards(), Backwards()])
    with pytest.raises(ConfigException, match="which is not an assignor"):
        make_consumer(group_id="g", assignors=[Backwards])
