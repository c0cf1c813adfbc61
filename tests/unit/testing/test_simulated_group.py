"""A simulated group shows an assignor what a leader would show it."""

from __future__ import annotations

import pytest

from sparkrelay.assignment import HighAvailabilityTaskAssignor, TaskAssignment, TaskAssignor
from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.testing.simulated_group import SimulatedGroup, task


def test_lags_are_there_once_they_are_asked_for():
    group = SimulatedGroup([task("0_0"), task("0_1")], end=100)
    group.add(1, active=["0_0"], standby=["0_1"], offsets={"0_1": 40})
    state = group.state()
    [client] = state.clients.values()
    assert client.task_lags is None
    [client] = state.kafka_streams_states(True).values()
    assert client.task_lags == {task("0_0").id: LATEST_OFFSET, task("0_1").id: 60}


def test_a_group_converges():
    group = SimulatedGroup([task(f"0_{number}") for number in range(4)])
    group.add(1, active=["0_0", "0_1", "0_2", "0_3"])
    group.add(2)
    assert group.converge(HighAvailabilityTaskAssignor(), rounds=5) == 2
    assert [len(active.split()) for active, _standby in group.table().values()] == [2, 2]


def test_what_a_leader_would_refuse_is_refused():
    """A user's test must not pass an answer that fails in production: here a warm-up that is no set of tasks."""

    class Careless(TaskAssignor):
        def assign(self, application_state):
            answer = HighAvailabilityTaskAssignor().assign(application_state)
            return TaskAssignment(answer.assignment, warm_ups={next(iter(application_state.clients)): ["0_0"]})

    group = SimulatedGroup([task("0_0")])
    group.add(1)
    with pytest.raises(TypeError, match="warm_ups"):
        group.rebalance(Careless())
