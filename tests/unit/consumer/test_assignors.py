from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sparkrelay.consumer.assignor import ClusterView, MemberSubscription
from sparkrelay.consumer.assignors import CooperativeStickyAssignor, RangeAssignor, offered
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


def settle(cluster, members):
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
    result = settle(cluster, members)
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
    with pytest.raises(ConfigException, match="'stuck' is none of range, roundrobin, sticky, cooperative-sticky"):
        offered(["stuck"], ())
    with pytest.raises(ConfigException, match="empty"):
        offered([], ())
