"""Members of several protocol versions in one group: everybody gets tasks, in the least version. See KIP-268."""

from __future__ import annotations

import itertools

import pytest

from sparkrelay.assignment import AssignmentConfigs, GroupMember, HighAvailabilityTaskAssignor
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.protocol import LATEST_OFFSET, LATEST_SUPPORTED_VERSION, AssignmentInfo, ErrorCode, SubscriptionInfo
from sparkrelay.types import TopicPartition

VERSIONS = range(1, LATEST_SUPPORTED_VERSION + 1)


def member(groups, number, version=LATEST_SUPPORTED_VERSION, *, owned="", latest=None):
    latest = latest or (LATEST_SUPPORTED_VERSION if version >= 3 else -1)
    subscription = SubscriptionInfo(
        process_id=groups.process(number),
        version=version,
        latest_supported_version=latest,
        task_offset_sums=dict.fromkeys(groups.ids(owned), LATEST_OFFSET),
    )
    return GroupMember(
        consumer_id=f"{number:02}",
        # What came over the wire is what the leader sees.
        subscription=SubscriptionInfo.decode(subscription.encode()),
        owned_partitions=frozenset(TopicPartition(f"in-{t.subtopology}", t.partition) for t in groups.ids(owned)),
    )


def future(number, version=LATEST_SUPPORTED_VERSION + 1, **more):
    data = version.to_bytes(4, "big") * 2 + b"what only they can read"
    return GroupMember(consumer_id=f"{number:02}", subscription=SubscriptionInfo.decode(data), **more)


def lead(groups, members, tasks="0_0 0_1 0_2 0_3"):
    infos = groups.tasks("", tasks)
    return assign_group(
        members=members,
        tasks=infos,
        ends={},
        assignor=HighAvailabilityTaskAssignor(),
        configs=AssignmentConfigs(),
        leader=members[0].process_id,
        now_ms=0,
    )


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations_with_replacement(VERSIONS, 2)))
def test_the_answer_is_in_the_least_version_received(groups, one, other):
    result = lead(groups, [member(groups, 1, one), member(groups, 2, other)])
    for sent in result.members.values():
        assert sent.info.version == one
        assert AssignmentInfo.decode(sent.info.encode()).active_tasks == sent.info.active_tasks
    given = [task for sent in result.members.values() for task in sent.info.active_tasks]
    assert groups.names(given) == "0_0 0_1 0_2 0_3"


@pytest.mark.parametrize("latest", [3, 7, 10, 11])
def test_members_learn_what_all_could_speak(groups, latest):
    result = lead(groups, [member(groups, 1, 3, latest=latest), member(groups, 2, 3, latest=11)])
    assert {sent.info.commonly_supported_version for sent in result.members.values()} == {latest}


@pytest.mark.parametrize("version", [3, 7, 11])
def test_future_members_share_one_process_and_get_tasks_in_a_version_we_know(groups, version):
    members = [member(groups, 1, version), future(2), future(3)]
    result = lead(groups, members, "0_0 0_1 0_2 0_3 0_4 0_5")
    assert {name: len(sent.partitions) for name, sent in result.members.items()} == {"01": 2, "02": 2, "03": 2}
    assert {sent.info.version for sent in result.members.values()} == {version}
    # Ours: we lead, and this is the newest that we can write.
    assert {sent.info.commonly_supported_version for sent in result.members.values()} == {11}
    assert len(result.assignments) == 2
    assert not result.stable, "a future member steps down to that version, and joins anew"


def test_only_future_members_beside_the_leader_keep_what_they_own(groups):
    owned = frozenset(TopicPartition("in-0", n) for n in (0, 2))
    result = lead(groups, [member(groups, 1, owned="0_1 0_3"), future(2, owned_partitions=owned)])
    assert set(result.members["02"].partitions) <= owned
    assert {partition for sent in result.members.values() for partition in sent.partitions} == {
        TopicPartition("in-0", n) for n in range(4)
    }


@pytest.mark.parametrize("version", [1, 2])
def test_members_from_before_probing_and_future_ones_are_all_sent_an_error(groups, version):
    result = lead(groups, [member(groups, 1), member(groups, 2, version), future(3)])
    assert {sent.info.err_code for sent in result.members.values()} == {ErrorCode.ASSIGNMENT_ERROR}
    assert all(not sent.partitions for sent in result.members.values())
    assert str(version) in str(result.failure)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_members_last_version_decides_nothing_once_it_is_gone(groups, version):
    old = lead(groups, [member(groups, 1), member(groups, 2, version)])
    assert {sent.info.version for sent in old.members.values()} == {version}
    new = lead(groups, [member(groups, 1), member(groups, 2)])
    assert {sent.info.version for sent in new.members.values()} == {LATEST_SUPPORTED_VERSION}
