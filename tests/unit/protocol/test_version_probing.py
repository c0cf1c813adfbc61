"""Members of mixed versions in one group: who speaks what, and that an upgrade comes to rest. See KIP-268."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, strategies as st

from sparkrelay.assignment import AssignmentConfigs, GroupMember, HighAvailabilityTaskAssignor
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.protocol import LATEST_OFFSET, AssignmentInfo, SpokenVersion, SubscriptionInfo
from sparkrelay.testing import task
from sparkrelay.types import ProcessId

TASKS = [task(f"0_{partition}") for partition in range(6)]


class Instance:
    """One member, of an older, our own or a newer release: it knows versions up to ``latest``."""

    def __init__(self, number, latest):
        self.id, self.process_id = f"member-{number}", ProcessId.parse(f"{number:032x}")
        self.spoken = SpokenVersion(latest, latest)
        self.active = []
        self.must_join = True

    def subscription(self):
        said = SubscriptionInfo(
            process_id=self.process_id,
            version=min(self.spoken.used, 11),
            latest_supported_version=self.spoken.latest,
            task_offset_sums=dict.fromkeys(self.active, LATEST_OFFSET),
        )
        data = said.encode()
        if self.spoken.used > 11:  # what a newer release writes, as far as we can read it
            data = self.spoken.used.to_bytes(4, "big") + data[4:]
        return SubscriptionInfo.decode(data)

    def take(self, info):
        info = AssignmentInfo.decode(info.encode())
        assert info.version <= self.spoken.latest
        self.active = sorted(set(info.active_tasks))
        self.must_join = self.spoken.answered(info.version, info.commonly_supported_version)


def rebalance(instances):
    members = [
        GroupMember(
            consumer_id=instance.id,
            subscription=instance.subscription(),
            owned_partitions=frozenset(
                partition for info in TASKS if info.id in instance.active for partition in info.input_topic_partitions
            ),
        )
        for instance in instances
    ]
    result = assign_group(
        members=members,
        tasks=TASKS,
        ends={info.id: 0 for info in TASKS},
        assignor=HighAvailabilityTaskAssignor(),
        configs=AssignmentConfigs(),
        leader=instances[0].process_id,
        now_ms=0,
    )
    assert result.failure is None
    for instance in instances:
        instance.take(result.members[instance.id].info)
    return {result.members[instance.id].info.version for instance in instances}


def converge(instances):
    """Rebalance until nobody has to join anew; every instance whose process moved on keeps all that it knows."""
    for _ in range(6):
        versions = rebalance(instances)
        if not any(instance.must_join for instance in instances):
            return versions
    raise AssertionError([(instance.id, instance.spoken) for instance in instances])


def everything_runs(instances):
    return sorted(name for instance in instances for name in instance.active) == [info.id for info in TASKS]


def test_a_rolling_upgrade_from_10_to_11():
    old = [Instance(number, 10) for number in (1, 2, 3)]
    assert converge(old) == {10}
    group = old
    for number in range(3):
        group = [instance for instance in group if instance is not old[number]]
        group.append(Instance(11 + number, 11))
        versions = converge(group)
        rebalance(group)  # what was withheld moves now
        assert everything_runs(group)
        assert versions == ({11} if number == 2 else {10}), "the new version only once all understand it"
    assert {instance.spoken.used for instance in group} == {11}


def test_a_downgrade_is_an_upgrade_backwards():
    group = [Instance(number, 11) for number in (1, 2)]
    assert converge(group) == {11}
    group[0] = Instance(3, 10)
    assert converge(group) == {10}
    assert group[1].spoken == SpokenVersion(used=10, latest=11)


def test_a_newer_release_steps_down_to_ours():
    group = [Instance(1, 11), Instance(2, 12), Instance(3, 12)]
    assert converge(group) == {11}
    assert [instance.spoken.used for instance in group] == [11, 11, 11]
    rebalance(group)
    assert everything_runs(group)


def test_the_first_answer_to_a_newer_release_gives_its_members_work_already():
    group = [Instance(1, 11), Instance(2, 12)]
    rebalance(group)
    assert group[1].must_join
    assert group[1].active, "the stand-in for newer members gets a share"


@given(latest=st.lists(st.integers(7, 13), min_size=1, max_size=5))
def test_any_mixture_comes_to_rest(latest):
    if min(latest) > 11:
        latest = [*latest, 11]  # somebody must be able to lead; we play that leader
    group = [Instance(number, version) for number, version in enumerate(latest)]
    assert converge(group) == {min(*latest, 11)}


@pytest.mark.parametrize(
    ("used", "answer", "common", "then"),
    [
        (11, 11, 11, (11, False)),
        (11, 10, 10, (10, True)),
        (10, 10, 11, (11, True)),
        (10, 10, 10, (10, False)),
        (11, 10, 11, (11, False)),  # the others are on their way
        (11, 2, -1, (2, True)),
    ],
)
def test_steps(used, answer, common, then):
    spoken = SpokenVersion(used=used, latest=11)
    assert (spoken.answered(answer, common), spoken.used) == then[::-1]
    assert dataclasses.asdict(spoken)["latest"] == 11
