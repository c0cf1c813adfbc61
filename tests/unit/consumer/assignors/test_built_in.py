from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.assignors.built_in import (
    CooperativeStickyAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    offered,
)
from sparkrelay.consumer.assignors.sticky_assignor import Claim, decode_claim, encode_claim
from sparkrelay.consumer.assignors.sticky_balance import balanced
from sparkrelay.consumer.base.assignor import ClusterView, MemberSubscription
from sparkrelay.errors import ConfigException
from sparkrelay.types import TopicPartition

TOPICS = ("a", "b", "c")


def test_range_gives_runs_and_the_first_members_more():
    members = {m: MemberSubscription(frozenset({"a", "b"})) for m in ("m2", "m1")}
    answer = RangeAssignor().assign(ClusterView({"a": (0, 1, 2), "b": (0, 1)}), members)
    assert answer["m1"].partitions == (("a", 0), ("a", 1), ("b", 0))
    assert answer["m2"].partitions == (("a", 2), ("b", 1))


def test_range_puts_static_members_first_in_their_order():
    members = {
        "a-dynamic": MemberSubscription(frozenset({"a"})),
        "z": MemberSubscription(frozenset({"a"}), group_instance_id="1"),
    }
    answer = RangeAssignor().assign(ClusterView({"a": (0, 1, 2)}), members)
    assert len(answer["z"].partitions) == 2


@st.composite
def groups(draw):
    cluster = {t: tuple(range(draw(st.integers(0, 5)))) for t in TOPICS}
    everything = [TopicPartition(t, p) for t, parts in cluster.items() for p in parts]
    members = {}
    for number in range(draw(st.integers(1, 4))):
        topics = draw(st.frozensets(st.sampled_from(TOPICS), min_size=1))
        owned = draw(st.frozensets(st.sampled_from(everything))) if everything else frozenset()
        members[f"m{number}"] = MemberSubscription(topics, owned, generation=draw(st.integers(-1, 2)))
    return ClusterView(cluster), members


def converge(cluster, members):
    """Rebalance as a cooperative group does until nothing moves."""
    assignor, rounds = CooperativeStickyAssignor(), 0
    while True:
        answer = assignor.assign(cluster, members)
        held = [p for a in answer.values() for p in a.partitions]
        assert len(held) == len(set(held))
        after = {
            m: MemberSubscription(s.topics, frozenset(answer[m].partitions), generation=10 + rounds)
            for m, s in members.items()
        }
        if all(after[m].owned_partitions == members[m].owned_partitions for m in members) and rounds:
            return {m: set(a.partitions) for m, a in answer.items()}
        members, rounds = after, rounds + 1
        assert rounds < 6, "the assignment does not come to rest"


@given(groups())
def test_sticky_comes_to_rest_complete_and_fair(case):
    cluster, members = case
    result = converge(cluster, members)
    for topic, parts in cluster.partitions.items():
        takers = [m for m, s in members.items() if topic in s.topics]
        for p in parts:
            holders = [m for m in members if TopicPartition(topic, p) in result[m]]
            assert holders in [[m] for m in takers] if takers else holders == []
    for m in members:
        for partition in result[m]:
            assert all(
                len(result[m]) - len(result[other]) <= 1
                for other in members
                if partition.topic in members[other].topics
            )


@given(groups())
def test_sticky_never_gives_what_another_holds(case):
    cluster, members = case
    answer = CooperativeStickyAssignor().assign(cluster, members)
    newest = {}
    for m, s in members.items():
        for p in s.owned_partitions:
            newest.setdefault(p, []).append((s.generation, m))
    for m, a in answer.items():
        for p in a.partitions:
            claims = sorted((g, o) for g, o in newest.get(p, []) if p.topic in members[o].topics)
            alone = claims and (len(claims) == 1 or claims[-1][0] > claims[-2][0])
            if alone:
                assert claims[-1][1] == m


def test_unknown_names_are_refused():
    with pytest.raises(ConfigException, match="'stuck' must be one of range, roundrobin, sticky, cooperative-sticky"):
        offered(["stuck"], ())
    with pytest.raises(ConfigException, match="empty"):
        offered([], ())


