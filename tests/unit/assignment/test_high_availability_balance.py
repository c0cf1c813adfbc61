"""KIP-441's target: logged tasks even over processes and threads, standbys beside them, whatever the racks."""

from __future__ import annotations

import random

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.protocol import LONG_MAX

NINE = "0_0 0_1 0_2 1_0 1_1 1_2 2_0 2_1 2_2"
EIGHT = "0_0 0_1 0_2 0_3 1_0 1_1 1_2 1_3"


@pytest.fixture
def assign():
    return HighAvailabilityTaskAssignor().assign


@pytest.mark.parametrize(
    ("tasks", "threads", "counts"),
    [
        pytest.param(NINE, [1, 1, 1], [3, 3, 3], id="clients divide tasks"),
        pytest.param(NINE, [3, 3, 3], [3, 3, 3], id="threads divide tasks"),
        pytest.param(EIGHT, [2, 2], [4, 4], id="threads divide tasks, two clients"),
        pytest.param(NINE, [1, 1], [5, 4], id="a remainder"),
        pytest.param(NINE, [1, 2, 3], [2, 3, 4], id="in proportion to threads"),
        pytest.param("0_0 0_1 0_2 1_0", [3, 1], [3, 1], id="threads before clients"),
        pytest.param("0_0 1_0", [1, 1, 1, 1], [1, 1, 0, 0], id="more clients than tasks"),
        pytest.param(NINE, [9, 9, 9], [3, 3, 3], id="as many threads as tasks on each client"),
        pytest.param(NINE[:11], [100, 100, 100], [1, 1, 1], id="a hundred threads each"),
    ],
)
def test_logged_tasks_are_even_over_clients_and_threads(groups, assign, strategy, tasks, threads, counts):
    clients = [groups.client(number, threads=count) for number, count in enumerate(threads, 1)]
    state = groups.state(tasks, clients, strategy=strategy)
    answer = assign(state)
    groups.check(state, answer)
    assert groups.actives(answer) == counts
    assert not answer.probing_rebalance


def test_where_the_tasks_were_does_not_shape_the_target(groups, assign, strategy):
    # With every copy caught up, the two groups differ only in who ran what.
    everything = "0_0 0_1 0_2 0_3"
    fresh = [groups.client(n, standby=everything) for n in (1, 2)]
    ran = [groups.client(1, active=everything), groups.client(2, standby=everything)]
    answers = [assign(groups.state(everything, clients, strategy=strategy)) for clients in (fresh, ran)]
    assert groups.table(answers[0]) == groups.table(answers[1])
    assert groups.actives(answers[0]) == [2, 2]


def test_a_lag_without_bound_means_the_final_balance_at_once(groups, assign, strategy):
    tasks = " ".join(f"{sub}_{n}" for sub in range(3) for n in range(4))
    clients = [groups.client(1, active=tasks), groups.client(2)]
    state = groups.state(tasks, clients, strategy=strategy, acceptable_recovery_lag=LONG_MAX)
    answer = assign(state)
    assert groups.actives(answer) == [6, 6]
    assert groups.standby(answer) == {1: "", 2: ""}
    assert not answer.probing_rebalance


def test_a_task_that_nobody_ran_is_placed(groups, assign, strategy):
    clients = [groups.client(1, active="0_0", standby="0_1"), groups.client(2, active="1_0", standby="0_1")]
    state = groups.state("0_0 0_1 1_0", clients, strategy=strategy)
    answer = assign(state)
    groups.check(state, answer, extra=2)


def test_a_missing_standby_is_placed(groups, assign, strategy):
    clients = [groups.client(1, active="0_0"), groups.client(2, active="0_1", standby="0_0")]
    state = groups.state("0_0 0_1", clients, strategy=strategy, num_standby_replicas=1)
    answer = assign(state)
    groups.check(state, answer)
    assert groups.table(answer) == {1: ("0_0", "0_1"), 2: ("0_1", "0_0")}


def test_each_logged_task_has_its_standby_and_no_other_has(groups, assign, strategy):
    tasks = groups.tasks("0_0 0_1", "1_0 1_1")
    state = groups.state(tasks, [groups.client(n) for n in (1, 2, 3)], strategy=strategy, num_standby_replicas=1)
    answer = assign(state)
    groups.check(state, answer)
    assert sorted(" ".join(groups.standby(answer).values()).split()) == ["0_0", "0_1"]


