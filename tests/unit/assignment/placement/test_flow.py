"""The flow at least cost: as much as the edges let through, no cheaper way, and the same in whatever order they came.

See KIP-925, "Min-cost flow algorithm".
"""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, note, settings, strategies as st

from sparkrelay.assignment.placement.flow import FlowGraph

SOURCE, SINK = 0, 9


def solve(edges, *, from_zero=True):
    """Solve ``(from, to, capacity, cost[, flow])``; check capacity and that nothing is lost on the way."""
    graph = FlowGraph()
    for tail, head, capacity, cost, *flow in edges:
        graph.add_edge(tail, head, capacity=capacity, cost=cost, flow=flow[0] if flow else 0)
    flows = graph.solve(SOURCE, SINK, from_zero=from_zero)
    assert flows.keys() == {edge[:2] for edge in edges}
    for tail, head, capacity, *_rest in edges:
        assert 0 <= flows[tail, head] <= capacity
    for node in {end for edge in edges for end in edge[:2]} - {SOURCE, SINK}:
        assert into(flows, node) == out_of(flows, node)
    assert out_of(flows, SOURCE) == into(flows, SINK)
    return flows


def into(flows, node):
    return sum(flow for (_tail, head), flow in flows.items() if head == node)


def out_of(flows, node):
    return sum(flow for (tail, _head), flow in flows.items() if tail == node)


def cost_of(edges, flows):
    return sum(flows[edge[:2]] * edge[3] for edge in edges)


@pytest.mark.parametrize(
    ("edges", "most"),
    [
        pytest.param([(SOURCE, SINK, 4, 1)], 4, id="straight"),
        pytest.param([(SOURCE, 1, 7, 1), (SOURCE, 2, 8, 1), (1, SINK, 2, 1), (2, SINK, 3, 1)], 5, id="sink binds"),
        pytest.param([(SOURCE, 1, 2, 1), (SOURCE, 2, 3, 1), (1, SINK, 9, 1), (2, SINK, 9, 1)], 5, id="source binds"),
        pytest.param([(SOURCE, 1, 5, 1), (1, 2, 1, 1), (2, SINK, 5, 1)], 1, id="the middle binds"),
        pytest.param([(SOURCE, 1, 5, 1), (2, SINK, 5, 1)], 0, id="not connected"),
        pytest.param([(SOURCE, 1, 5, 1), (1, 3, 5, 1), (2, SINK, 5, 1), (4, 2, 5, 1)], 0, id="two apart"),
        pytest.param(
            [(SOURCE, 1, 1, 0), (SOURCE, 2, 1, 0), (1, 3, 1, 0), (1, 4, 1, 0), (2, 3, 1, 0), (3, SINK, 1, 0),
             (4, SINK, 1, 0)],
            2,
            id="the first way has to give place",
        ),
    ],
)  # fmt: skip
def test_as_much_flows_as_the_edges_let_through(edges, most):
    assert out_of(solve(edges), SOURCE) == most


def test_the_cheaper_way_is_taken():
    edges = [(SOURCE, 1, 3, 1), (SOURCE, 2, 3, 1), (1, 3, 3, 5), (2, 3, 3, 1), (3, SINK, 3, 0)]
    flows = solve(edges)
    assert (flows[1, 3], flows[2, 3], cost_of(edges, flows)) == (0, 3, 6)


def test_a_given_flow_keeps_its_amount_and_gets_cheaper():
    # Everything goes over the dear edge although there would be room for more in all.
    edges = [(SOURCE, 1, 5, 0, 2), (1, 2, 5, 9, 2), (1, 3, 1, 1, 0), (3, 2, 5, 1, 0), (2, SINK, 5, 0, 2)]
    flows = solve(edges, from_zero=False)
    assert out_of(flows, SOURCE) == 2
    assert (flows[1, 2], flows[1, 3], flows[3, 2]) == (1, 1, 1)


def test_a_flow_that_cannot_get_cheaper_stays():
    edges = [(SOURCE, 1, 2, 0, 2), (1, 2, 2, 3, 2), (1, 3, 2, 3, 0), (3, 2, 2, 0, 0), (2, SINK, 2, 0, 2)]
    assert solve(edges, from_zero=False)[1, 2] == 2


def test_one_that_is_downstream_of_a_saving_is_not_taken_for_part_of_it():
    # 4 is reached from the cycle 1-2-3 that can be cancelled, but is not on it.
    edges = [
        (SOURCE, 1, 1, 0, 1), (1, 2, 1, 10, 1), (1, 3, 1, 1, 0), (3, 2, 1, 1, 0), (2, 4, 1, 7, 1), (4, SINK, 1, 0, 1),
    ]  # fmt: skip
    flows = solve(edges, from_zero=False)
    assert (flows[1, 2], flows[1, 3], flows[3, 2], flows[2, 4], flows[4, SINK]) == (0, 1, 1, 1, 1)


@st.composite
def pairings(draw):
    """Return a square matrix of costs: which of n tasks goes to which of n places."""
    size = draw(st.integers(1, 5))
    return draw(st.lists(st.lists(st.integers(0, 20), min_size=size, max_size=size), min_size=size, max_size=size))


@given(pairings(), st.booleans())
@settings(deadline=None)
def test_no_pairing_is_cheaper(costs, from_zero):
    size = len(costs)
    edges = [(SOURCE, 10 + task, 1, 0, 1) for task in range(size)]
    edges += [
        (10 + task, 20 + place, 1, costs[task][place], int(task == place))
        for task in range(size)
        for place in range(size)
    ]
    edges += [(20 + place, SINK, 1, 0, 1) for place in range(size)]
    # Here the sink's number lies below the others, as node numbers mean nothing but an order.
    flows = solve([edge[:4] for edge in edges] if from_zero else edges, from_zero=from_zero)
    best = min(
        sum(costs[task][place] for task, place in enumerate(order)) for order in itertools.permutations(range(size))
    )
    assert cost_of(edges, flows) == best


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60)
def test_the_order_of_adding_edges_does_not_matter(seed):
    note(f"seed {seed}")
    chance = random.Random(seed)
    nodes = [SOURCE, *range(1, 7), SINK]
    edges = [
        (tail, head, chance.randint(0, 5), chance.randint(0, 9))
        for tail, head in itertools.combinations(nodes, 2)
        if chance.random() < 0.6
    ] or [(SOURCE, SINK, 1, 1)]
    edges += [(SOURCE, 8, 1, 1), (8, SINK, 1, 1)]
    first = solve(edges)
    chance.shuffle(edges)
    again = solve(edges)
    assert first == again
