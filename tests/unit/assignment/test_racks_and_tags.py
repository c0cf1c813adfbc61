"""KIP-925 and KIP-708: cheaper or equal, counts kept, the least cost found; standbys on different tag values."""

from __future__ import annotations

import itertools

from hypothesis import given, settings, strategies as st

from sparkrelay.assignment import (
    ApplicationState,
    AssignedTask,
    AssignmentConfigs,
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    KafkaStreamsState,
    TaskInfo,
    task_assignment_utils,
)
from sparkrelay.assignment.placement.rack_awareness import cross_rack
from sparkrelay.types import ProcessId, TaskId, TopicPartition

RACKS = ["a", "b", "c"]


def process(number):
    return ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}")


@st.composite
def placed(draw, strategy):
    clients, tasks = draw(st.integers(2, 3)), draw(st.integers(1, 5))
    replicas = st.sets(st.sampled_from(RACKS), min_size=1, max_size=2)
    infos = [
        TaskInfo.of(TaskId(n % 2, n), inputs=[(at := TopicPartition("in", n))], racks={at: draw(replicas)})
        for n in range(tasks)
    ]
    state = ApplicationState(
        all_tasks=frozenset(infos),
        clients={
            process(n): KafkaStreamsState(process_id=process(n), rack_id=draw(st.sampled_from(RACKS)))
            for n in range(clients)
        },
        assignment_configs=AssignmentConfigs(
            rack_aware_assignment_strategy=strategy,
            traffic_cost=draw(st.integers(0, 10)),
            non_overlap_cost=draw(st.integers(0, 10)),
        ),
    )
    owner = {info.id: process(draw(st.integers(0, clients - 1))) for info in infos}
    return state, owner


def cost(state, before, after):
    configs = state.assignment_configs
    total = 0
    for info in state.all_tasks:
        rack = state.clients[after[info.id]].rack_id
        total += configs.traffic_cost * cross_rack(info, info.input_topic_partitions, rack)
        total += configs.non_overlap_cost * (before[info.id] != after[info.id])
    return total


def optimize(state, owner):
    given_ = {
        name: KafkaStreamsAssignment.of(
            name, [AssignedTask(task, AssignedTask.Type.ACTIVE) for task, has in owner.items() if has == name]
        )
        for name in state.clients
    }
    result = task_assignment_utils.optimize_rack_aware_active_tasks(state, given_, owner)
    for name, entry in given_.items():
        assert len(result[name].tasks) == len(entry.tasks)
    return {task: name for name, entry in result.items() for task in entry.active_tasks}


@given(placed("min_traffic"))
@settings(deadline=None)
def test_min_traffic_finds_the_least_cost(case):
    state, owner = case
    tasks = sorted(owner)
    after = optimize(state, owner)
    assert sorted(after) == tasks
    counts = sorted(owner.values())
    best = min(
        cost(state, owner, dict(zip(tasks, choice, strict=True))) for choice in set(itertools.permutations(counts))
    )
    assert cost(state, owner, after) == best


@given(placed("balance_subtopology"))
@settings(deadline=None)
def test_balance_subtopology_keeps_counts_and_tasks(case):
    state, owner = case
    assert sorted(optimize(state, owner)) == sorted(owner)


def test_standbys_go_to_other_zones():
    infos = [
        TaskInfo.of(TaskId(0, n), inputs=[TopicPartition("in", n)], changelogs=[TopicPartition("cl", n)], stores=["s"])
        for n in range(6)
    ]
    zones = {process(n): zone for n, zone in enumerate("aabbcc")}
    state = ApplicationState(
        all_tasks=frozenset(infos),
        clients={
            name: KafkaStreamsState(
                process_id=name, client_tags={"zone": zone}, task_lags={info.id: 0 for info in infos}
            )
            for name, zone in zones.items()
        },
        assignment_configs=AssignmentConfigs(num_standby_replicas=2, rack_aware_assignment_tags=("zone",)),
    )
    answer = HighAvailabilityTaskAssignor().assign(state)
    for info in infos:
        assert {zones[entry.process_id] for entry in answer.assignment if info.id in entry.tasks} == {"a", "b", "c"}
