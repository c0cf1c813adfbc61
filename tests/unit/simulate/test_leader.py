"""What the simulated leader shows an assignor is what a real one computes from the members' reports."""

import datetime as dt

import pytest

from sparkrelay.assignment import (
    AssignedTask,
    AssignmentError,
    GroupMember,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
)
from sparkrelay.assignment.leader.client_states import client_states
from sparkrelay.errors import TaskAssignmentException
from sparkrelay.protocol import LATEST_OFFSET, SubscriptionInfo
from sparkrelay.simulate.cluster import Cluster, Role
from sparkrelay.simulate.leader import AssignorFailed, Leader
from sparkrelay.simulate.scenario import Scenario
from sparkrelay.types import TaskId

SCENARIO = Scenario(clients=2, subtopologies=1, stateless_subtopologies=1, partitions=2, standbys=1, input_rate=0)


class Says(TaskAssignor):
    def __init__(self, answer):
        self.answer = answer

    def assign(self, application_state):
        self.state = application_state
        return self.answer(application_state)


def group(answer):
    cluster = Cluster(SCENARIO, ends=[1_000.0, 2_000.0], replica_racks=[frozenset({0})] * 4, process_count=2)
    leader = Leader(SCENARIO, assignor := Says(answer), 2)
    leader.place_replicas([frozenset({0})] * 4)
    cluster.join(0)
    cluster.join(1)
    return cluster, leader, assignor


def everything_to(number):
    def answer(state):
        chosen = sorted(state.clients)[number]
        tasks = [AssignedTask(info.id, AssignedTask.Type.ACTIVE) for info in state.all_tasks]
        return TaskAssignment(
            [KafkaStreamsAssignment.of(process, tasks if process == chosen else ()) for process in state.clients]
        )

    return answer


def test_the_state_equals_the_one_computed_from_subscriptions():
    cluster, leader, _ = group(everything_to(0))
    cluster.put_in_place({0: ({0, 2}, {1}), 1: ({1, 3}, {0})})
    # Process 0 restores task 1 as a standby from record 500; process 1 has closed its copy of task 0 at 700.
    behind, closed = cluster.processes[0].copies[1], cluster.processes[1].copies[0]
    behind.at_end, behind.offset = False, 500.0
    closed.at_end, closed.offset, closed.role = False, 700.0, Role.CLOSED
    state = leader.state(cluster)

    tasks = {info.id: info for info in state.all_tasks}
    sums = [{TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): 500}, {TaskId(0, 1): LATEST_OFFSET, TaskId(0, 0): 700}]
    owned = [(TaskId(0, 0), TaskId(1, 0)), (TaskId(0, 1), TaskId(1, 1))]
    members = [
        GroupMember(
            consumer_id=f"client-{number}-0",
            subscription=SubscriptionInfo(process_id=process, task_offset_sums=sums[number]),
            owned_partitions=frozenset(p for task in owned[number] for p in tasks[task].input_topic_partitions),
            rack_id="rack-0",
        )
        for number, process in enumerate(state.clients)
    ]
    ends = {TaskId(0, 0): 1_000, TaskId(0, 1): 2_000}
    assert dict(state.clients) == client_states(members, tasks.values(), None)
    assert dict(state.kafka_streams_states(True)) == client_states(members, tasks.values(), ends)


def test_the_answer_is_read_by_numbers():
    cluster, leader, _ = group(everything_to(0))
    answer = leader.ask(cluster)
    assert sorted(len(active) for active, _ in answer.placed.values()) == [0, 4]
    assert answer.look_again_s == float("inf")
    assert answer.left_out == 0


def test_tasks_left_out_are_counted():
    cluster, leader, _ = group(lambda state: TaskAssignment(KafkaStreamsAssignment.of(p, ()) for p in state.clients))
    assert leader.ask(cluster).left_out == 4


def test_an_exception_is_a_failure_with_its_text():
    cluster, leader, _ = group(lambda state: 1 // 0)
    with pytest.raises(AssignorFailed, match=r"ZeroDivisionError: .*zero"):
        leader.ask(cluster)


def test_an_answer_that_is_none_is_a_failure():
    cluster, leader, _ = group(lambda state: None)
    with pytest.raises(AssignorFailed, match="returned None instead of a TaskAssignment"):
        leader.ask(cluster)


def test_an_answer_that_a_leader_refuses_is_a_failure():
    cluster, leader, _ = group(lambda state: TaskAssignment([]))
    with pytest.raises(AssignorFailed, match=AssignmentError.MISSING_PROCESS_ID.value):
        leader.ask(cluster)


def test_a_task_assignment_exception_keeps_what_is():
    def refuse(state):
        raise TaskAssignmentException("not now")

    cluster, leader, _ = group(refuse)
    cluster.put_in_place({0: ({0, 2}, {1}), 1: ({1, 3}, {0})})
    answer = leader.ask(cluster)
    assert answer.left_out == 0
    assert answer.placed == {0: ({0, 2}, {1}), 1: ({1, 3}, {0})}
    assert answer.look_again_s == 0


@pytest.mark.parametrize(
    ("deadline", "wait_s"),
    [
        (dt.datetime.fromtimestamp(0, dt.UTC), 0.0),
        (dt.datetime.fromtimestamp(30, dt.UTC), 30.0),
        (dt.datetime(2040, 1, 1, tzinfo=dt.UTC), SCENARIO.probing_interval_s),
    ],
)
def test_a_deadline_is_simulated_time_and_at_most_the_probing_interval(deadline, wait_s):
    def answer(state):
        first, *rest = everything_to(0)(state).assignment
        return TaskAssignment([first.with_followup_rebalance(deadline), *rest])

    cluster, leader, _ = group(answer)
    assert leader.ask(cluster).look_again_s == wait_s
