"""KIP-441's promises on random clusters, and its story table by table.

Equality with the Java assignor is asked in tests/oracle; here stands what users are promised.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, note, settings, strategies as st

from sparkrelay.assignment import (
    ApplicationState,
    AssignmentConfigs,
    AssignmentError,
    HighAvailabilityTaskAssignor,
    KafkaStreamsState,
    TaskInfo,
    validate,
)
from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX
from sparkrelay.types import ProcessId, TaskId, TopicPartition

ASSIGNOR = HighAvailabilityTaskAssignor()
END = 100_000


def process(number):
    return ProcessId.parse(f"00000000-0000-0000-0000-{number:012x}")


def task_info(subtopology, partition, *, logged):
    return TaskInfo.of(
        TaskId(subtopology, partition),
        inputs=[TopicPartition(f"in-{subtopology}", partition)],
        changelogs=[TopicPartition(f"cl-{subtopology}", partition)] if logged else [],
        stores=["store"] if logged else [],
    )


class Cluster:
    """A group that follows its assignments: actives run, standbys catch up by the next rebalance."""

    def __init__(self, tasks, configs):
        self.tasks = tasks
        self.logged = [task.id for task in tasks if task.is_logged]
        self.configs = configs
        self.threads = {}
        self.lags = {}
        self.active = {}
        self.history = []

    def join(self, number, threads):
        name = process(number)
        self.threads[name] = threads
        self.lags.setdefault(name, dict.fromkeys(self.logged, END))
        self.active[name] = frozenset()

    def leave(self, name):
        del self.threads[name], self.active[name]
        # Its state stays on disk: should it come back, it is behind, but not empty.
        self.lags[name] = {task: END // 2 if lag < END else END for task, lag in self.lags[name].items()}

    def state(self):
        return ApplicationState(
            all_tasks=frozenset(self.tasks),
            assignment_configs=self.configs,
            clients={
                name: KafkaStreamsState(
                    process_id=name,
                    num_processing_threads=threads,
                    previous_active_tasks=self.active[name],
                    task_lags=self.lags[name],
                )
                for name, threads in self.threads.items()
            },
        )

    def rebalance(self):
        state = self.state()
        answer = ASSIGNOR.assign(state)
        self.history.append((dict(self.threads), answer))
        check_valid(state, answer)
        for entry in answer.assignment:
            lags = dict.fromkeys(self.logged, END)
            lags |= dict.fromkeys(entry.standby_tasks, 0)
            lags |= {task: LATEST_OFFSET for task in entry.active_tasks if task in lags}
            self.lags[entry.process_id] = lags
            self.active[entry.process_id] = frozenset(entry.active_tasks)
        return answer

    def note_history(self):
        for round_number, (threads, answer) in enumerate(self.history):
            note(f"round {round_number}: threads {dict(zip(map(str, threads), threads.values(), strict=True))}")
            for entry in answer.assignment:
                actives, standbys = (" ".join(map(str, kind)) for kind in (entry.active_tasks, entry.standby_tasks))
                note(f"  {str(entry.process_id)[-4:]}: active [{actives}] standby [{standbys}]")
            note(f"  probing: {answer.probing_rebalance}")


def check_valid(state, answer):
    """Every task runs once; standbys and warm-ups are where they may be and not more than allowed."""
    assert validate(state, answer) is AssignmentError.NONE
    actives = sorted(task for entry in answer.assignment for task in entry.active_tasks)
    assert actives == sorted(task.id for task in state.all_tasks)
    configs = state.assignment_configs
    logged = {task.id for task in state.all_tasks if task.is_logged}
    copies = [task for entry in answer.assignment for task in entry.standby_tasks]
    assert set(copies) <= logged
    wanted = min(configs.num_standby_replicas, len(state.clients) - 1)
    extra = 0
    for task in logged:
        assert copies.count(task) >= wanted
        extra += copies.count(task) - wanted
    assert extra <= configs.max_warmup_replicas
    assert sum(map(len, answer.warm_ups.values())) <= configs.max_warmup_replicas


def check_balanced(cluster, answer):
    """No logged active could move to a process that would still be less loaded with it."""
    counts = {
        entry.process_id: sum(task in cluster.logged for task in entry.active_tasks) for entry in answer.assignment
    }
    for source, threads in cluster.threads.items():
        for destination, others in cluster.threads.items():
            if source != destination:
                assert (counts[source] - 1) / threads < (counts[destination] + 1) / others


@st.composite
def clusters(draw):
    logged = draw(st.integers(0, 3))
    stateless = draw(st.integers(0 if logged else 1, 2))
    partitions = draw(st.integers(1, 8))
    tasks = [
        task_info(subtopology, partition, logged=subtopology < logged)
        for subtopology in range(logged + stateless)
        for partition in range(partitions)
    ]
    configs = AssignmentConfigs(
        acceptable_recovery_lag=draw(st.sampled_from([0, 100, 10_000])),
        max_warmup_replicas=draw(st.integers(1, 5)),
        num_standby_replicas=draw(st.integers(0, 2)),
    )
    cluster = Cluster(tasks, configs)
    for number in draw(st.sets(st.integers(0, 50), min_size=1, max_size=6)):
        cluster.join(number, draw(st.integers(1, 4)))
    return cluster


def run_until_stable(cluster):
    configs = cluster.configs
    moves = len(cluster.logged) * (1 + configs.num_standby_replicas)
    bound = 3 + 2 * math.ceil(moves / configs.max_warmup_replicas)
    for _ in range(bound):
        answer = cluster.rebalance()
        if not answer.probing_rebalance:
            return answer
    pytest.fail(f"still probing after {bound} rebalances")


@given(clusters())
@settings(deadline=None)
def test_a_fresh_group_is_balanced_and_stable_at_once(cluster):
    answer = cluster.rebalance()
    assert not answer.probing_rebalance
    check_balanced(cluster, answer)
    assert cluster.rebalance() == answer


@given(clusters(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_the_group_converges_after_every_perturbation(cluster, seed):
    note(f"seed {seed}")
    chance = random.Random(seed)
    try:
        run_until_stable(cluster)
        for _ in range(3):
            present = sorted(cluster.threads)
            if len(present) > 1 and chance.random() < 0.5:
                cluster.leave(chance.choice(present))
            else:
                number = chance.choice([n for n in range(60) if process(n) not in cluster.threads])
                cluster.join(number, chance.randint(1, 4))
            if chance.random() < 0.3:
                cluster.rebalance()  # the next change comes before the group is stable
        answer = run_until_stable(cluster)
        check_balanced(cluster, answer)
        assert cluster.rebalance() == answer, "a stable group moves nothing"
    finally:
        cluster.note_history()


@given(clusters(), st.integers(0, 2**32))
@settings(deadline=None)
def test_random_lags_give_valid_answers_that_depend_on_no_order(cluster, seed):
    note(f"seed {seed}")
    chance = random.Random(seed)
    for lags in cluster.lags.values():
        for task in lags:
            lags[task] = chance.choice([0, 50, 5_000, 50_000, END, LATEST_OFFSET, -3])
    state = cluster.state()
    answer = ASSIGNOR.assign(state)
    check_valid(state, answer)
    names = list(state.clients)
    chance.shuffle(names)
    shuffled = ApplicationState(
        all_tasks=state.all_tasks,
        clients={name: state.clients[name] for name in names},
        assignment_configs=state.assignment_configs,
    )
    assert ASSIGNOR.assign(shuffled) == answer


def scale_out(*, standbys=0, warm_ups=2):
    tasks = [task_info(0, partition, logged=True) for partition in range(4)]
    configs = AssignmentConfigs(num_standby_replicas=standbys, max_warmup_replicas=warm_ups)
    cluster = Cluster(tasks, configs)
    cluster.join(1, 1)
    cluster.rebalance()
    cluster.join(2, 1)
    return cluster


def table(answer):
    return [
        (" ".join(map(str, entry.active_tasks)), " ".join(map(str, entry.standby_tasks))) for entry in answer.assignment
    ]


def test_a_newcomer_warms_up_before_it_takes_over():
    cluster = scale_out()
    first = cluster.rebalance()
    assert table(first) == [("0_0 0_1 0_2 0_3", ""), ("", "0_1 0_3")]
    assert first.warm_ups == {process(2): {TaskId(0, 1), TaskId(0, 3)}}
    assert first.probing_rebalance
    second = cluster.rebalance()
    assert table(second) == [("0_0 0_2", ""), ("0_1 0_3", "")]
    assert not second.probing_rebalance


def test_warm_ups_are_bounded_but_all_movements_are_wanted():
    cluster = scale_out(warm_ups=1)
    assert [table(cluster.rebalance())[1] for _ in range(3)] == [("", "0_1"), ("0_1", "0_3"), ("0_1 0_3", "")]


def test_a_standby_takes_over_at_once_when_the_owner_dies():
    cluster = scale_out(standbys=1)
    run_until_stable(cluster)
    cluster.leave(process(1))
    answer = cluster.rebalance()
    assert table(answer) == [("0_0 0_1 0_2 0_3", "")]
    assert not answer.probing_rebalance


def test_acceptable_lag_without_bound_moves_at_once():
    tasks = [task_info(0, partition, logged=True) for partition in range(4)]
    cluster = Cluster(tasks, AssignmentConfigs(acceptable_recovery_lag=LONG_MAX))
    cluster.join(1, 1)
    cluster.rebalance()
    cluster.join(2, 1)
    answer = cluster.rebalance()
    assert table(answer) == [("0_0 0_2", ""), ("0_1 0_3", "")]
    assert not answer.probing_rebalance


def test_without_processes_nothing_is_assigned():
    assert ASSIGNOR.assign(Cluster([], AssignmentConfigs()).state()).assignment == ()
