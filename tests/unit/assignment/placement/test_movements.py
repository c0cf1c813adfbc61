"""From a target that cannot run yet to one that can: who runs, who warms up, and how many movements that is.

See KIP-441, "Assigning Warm-ups". Targets are given here, so that movements are seen apart from placing.
"""

from __future__ import annotations

import pytest

from sparkrelay.assignment.placement.movements import Lags, Movements
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.protocol import LONG_MAX, UNKNOWN_OFFSET_SUM

TASKS = "0_0 0_1 0_2"


@pytest.fixture
def moved(groups):
    def run(clients, *, target, standbys=None, budget=LONG_MAX, acceptable=0):
        """Return the movements applied to ``target``: tasks by process number."""
        state = groups.state(TASKS, clients)
        placement = Placement(state.clients, [info.id for info in state.all_tasks])
        for held, wanted in ((placement.active, target), (placement.standby, standbys or {})):
            for number, tasks in wanted.items():
                held[placement.processes.index(groups.process(number))] |= {
                    placement.tasks.index(task) for task in groups.ids(tasks)
                }
        lags = Lags(state.clients, placement, range(len(placement.tasks)), acceptable)
        movements = Movements(placement, lags, budget)
        movements.apply()
        return movements

    return run


def table(groups, movements):
    entries = movements.placement.to_assignments()
    return groups.table({entry.process_id: entry for entry in entries})


@pytest.mark.parametrize("lag", [0, 10_000], ids=["all caught up", "nobody caught up, all alike"])
def test_nothing_moves_where_all_are_alike(groups, moved, lag):
    lags = dict.fromkeys(TASKS.split(), lag)
    result = moved(
        [groups.client(n, lags=lags) for n in (1, 2, 3)], target={1: "0_0", 2: "0_1", 3: "0_2"}, acceptable=100
    )
    assert result.scheduled == 0
    assert table(groups, result) == {1: ("0_0", ""), 2: ("0_1", ""), 3: ("0_2", "")}


@pytest.mark.parametrize("near", [0, 50_000], ids=["caught up", "least behind"])
def test_who_is_ahead_runs_and_the_target_warms_up(groups, moved, near):
    clients = [
        groups.client(1, lags={"0_0": near}),
        groups.client(2, lags={"0_2": near}),
        groups.client(3, lags={"0_1": near}),
    ]
    result = moved(clients, target={1: "0_0", 2: "0_1", 3: "0_2"})
    assert result.scheduled == 2
    assert table(groups, result) == {1: ("0_0", ""), 2: ("0_2", "0_1"), 3: ("0_1", "0_2")}


def test_beyond_the_budget_tasks_still_move_to_who_can_run_them(groups, moved):
    clients = [
        groups.client(1, lags={"0_0": 0}),
        groups.client(2, lags={"0_2": 0}),
        groups.client(3, lags={"0_1": 0}),
    ]
    result = moved(clients, target={1: "0_0", 2: "0_1", 3: "0_2"}, budget=1)
    assert result.scheduled == 2
    assert table(groups, result) == {1: ("0_0", ""), 2: ("0_2", "0_1"), 3: ("0_1", "")}


def test_active_and_caught_up_standby_swap_without_any_budget(groups, moved):
    clients = [groups.client(1, lags={"0_0": 50}), groups.client(2, standby="0_0"), groups.client(3)]
    result = moved(clients, target={1: "0_0"}, standbys={2: "0_0"}, budget=0)
    assert result.scheduled == 1
    assert table(groups, result) == {1: ("", "0_0"), 2: ("0_0", ""), 3: ("", "")}
    assert result.warm_ups == {}


def test_a_standby_waits_where_its_copy_is_and_its_target_warms_up(groups, moved):
    clients = [groups.client(1, active="0_0"), groups.client(2), groups.client(3, standby="0_0")]
    enough, none = (moved(clients, target={1: "0_0"}, standbys={2: "0_0"}, budget=budget) for budget in (1, 0))
    assert table(groups, enough) == {1: ("0_0", ""), 2: ("", "0_0"), 3: ("", "0_0")}
    assert table(groups, none) == {1: ("0_0", ""), 2: ("", ""), 3: ("", "0_0")}
    assert (enough.scheduled, none.scheduled) == (1, 1)


def test_a_copy_of_unknown_offset_runs_before_one_that_is_behind(groups, moved):
    clients = [groups.client(1, lags={"0_0": 50}), groups.client(2, lags={"0_0": UNKNOWN_OFFSET_SUM})]
    result = moved(clients, target={1: "0_0"}, budget=0)
    assert table(groups, result) == {1: ("", ""), 2: ("0_0", "")}
    assert result.scheduled == 1
