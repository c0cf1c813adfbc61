"""A group whose assignor cannot decide keeps what it has, and leaves no task without an owner. See KIP-924."""

import uuid

import pytest
from hypothesis import given, note, strategies as st

from sparkrelay.assignment import (
    AssignmentConfigs,
    HighAvailabilityTaskAssignor,
    StickyTaskAssignor,
    TaskAssignor,
    TaskInfo,
)
from sparkrelay.assignment.group_member import GroupMember
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor
from sparkrelay.errors import AuthorizationException, TaskAssignmentException
from sparkrelay.protocol import SubscriptionInfo
from sparkrelay.types import ProcessId, TaskId, TopicPartition

RUNNING = -2
P = [ProcessId(uuid.UUID(int=number)) for number in range(5)]


def tasks(count, racks=None):
    return [
        TaskInfo.of(
            TaskId(0, number),
            inputs=[TopicPartition("in", number)],
            changelogs=[TopicPartition("cl", number)],
            stores=["s"],
            **({} if racks is None else {"racks": racks}),
        )
        for number in range(count)
    ]


class NotNow(TaskAssignor):
    def assign(self, application_state):
        raise TaskAssignmentException("not now")


def rebalance(group, infos, assignor=None, *, ends=None, leader=P[0], **configs):
    """Return active and standby tasks by consumer; `group` has the process, the owned tasks and the sums of each."""
    members = [
        GroupMember(
            consumer_id=name,
            subscription=SubscriptionInfo(
                process_id=process, task_offset_sums={TaskId(0, task): offsets for task, offsets in sums.items()}
            ),
            owned_partitions=frozenset(TopicPartition("in", task) for task in owned),
            rack_id="r1",
        )
        for name, (process, owned, sums) in group.items()
    ]
    result = assign_group(
        members=members,
        tasks=infos,
        ends=ends or {info.id: 1000 for info in infos},
        assignor=assignor or NotNow(),
        configs=AssignmentConfigs(**configs),
        leader=leader,
        now_ms=0,
    )
    assert result.failure is None
    return {
        name: ([task.partition for task in sent.info.active_tasks], [t.partition for t in sent.info.standby_tasks])
        for name, sent in result.members.items()
    }


def test_each_consumer_keeps_what_it_has_however_uneven_that_is():
    running = {0: RUNNING, 1: RUNNING}
    group = {"t1": (P[0], [0, 1], running), "t2": (P[0], [], {})}
    assert rebalance(group, tasks(2)) == {"t1": ([0, 1], []), "t2": ([], [])}


def test_a_task_that_was_on_its_way_goes_where_it_was_going():
    """The first round has taken it from one process, in the second the assignor cannot decide."""
    group = {"a": (P[0], [0, 1], {0: RUNNING, 1: RUNNING}), "b": (P[1], [], {1: 1000})}
    assert rebalance(group, tasks(2), HighAvailabilityTaskAssignor()) == {"a": ([0], []), "b": ([], [1])}
    group = {"a": (P[0], [0], {0: RUNNING, 1: 1000}), "b": (P[1], [], {1: 1000})}
    assert rebalance(group, tasks(2)) == {"a": ([0], []), "b": ([1], [])}


def test_what_its_owner_still_has_stays_there():
    group = {"a": (P[0], [0, 1], {0: RUNNING, 1: RUNNING}), "b": (P[1], [], {1: 1000})}
    assert rebalance(group, tasks(2)) == {"a": ([0, 1], []), "b": ([], [])}


@pytest.mark.parametrize(("replicas", "standbys"), [(0, [[], []]), (1, [[1], [0]]), (2, [[0, 1], [0, 1]])])
def test_copies_on_the_disk_are_standbys_as_far_as_replicas_are_asked_for(replicas, standbys):
    """The copy that has most comes first."""
    group = {
        "a": (P[0], [0, 1], {0: RUNNING, 1: RUNNING}),
        "b": (P[1], [], {0: 10, 1: 20}),
        "c": (P[2], [], {0: 20, 1: 10}),
    }
    kept = rebalance(group, tasks(2), num_standby_replicas=replicas)
    assert [kept["b"][1], kept["c"][1]] == standbys


@pytest.mark.parametrize("assignor", [HighAvailabilityTaskAssignor, StickyTaskAssignor, FallbackPriorTaskAssignor])
@pytest.mark.parametrize("strategy", ["none", "min_traffic", "balance_subtopology"])
def test_racks_that_cannot_be_listed_are_left_aside(assignor, strategy):
    """The owner of task 0 has died, and its standby is here."""

    def racks():
        raise TaskAssignmentException("the racks of the partitions cannot be listed")

    group = {"b": (P[1], [1], {1: RUNNING, 0: 1000})}
    settings = {"num_standby_replicas": 1, "rack_aware_assignment_strategy": strategy}
    assert rebalance(group, tasks(2, racks), assignor(), leader=P[1], **settings) == {"b": ([0, 1], [])}


def test_a_question_that_is_forbidden_fails_the_rebalance():
    error = AuthorizationException("READ on topic cl is missing")

    def ends():
        raise error

    member = GroupMember(
        consumer_id="a", subscription=SubscriptionInfo(process_id=P[0]), owned_partitions=frozenset(), rack_id=None
    )
    result = assign_group(
        members=[member],
        tasks=tasks(1),
        ends=ends,
        assignor=HighAvailabilityTaskAssignor(),
        configs=AssignmentConfigs(),
        leader=P[0],
        now_ms=0,
    )
    assert result.failure is error


@given(st.data())
def test_every_task_has_one_owner_and_nobody_loses_one(data):
    count, processes = data.draw(st.integers(1, 8)), data.draw(st.integers(1, 4))
    consumers = [(f"{p}-{t}", P[p]) for p in range(processes) for t in range(data.draw(st.integers(1, 3)))]
    owner = {task: data.draw(st.sampled_from([None, *consumers])) for task in range(count)}
    group = {}
    for name, process in consumers:
        owned = [task for task, its in owner.items() if its == (name, process)]
        others = [task for task in range(count) if task not in owned]
        copies = data.draw(st.dictionaries(st.sampled_from(others), st.integers(0, 1000))) if others else {}
        of_process = {task for task, its in owner.items() if its is not None and its[1] == process}
        sums = {task: offsets for task, offsets in copies.items() if task not in of_process}
        group[name] = (process, owned, sums | dict.fromkeys(owned, RUNNING))
    note(group)
    kept = rebalance(group, tasks(count), num_standby_replicas=data.draw(st.integers(0, 2)))
    assert sorted(task for active, _ in kept.values() for task in active) == list(range(count))
    for name, (_, owned, _) in group.items():
        assert set(owned) <= set(kept[name][0])