def test_names_of_java_classes_are_names_too():
    package = "org.apache.kafka.clients.consumer"
    classes = ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"]
    found = offered([f"{package}.{name}" for name in classes], ())
    assert [type(assignor).__name__ for assignor in found] == classes


def test_each_name_is_offered_once():
    with pytest.raises(ConfigException, match="two assignors are named 'sticky'"):
        offered(["sticky", "org.apache.kafka.clients.consumer.StickyAssignor"], ())


def claim(generation, *numbers):
    return Claim(frozenset(TopicPartition("a", p) for p in numbers), generation)


def test_sticky_gives_back_what_members_say_they_had():
    assignors = {m: StickyAssignor() for m in "xyz"}
    cluster = ClusterView({"a": tuple(range(6))})

    def subscriptions():
        return {m: MemberSubscription(frozenset({"a"}), user_data=s.subscription_user_data(frozenset({"a"})))
                for m, s in assignors.items()}  # fmt: skip

    assert assignors["x"].subscription_user_data(frozenset()) == b""
    first = assignors["x"].assign(cluster, subscriptions())
    for member, assignor in assignors.items():
        assignor.on_assignment(first[member], GroupMetadata("g", 4))
    assert assignors["y"].assign(cluster, subscriptions()) == first
    del assignors["z"]
    second = assignors["y"].assign(cluster, subscriptions())
    assert all(set(first[m].partitions) < set(second[m].partitions) for m in assignors)


@pytest.mark.parametrize(
    ("user_data", "generation"),
    [
        (b"\x00\x00\x00\x05", 5),  # Java's
        (encode_claim(claim(5, 0)), 5),  # librdkafka's
        (b"\x00\x00", -1),
        (b"", -1),
    ],
)
def test_older_clients_put_their_generation_in_user_data(user_data, generation):
    """The newer claim is right: x says 4, in the field of its subscription."""
    mine = TopicPartition("a", 0)
    members = {
        "x": MemberSubscription(frozenset({"a"}), frozenset({mine}), generation=4),
        "y": MemberSubscription(frozenset({"a"}), frozenset({mine}), user_data),
    }
    answer = CooperativeStickyAssignor().assign(ClusterView({"a": (0,)}), members)
    assert answer["y" if generation > 4 else "x"].partitions == (mine,)


def test_what_two_claim_alike_goes_to_nobody_before_both_gave_it_up():
    mine = TopicPartition("a", 0)
    members = {m: MemberSubscription(frozenset({"a"}), frozenset({mine}), generation=3) for m in "xy"}
    members["z"] = MemberSubscription(frozenset({"a"}))
    answer = CooperativeStickyAssignor().assign(ClusterView({"a": (0,)}), members)
    assert [a.partitions for a in answer.values()] == [(), (), ()]


@given(st.binary(max_size=40))
def test_claims_of_any_bytes_are_read_or_ignored(data):
    decode_claim(data)


def test_a_claim_without_a_generation_is_read():
    data = encode_claim(claim(7, 0, 2))
    assert decode_claim(data) == claim(7, 0, 2)
    assert decode_claim(data[:-4]) == claim(-1, 0, 2)
    assert decode_claim(data[:-5]) == Claim()


@given(groups())
def test_no_path_leads_to_a_more_even_assignment(case):
    """Harvey et al.: then no other assignment is more even, however many partitions it moves."""
    cluster, members = case
    answer = RoundRobinAssignor().assign(cluster, members)  # as good as any to begin with
    holders = {p: m for m, a in answer.items() for p in a.partitions}
    given = balanced(cluster, holders, members)
    arcs = {m: {o for p in given[m] for o in members if p.topic in members[o].topics} for m in members}
    for start in members:
        reached, front = {start}, {start}
        while front:
            front = {o for m in front for o in arcs[m]} - reached
            reached |= front
        assert all(len(given[end]) >= len(given[start]) - 1 for end in reached)
