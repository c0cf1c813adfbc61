"""Ours against Java's, on recorded answers; see java_assignors/README.md."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from sparkrelay.client.group_requests import GroupMetadata
from sparkrelay.consumer.assignors.built_in import offered
from sparkrelay.consumer.assignors.sticky_assignor import StickyAssignor, decode_claim, encode_claim
from sparkrelay.consumer.base.assignor import ClusterView, MemberAssignment, MemberSubscription
from sparkrelay.types import TopicPartition

GROUPS = [
    json.loads(line) for line in (Path(__file__).parent / "java_assignors/answers.jsonl").read_text().splitlines()
]


def partitions(lists):
    return [TopicPartition(topic, p) for topic, numbers in lists.items() for p in numbers]


def cluster_of(group):
    racks = {TopicPartition(t, p): frozenset(r) for t, rs in group.get("racks", {}).items() for p, r in enumerate(rs)}
    return ClusterView({t: tuple(range(n)) for t, n in group["topics"].items()}, racks)


def members_of(group, *, by_user_data=None):
    return {
        name: MemberSubscription(
            topics=frozenset(member["topics"]),
            owned_partitions=frozenset() if by_user_data else frozenset(partitions(member.get("owned", {}))),
            user_data=bytes.fromhex(group["java"]["user_data"][name]) if by_user_data else b"",
            generation=member.get("generation", -1),
            rack=member.get("rack"),
            group_instance_id=member.get("instance"),
        )
        for name, member in group["members"].items()
    }


class Quality(NamedTuple):
    """The lower the better, in this order."""

    uneven: int
    far: int
    moved: int


def quality(group, answer):
    holders = {}
    for name, member in sorted(group["members"].items(), key=lambda item: item[1].get("generation", -1)):
        holders |= dict.fromkeys(partitions(member.get("owned", {})), name)
    cluster, far = cluster_of(group), 0
    owner = {p: name for name, parts in answer.items() for p in parts}
    for partition, name in owner.items():
        rack = group["members"][name].get("rack")
        far += rack is not None and rack not in cluster.racks.get(partition, ())
    assert len(owner) == sum(map(len, answer.values()))
    moved = sum(owner[p] != name for p, name in holders.items())
    return Quality(sum(len(parts) ** 2 for parts in answer.values()), far, moved)


def converged(assignor, cluster, members):
    for number in range(10):
        answer = assignor.assign(cluster, members)
        after = {
            m: MemberSubscription(s.topics, frozenset(answer[m].partitions), generation=100 + number, rack=s.rack)
            for m, s in members.items()
        }
        if all(after[m].owned_partitions == members[m].owned_partitions for m in members):
            return answer
        members = after
    pytest.fail("the group does not come to rest")


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_the_same_answer_as_java(name):
    (assignor,) = offered([name], ())
    for group in GROUPS:
        answer = assignor.assign(cluster_of(group), members_of(group))
        theirs = {member: sorted(partitions(lists)) for member, lists in group["java"][name].items()}
        assert {member: list(a.partitions) for member, a in answer.items()} == theirs, group


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_never_less_even_or_farther_or_more_moves_than_java(name):
    (assignor,) = offered([name], ())
    better = Counter()
    for group in GROUPS:
        cluster = cluster_of(group)
        if name == "sticky":
            answer = assignor.assign(cluster, members_of(group, by_user_data=True))
        else:
            answer = converged(assignor, cluster, members_of(group))
        ours = quality(group, {member: a.partitions for member, a in answer.items()})
        theirs = quality(group, {member: partitions(lists) for member, lists in group["java"][name].items()})
        assert ours <= theirs, group
        better[ours < theirs] += 1
    assert better[False]  # the comparison is fair: often there is nothing to do better


def test_user_data_goes_both_ways():
    for group in GROUPS:
        for member, data in group["java"]["user_data"].items():
            said = group["members"][member]
            if not data:
                assert "generation" not in said
                continue
            claim = decode_claim(bytes.fromhex(data))
            assert claim == (frozenset(partitions(said.get("owned", {}))), said["generation"])
            assert len(encode_claim(claim)) == len(data) // 2  # the order of topics is Java's own
            if len(said.get("owned", {})) < 2:
                assert encode_claim(claim).hex() == data
            ours = StickyAssignor()
            ours.on_assignment(MemberAssignment(tuple(claim.partitions)), GroupMetadata("g", said["generation"]))
            assert decode_claim(ours.subscription_user_data(frozenset())) == claim
