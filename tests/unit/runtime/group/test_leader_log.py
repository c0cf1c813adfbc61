"""What the leader logs: a head line, then one line for each decision."""

from __future__ import annotations

from tests.doubles.assignors import Answers

from sparkrelay.assignment import AssignmentConfigs, GroupMember, HighAvailabilityTaskAssignor, TaskInfo
from sparkrelay.assignment.leader.explain import Reason
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol import LATEST_OFFSET, SubscriptionInfo
from sparkrelay.runtime.group.leader_log import lines_of, summarise
from sparkrelay.types import ProcessId, TaskId, TopicPartition

P1, P2 = (ProcessId.parse(f"00000000-0000-0000-0000-{n:012x}") for n in (1, 2))
END = 100_000


def tasks(count):
    return [
        TaskInfo.of(TaskId(0, n), inputs=[TopicPartition("in", n)], changelogs=[TopicPartition("cl", n)], stores=["s"])
        for n in range(count)
    ]


def member(process, *, running=(), copies=None):
    sums = {TaskId(0, n): LATEST_OFFSET for n in running} | {TaskId(0, n): at for n, at in (copies or {}).items()}
    return GroupMember(
        consumer_id=f"c-{process}",
        subscription=SubscriptionInfo(process_id=process, task_offset_sums=sums),
        owned_partitions=frozenset(TopicPartition("in", n) for n in running),
    )


def story(*members, count=4, assignor=None, **configs):
    infos = tasks(count)
    result = assign_group(
        members=members,
        tasks=infos,
        ends={task.id: END for task in infos},
        assignor=assignor or HighAvailabilityTaskAssignor(),
        configs=AssignmentConfigs(**configs),
        leader=P1,
        now_ms=0,
    )
    return lines_of(result, members)


def test_a_newcomer_warms_up():
    assert story(member(P1, running=range(4)), member(P2)) == [
        "rebalance (members: 2, processes: 2)",
        f"  task 0_1 warms up on {P2}; {P1} runs it meanwhile: its copy is not caught up (100,000 offsets behind)",
        f"  task 0_3 warms up on {P2}; {P1} runs it meanwhile: its copy is not caught up (100,000 offsets behind)",
        "  some tasks wait for their next owner to catch up; the group looks again later",
        "  max.warmup.replicas=2 are warming up; further moves would have to wait",
    ]


def test_a_move_from_a_running_owner_is_withheld_for_one_rebalance():
    assert story(member(P1, running=range(2)), member(P2, copies={1: END}), count=2) == [
        "rebalance (members: 2, processes: 2)",
        f"  task 0_1 moves from {P1} to {P2}: its copy is caught up",
        f"  task 0_1 waits for the next rebalance to run on {P2}: {Reason.STILL_OWNED.value}",
    ]


def test_a_stable_group_changes_nothing():
    assert story(member(P1, running=range(2)), count=2) == [
        "rebalance (members: 1, processes: 1)",
        "  nothing changes",
    ]


def test_standbys_without_a_place_are_one_line():
    assert story(member(P1, running=range(2)), count=2, num_standby_replicas=1)[1:] == [
        "  fewer standbys than num.standby.replicas asks for: there are too few processes (tasks 0_0, 0_1)"
    ]


def test_a_summary_is_one_line():
    def summary(*members, **more):
        infos = tasks(8)
        return summarise(
            assign_group(
                members=members,
                tasks=infos,
                ends={task.id: END for task in infos},
                assignor=more.get("assignor", HighAvailabilityTaskAssignor()),
                configs=AssignmentConfigs(),
                leader=P1,
                now_ms=0,
            )
        )

    assert summary(member(P1)) == "starts 0_0, 0_1, 0_2, 0_3, 0_4 and 3 more"
    assert summary(member(P1, running=range(8)), member(P2)) == "warm-up 0_1, 0_3"
    assert summary(member(P1, running=range(8))) == "nothing changes"
    assert summary(member(P1), assignor=Answers(ZeroDivisionError("oops"))).startswith("it failed: task assignor ")
    kept = summary(member(P1, running=range(8)), assignor=Answers(TaskAssignmentException("not now")))
    assert kept == "the previous assignment is kept (not now); nothing changes"


def test_a_kept_assignment_and_a_failure_say_why():
    kept = story(member(P1, running=range(2)), count=2, assignor=Answers(TaskAssignmentException("not now")))
    assert kept[1] == "the previous assignment is kept: not now"
    failed = story(member(P1), assignor=Answers(ZeroDivisionError("oops")))
    assert len(failed) == 1
    assert failed[0].startswith("rebalance failed (members: 1): task assignor ")
    assert failed[0].endswith("ZeroDivisionError: oops")
