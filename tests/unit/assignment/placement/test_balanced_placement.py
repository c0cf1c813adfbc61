"""The solver against brute force: nothing cheaper exists, and "impossible" is said only of the impossible."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from tests.examples import examples

from sparkrelay.assignment.placement.balanced_placement import Bounds, place_at_least_cost
from sparkrelay.assignment.placement.least_movement_target import choose_holders, choose_runners, fair_shares


def cheapest(costs, copies, group_of, bounds):
    """The least cost of all placements within the bounds, all of them tried; None if there is none."""
    tasks, clients = costs.shape
    rows = np.array([np.isin(range(clients), holders) for holders in itertools.combinations(range(clients), copies)])
    choices = np.stack(np.unravel_index(np.arange(len(rows) ** tasks), (len(rows),) * tasks))
    of_client = np.zeros((choices.shape[1], clients), np.int64)
    of_part = np.zeros((len(bounds.part_least), choices.shape[1], clients), np.int64)
    total = np.zeros(choices.shape[1], np.int64)
    for task, choice in enumerate(choices):
        of_client += rows[choice]
        of_part[group_of[task]] += rows[choice]
        total += (rows @ costs[task])[choice]
    allowed = ((of_client >= bounds.client_least) & (of_client <= bounds.client_most)).all(axis=1)
    for least, counts, most in zip(bounds.part_least, of_part, bounds.part_most, strict=True):
        allowed &= ((counts >= least) & (counts <= most)).all(axis=1)
    return int(total[allowed].min()) if allowed.any() else None


def within(held, group_of, bounds):
    of_client = held.sum(axis=0)
    if (of_client < bounds.client_least).any() or (of_client > bounds.client_most).any():
        return False
    parts = np.zeros(bounds.part_least.shape, int)
    np.add.at(parts, group_of, held)
    return bool((parts >= bounds.part_least).all() and (parts <= bounds.part_most).all())


def balanced_bounds(group_of, threads, copies):
    sizes = np.bincount(group_of)
    parts = [fair_shares(threads, copies, int(size)) for size in sizes]
    least, most = fair_shares(threads, copies, len(group_of))
    return Bounds(least, most, np.array([part[0] for part in parts]), np.array([part[1] for part in parts]))


@st.composite
def problems(draw, *, most_ways):
    clients = draw(st.integers(1, 4))
    copies = draw(st.integers(1, clients))
    ways = len(list(itertools.combinations(range(clients), copies)))
    tasks = draw(st.integers(1, max(t for t in range(1, 9) if ways**t <= most_ways)))
    costs = draw(
        st.lists(
            st.lists(st.integers(0, 3) | st.integers(0, 1000), min_size=clients, max_size=clients),
            min_size=tasks,
            max_size=tasks,
        )
    )
    groups = draw(st.lists(st.integers(0, 2), min_size=tasks, max_size=tasks))
    group_of = np.unique(groups, return_inverse=True)[1]
    threads = draw(st.lists(st.integers(1, 3), min_size=clients, max_size=clients))
    return np.array(costs, np.int64), copies, group_of, threads


@settings(max_examples=examples(150), deadline=None)
@given(problem=problems(most_ways=70_000), data=st.data())
def test_nothing_cheaper_exists_within_any_bounds(problem, data):
    costs, copies, group_of, threads = problem
    bounds = balanced_bounds(group_of, threads, copies)
    if data.draw(st.booleans(), label="arbitrary client bounds"):
        count = st.lists(st.integers(0, 6), min_size=len(threads), max_size=len(threads))
        least, width = np.array(data.draw(count)), np.array(data.draw(count))
        bounds = Bounds(least, least + width, bounds.part_least * 0, bounds.part_most + 8)
    held = place_at_least_cost(costs, copies, group_of, bounds)
    best = cheapest(costs, copies, group_of, bounds)
    if best is None:
        assert held is None
    else:
        assert within(held, group_of, bounds)
        assert (held.sum(axis=1) == copies).all()
        assert int(costs[held].sum()) == best


@settings(max_examples=examples(150), deadline=None)
@given(problem=problems(most_ways=70_000))
def test_targets_restore_the_least_of_all_balanced_placements(problem):
    """Up to 4 clients and 8 tasks, any threads: KIP-441's balance can be had, and at no less than our cost."""
    lags, copies, group_of, threads = problem
    nobody = np.zeros(lags.shape, bool)
    holders = choose_holders(lags, nobody, nobody, group_of=group_of, threads=threads, copies=copies)
    bounds = balanced_bounds(group_of, threads, copies)
    assert within(holders, group_of, bounds)
    best = cheapest(lags, copies, group_of, bounds)
    assert int(lags[holders].sum()) == best


@settings(max_examples=examples(150), deadline=None)
@given(problem=problems(most_ways=1 << 62))
def test_runners_are_holders_and_balanced(problem):
    lags, copies, group_of, threads = problem
    nobody = np.zeros(lags.shape, bool)
    holders = choose_holders(lags, nobody, nobody, group_of=group_of, threads=threads, copies=copies)
    runners = choose_runners(holders, lags, nobody, group_of, threads)
    assert (runners.sum(axis=1) == 1).all()
    assert not (runners & ~holders).any()
    bounds = balanced_bounds(group_of, threads, 1)
    counts = runners.sum(axis=0)
    if len(set(threads)) == 1:
        assert within(runners, group_of, bounds)
    assert (counts <= bounds.client_most).all()
    assert (counts >= bounds.client_least).all()


@pytest.mark.parametrize("clients", [1, 2, 3])
@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_all_smallest_problems(clients, tasks):
    """Every matrix of lags 0 and 1, one and two copies."""
    group_of = np.zeros(tasks, np.intp)
    for entries in itertools.product((0, 1), repeat=clients * tasks):
        costs = np.array(entries, np.int64).reshape(tasks, clients)
        for copies in range(1, min(clients, 2) + 1):
            bounds = balanced_bounds(group_of, [1] * clients, copies)
            held = place_at_least_cost(costs, copies, group_of, bounds)
            best = cheapest(costs, copies, group_of, bounds)
            assert int(costs[held].sum()) == best


def test_impossible_bounds_are_said_to_be_impossible():
    none = np.zeros((1, 2), np.int64)
    bounds = Bounds(np.array([0, 0]), np.array([1, 1]), none, none + 9)
    assert place_at_least_cost(np.zeros((3, 2), np.int64), 1, np.zeros(3, np.intp), bounds) is None


def test_shares_are_fair_and_nobody_holds_a_task_twice():
    least, most = fair_shares([1, 1, 2], 1, 6)
    assert (least.tolist(), most.tolist()) == ([1, 1, 3], [2, 2, 3])
    # Ten threads of twelve would take 1 2/3 of each task's two copies; one of each is all it can hold.
    least, most = fair_shares([10, 1, 1], 2, 7)
    assert (least.tolist(), most.tolist()) == ([7, 3, 3], [7, 4, 4])
    least, most = fair_shares([1, 1], 2, 5)
    assert (least.tolist(), most.tolist()) == ([5, 5], [5, 5])


def test_huge_lags_do_not_overflow():
    lags = np.array([[0, (1 << 63) - 1], [(1 << 62), 5]], np.int64)
    nobody = np.zeros(lags.shape, bool)
    holders = choose_holders(lags, nobody, nobody, group_of=np.zeros(2, np.intp), threads=[1, 1], copies=1)
    assert holders.tolist() == [[True, False], [False, True]]
