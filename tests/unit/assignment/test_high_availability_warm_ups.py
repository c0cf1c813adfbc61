"""KIP-441's way to the target: who is ahead runs the task, the target warms up, within ``max.warmup.replicas``."""

from __future__ import annotations

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor
from sparkrelay.protocol import LONG_MAX

NINE = "0_0 0_1 0_2 1_0 1_1 1_2 2_0 2_1 2_2"


@pytest.fixture
def assign():
    return HighAvailabilityTaskAssignor().assign


def warm_ups(groups, answer):
    return {process.id.int: groups.names(tasks) for process, tasks in answer.warm_ups.items()}


def test_owner_and_standby_keep_everything_while_a_newcomer_warms_up(groups, assign, strategy):
    clients = [groups.client(1, active=NINE), groups.client(2, standby=NINE), groups.client(3)]
    state = groups.state(NINE, clients, strategy=strategy, num_standby_replicas=1, max_warmup_replicas=2)
    answer = assign(state)
    groups.check(state, answer, extra=2)
    active, standby = groups.active(answer), groups.standby(answer)
    assert not active[3]
    assert set(groups.ids(active[1] + " " + active[2])) == groups.ids(NINE)
    # Owner and standby may swap roles, which costs nothing; what they hold between them does not move.
    assert groups.ids(active[1]) | groups.ids(standby[1]) == groups.ids(NINE)
    assert groups.ids(active[2]) | groups.ids(standby[2]) == groups.ids(NINE)
    assert len(standby[3].split()) == 2
    assert warm_ups(groups, answer) == {3: standby[3]}
    assert answer.probing_rebalance


def test_threads_that_could_carry_everything_do_not_keep_the_newcomers_idle(groups, assign, strategy):
    tasks = "0_0 0_1 1_0 1_1"
    clients = [
        groups.client(1, active=tasks, threads=5),
        groups.client(2, threads=5),
        groups.client(3, threads=5),
    ]
    answer = assign(groups.state(tasks, clients, strategy=strategy))
    assert groups.active(answer) == {1: tasks, 2: "", 3: ""}
    assert [len(groups.standby(answer)[n].split()) for n in (1, 2, 3)] == [0, 1, 1]
    assert answer.probing_rebalance


def test_once_the_newcomers_are_warm_they_run_their_share(groups, assign, strategy):
    tasks = "0_0 0_1 1_0 1_1"
    owner = groups.client(1, active=tasks, threads=5)
    clients = [owner, groups.client(2, threads=5), groups.client(3, threads=5)]
    first = assign(groups.state(tasks, clients, strategy=strategy))
    copies = groups.standby(first)
    clients = [owner, *(groups.client(n, standby=copies[n], threads=5) for n in (2, 3))]
    second = assign(groups.state(tasks, clients, strategy=strategy))
    assert groups.active(second)[2] == copies[2]
    assert groups.active(second)[3] == copies[3]
    assert groups.actives(second) == [2, 1, 1]
    assert not second.probing_rebalance


def test_the_caught_up_process_runs_the_task_and_the_target_warms_up(groups, assign, strategy):
    clients = [groups.client(1), groups.client(2, standby="0_0")]
    answer = assign(groups.state("0_0", clients, strategy=strategy, acceptable_recovery_lag=0))
    assert groups.table(answer) == {1: ("", "0_0"), 2: ("0_0", "")}
    assert warm_ups(groups, answer) == {1: "0_0"}
    assert answer.probing_rebalance


def test_where_nobody_is_caught_up_the_least_behind_runs_it(groups, assign, strategy):
    lags = {1: LONG_MAX, 2: 1_000, 3: 500}
    clients = [groups.client(n, lags={"0_0": lag}) for n, lag in lags.items()]
    state = groups.state(
        "0_0", clients, strategy=strategy, acceptable_recovery_lag=100, num_standby_replicas=1, max_warmup_replicas=2
    )
    answer = assign(state)
    assert groups.table(answer) == {1: ("", "0_0"), 2: ("", "0_0"), 3: ("0_0", "")}
    assert warm_ups(groups, answer) == {1: "0_0"}
    assert answer.probing_rebalance


def test_where_all_are_equally_behind_nothing_is_waited_for(groups, assign, strategy):
    clients = [groups.client(1), groups.client(2)]
    state = groups.state("0_0 0_1", clients, strategy=strategy, num_standby_replicas=1)
    answer = assign(state)
    groups.check(state, answer)
    assert groups.actives(answer) == [1, 1]
    assert not answer.probing_rebalance


def test_warm_ups_need_no_configured_standbys(groups, assign, strategy):
    clients = [groups.client(1, active="0_0 0_1"), groups.client(2)]
    answer = assign(groups.state("0_0 0_1", clients, strategy=strategy, num_standby_replicas=0, max_warmup_replicas=1))
    assert groups.actives(answer) == [2, 0]
    assert [len(groups.standby(answer)[n].split()) for n in (1, 2)] == [0, 1]
    assert answer.probing_rebalance


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_no_more_warm_ups_than_allowed_beside_the_standbys(groups, assign, strategy, standbys, limit):
    clients = [groups.client(1, active=NINE), groups.client(2, standby=NINE), groups.client(3), groups.client(4)]
    state = groups.state(NINE, clients, strategy=strategy, num_standby_replicas=standbys, max_warmup_replicas=limit)
    answer = assign(state)
    groups.check(state, answer, extra=limit)
    copies = sum(len(tasks.split()) for tasks in groups.standby(answer).values())
    assert copies == 9 * standbys + limit
    assert sum(len(tasks.split()) for tasks in warm_ups(groups, answer).values()) == limit
    assert answer.probing_rebalance


def test_a_standby_that_is_not_ready_is_not_also_a_warm_up(groups, assign, strategy):
    # The second process is where the task is wanted and where its standby is: one copy there serves both.
    clients = [groups.client(1, active="0_0 0_1", lags={}), groups.client(2, lags={"0_0": 50_000, "0_1": 50_000})]
    state = groups.state(
        "0_0 0_1", clients, strategy=strategy, num_standby_replicas=1, max_warmup_replicas=2, acceptable_recovery_lag=9
    )
    answer = assign(state)
    groups.check(state, answer)
    assert groups.table(answer) == {1: ("0_0 0_1", ""), 2: ("", "0_0 0_1")}
    assert answer.probing_rebalance


def test_probing_follows_the_movements_and_not_the_standbys(groups, assign, strategy):
    caught_up = [groups.client(1, active="0_0", standby="0_1"), groups.client(2, active="0_1", standby="0_0")]
    assert not assign(groups.state("0_0 0_1", caught_up, strategy=strategy, num_standby_replicas=1)).probing_rebalance
    behind = [groups.client(1, active="0_0 0_1"), groups.client(2)]
    answer = assign(groups.state("0_0 0_1", behind, strategy=strategy, num_standby_replicas=0))
    assert answer.probing_rebalance
    assert answer.warm_ups