def test_one_process_alone_has_no_standbys(groups, assign, strategy):
    state = groups.state("0_0 0_1", [groups.client(1)], strategy=strategy, num_standby_replicas=1)
    answer = assign(state)
    assert groups.table(answer) == {1: ("0_0 0_1", "")}
    assert not answer.probing_rebalance


def test_a_balanced_group_stays_as_it_is(groups, assign, strategy):
    fresh = groups.state(
        "0_0 0_1 1_0 1_1", [groups.client(n) for n in (1, 2)], strategy=strategy, num_standby_replicas=1
    )
    first = assign(fresh)
    clients = [
        groups.client(number, active=active, standby=standby)
        for number, (active, standby) in groups.table(first).items()
    ]
    second = assign(groups.state("0_0 0_1 1_0 1_1", clients, strategy=strategy, num_standby_replicas=1))
    assert second == first
    assert not second.probing_rebalance


@pytest.mark.parametrize(
    ("tasks", "threads", "counts"),
    [
        pytest.param(NINE, [9, 9, 9], [3, 3, 3], id="as many threads as tasks"),
        pytest.param(NINE, [1, 1, 1], [3, 3, 3], id="fewer threads than tasks"),
        pytest.param("0_0 0_1 0_2 0_3 0_4 0_5 0_6", [1, 2, 4], [1, 2, 4], id="in proportion to threads"),
    ],
)
@pytest.mark.parametrize("ran_before", [False, True])
def test_tasks_without_changelog_are_even_wherever_they_ran(
    groups, assign, strategy, tasks, threads, counts, ran_before
):
    clients = [
        groups.client(number, threads=count, active=tasks if ran_before and number == 1 else "")
        for number, count in enumerate(threads, 1)
    ]
    state = groups.state(groups.tasks(stateless=tasks), clients, strategy=strategy)
    answer = assign(state)
    groups.check(state, answer)
    assert groups.actives(answer) == counts
    assert not answer.probing_rebalance


def test_tasks_without_changelog_fill_up_who_runs_little(groups, assign, strategy):
    logged, stateless = "0_0 0_1 0_2", "1_0 1_1 1_2 1_3"
    clients = [groups.client(1, active=logged), groups.client(2), groups.client(3)]
    state = groups.state(groups.tasks(logged, stateless), clients, strategy=strategy)
    answer = assign(state)
    groups.check(state, answer, extra=2)
    # The owner keeps what nobody else can run yet; its waiting copies cost the others no stateless task.
    assert groups.active(answer)[1] == logged
    assert groups.actives(answer) == [3, 2, 2]
    assert answer.probing_rebalance


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_large_random_group_is_valid_and_even(groups, assign, strategy, seed):
    chance = random.Random(seed)
    subtopologies, partitions, clients = (5, 36, 50) if strategy == "none" else (3, 10, 12)
    tasks = " ".join(f"{sub}_{n}" for sub in range(subtopologies) for n in range(partitions))
    members = [groups.client(n, threads=chance.randint(1, 3)) for n in chance.sample(range(1, 1000), clients)]
    state = groups.state(tasks, members, strategy=strategy, num_standby_replicas=3)
    answer = assign(state)
    groups.check(state, answer)
    loads = [len(entry.tasks) / state.clients[entry.process_id].num_processing_threads for entry in answer.assignment]
    steps = 1 / min(client.num_processing_threads for client in members)
    assert max(loads) - min(loads) <= 1 + steps, f"seed {seed}: {sorted(loads)}"


def test_without_traffic_cost_racks_change_nothing(groups, assign):
    tasks = " ".join(f"{sub}_{n}" for sub in range(3) for n in range(5))
    members = [groups.client(n, threads=1 + n % 2) for n in range(1, 6)]
    answers = [
        assign(groups.state(tasks, members, strategy=kind, num_standby_replicas=1, traffic_cost=0, non_overlap_cost=10))
        for kind in ("none", "min_traffic")
    ]
    assert answers[0] == answers[1]
