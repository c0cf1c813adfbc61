"""The model hands tasks over as the product does: compared with what the real leader sends to real members."""

from hypothesis import given, settings, strategies as st

from sparkrelay.assignment import (
    AssignedTask,
    AssignmentConfigs,
    GroupMember,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    TaskInfo,
)
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.protocol import LATEST_OFFSET, SubscriptionInfo
from sparkrelay.simulate.cluster import Cluster, Role
from sparkrelay.simulate.scenario import Scenario
from sparkrelay.types import ProcessId, TaskId, TopicPartition

PROCESSES, TASKS, END = 3, 4, 1_000
NAMES = [ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}") for number in range(PROCESSES)]
INFOS = [
    TaskInfo.of(
        TaskId(0, task),
        inputs=[TopicPartition("in", task)],
        changelogs=[TopicPartition("changelog", task)],
        stores=["store"],
    )
    for task in range(TASKS)
]


@st.composite
def placements(draw):
    """Active and standby tasks of every process."""
    placed = {number: (set(), set()) for number in range(PROCESSES)}
    for task in range(TASKS):
        runner = draw(st.integers(0, PROCESSES - 1))
        placed[runner][0].add(task)
        for follower in draw(st.sets(st.integers(0, PROCESSES - 1))) - {runner}:
            placed[follower][1].add(task)
    return placed


class Always(TaskAssignor):
    def __init__(self, placed):
        self.placed = placed

    def assign(self, application_state):
        return TaskAssignment(
            KafkaStreamsAssignment.of(
                NAMES[number],
                [
                    *(AssignedTask(TaskId(0, task), AssignedTask.Type.ACTIVE) for task in active),
                    *(AssignedTask(TaskId(0, task), AssignedTask.Type.STANDBY) for task in standby),
                ],
            )
            for number, (active, standby) in self.placed.items()
        )


def assigned(cluster, wanted):
    """What the real leader sends members in the cluster's situation: active tasks of each, and whether to come back."""
    members = [
        GroupMember(
            consumer_id=f"consumer-{number}",
            subscription=SubscriptionInfo(
                process_id=NAMES[number],
                task_offset_sums={
                    TaskId(0, task): LATEST_OFFSET if copy.role is Role.ACTIVE else END
                    for task, copy in process.copies.items()
                },
            ),
            owned_partitions=frozenset(TopicPartition("in", task) for task in process.active),
        )
        for number, process in enumerate(cluster.processes)
    ]
    result = assign_group(
        members=members,
        tasks=INFOS,
        ends={info.id: END for info in INFOS},
        assignor=Always(wanted),
        configs=AssignmentConfigs(),
        leader=NAMES[0],
        now_ms=0,
    )
    assert result.failure is None
    infos = [result.members[f"consumer-{number}"].info for number in range(PROCESSES)]
    return [{task.partition for task in info.active_tasks} for info in infos], not result.stable


@settings(max_examples=60, deadline=None)
@given(before=placements(), wanted=placements())
def test_the_real_leader_withholds_the_same_tasks(before, wanted):
    cluster = Cluster(
        Scenario(clients=PROCESSES, partitions=TASKS, input_rate=0),
        ends=[float(END)] * TASKS,
        replica_racks=[frozenset({0})] * TASKS,
        process_count=PROCESSES,
    )
    for number in range(PROCESSES):
        cluster.join(number)
    cluster.put_in_place(before)
    for _ in range(2):
        active, again = assigned(cluster, wanted)
        assert cluster.follow(wanted) is again
        assert [process.active for process in cluster.processes] == active
    assert not again
    assert active == [wanted[number][0] for number in range(PROCESSES)]
