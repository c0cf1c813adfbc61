"""KIP-441, "Example Scenarios": table by table, as the KIP prints them, and what the high-availability assignor does.

``LeastMovementTaskAssignor`` is held to the tables. ``HighAvailabilityTaskAssignor`` answers as Kafka Streams does,
which departs from them; its tables stand beside the KIP's, each departure named.
"""

from __future__ import annotations

import pytest

from sparkrelay.assignment import AssignmentConfigs, HighAvailabilityTaskAssignor, LeastMovementTaskAssignor
from sparkrelay.testing import SimulatedGroup, task

IN_SYNC = {2: ("0_1 0_4", "0_2 0_3"), 3: ("0_2 0_3", "0_1 0_4")}
LAGGING_FIRST = {2: ("0_1 0_2 0_4", "0_3"), 3: ("0_3", "0_1 0_2 0_4")}


def group(*names):
    return SimulatedGroup(map(task, names), AssignmentConfigs(num_standby_replicas=1))


def warm_ups(group):
    return {process.id.int: " ".join(map(str, sorted(tasks))) for process, tasks in group.answer.warm_ups.items()}


@pytest.fixture
def scaling_out():
    """Two instances, three tasks, one standby each; a third instance joins."""
    three = group("0_1", "0_2", "0_3")
    three.add(1, active=["0_1", "0_3"], standby=["0_2"])
    three.add(2, active=["0_2"], standby=["0_1", "0_3"])
    three.add(3)
    return three


@pytest.fixture
def scaling_in():
    """Three instances, four tasks; the first, which ran T1 and T4, is gone. Standbys are in sync."""
    four = group("0_1", "0_2", "0_3", "0_4")
    four.add(2, active=["0_2"], standby=["0_1", "0_4"])
    four.add(3, active=["0_3"], standby=["0_2"])
    return four


@pytest.fixture(params=[20_000, 80_000], ids=["far behind", "nearer"])
def scaling_in_lagging(request):
    """The same, but standbys are behind by more than the acceptable lag."""
    reached = request.param
    four = group("0_1", "0_2", "0_3", "0_4")
    four.add(2, active=["0_2"], standby=["0_1", "0_4"], offsets={"0_1": reached, "0_4": reached})
    four.add(3, active=["0_3"], standby=["0_2"], offsets={"0_2": reached})
    return four


class TestScalingOut:
    def test_the_tables_of_the_kip(self, scaling_out):
        assignor = LeastMovementTaskAssignor()
        first = scaling_out.rebalance(assignor)
        assert scaling_out.table() == {
            1: ("0_1 0_3", "0_2"),
            2: ("0_2", "0_1 0_3"),
            3: ("", "0_1 0_3"),  # warming up
        }
        assert warm_ups(scaling_out) == {3: "0_1 0_3"}
        assert first.probing_rebalance
        scaling_out.catch_up()
        second = scaling_out.rebalance(assignor)
        assert scaling_out.table() == {1: ("0_1", "0_2"), 2: ("0_2", "0_3"), 3: ("0_3", "0_1")}
        assert not second.probing_rebalance
        assert warm_ups(scaling_out) == {}

    def test_high_availability_picks_other_standbys(self, scaling_out):
        assignor = HighAvailabilityTaskAssignor()
        assert scaling_out.rebalance(assignor).probing_rebalance
        assert scaling_out.table() == {
            1: ("0_1 0_3", "0_2"),
            2: ("0_2", "0_1 0_3"),
            3: ("", "0_2 0_3"),  # the KIP: 0_1 0_3
        }
        scaling_out.catch_up()
        assert not scaling_out.rebalance(assignor).probing_rebalance
        assert scaling_out.table() == {
            1: ("0_1", "0_3"),  # the KIP: 0_2
            2: ("0_2", "0_1"),  # the KIP: 0_3
            3: ("0_3", "0_2"),  # the KIP: 0_1
        }


class TestScalingInWithStandbysInSync:
    def test_the_table_of_the_kip(self, scaling_in):
        answer = scaling_in.rebalance(LeastMovementTaskAssignor())
        assert scaling_in.table() == IN_SYNC
        assert not answer.probing_rebalance

    def test_high_availability_asks_for_a_rebalance_that_the_kip_does_not_need(self, scaling_in):
        answer = scaling_in.rebalance(HighAvailabilityTaskAssignor())
        assert scaling_in.table() == IN_SYNC
        assert answer.probing_rebalance  # its target has other actives: it does not keep them where they are


class TestScalingInWithLaggingStandbys:
    def test_the_tables_of_the_kip(self, scaling_in_lagging):
        assignor = LeastMovementTaskAssignor()
        assert scaling_in_lagging.rebalance(assignor).probing_rebalance
        assert scaling_in_lagging.table() == LAGGING_FIRST
        scaling_in_lagging.processes[2].offsets |= scaling_in_lagging.ends
        scaling_in_lagging.catch_up("0_4")
        assert not scaling_in_lagging.rebalance(assignor).probing_rebalance
        assert scaling_in_lagging.table() == {2: ("0_1 0_2", "0_3 0_4"), 3: ("0_3 0_4", "0_1 0_2")}

    def test_high_availability_wants_another_task_there(self, scaling_in_lagging):
        assignor = HighAvailabilityTaskAssignor()
        assert scaling_in_lagging.rebalance(assignor).probing_rebalance
        assert scaling_in_lagging.table() == LAGGING_FIRST
        scaling_in_lagging.processes[2].offsets |= scaling_in_lagging.ends
        scaling_in_lagging.catch_up("0_4")
        # The KIP is balanced here. The deal wants 0_2 on the third instance, not 0_4, so 0_3 moves away instead.
        assert scaling_in_lagging.rebalance(assignor).probing_rebalance
        assert scaling_in_lagging.table() == {2: ("0_1 0_2 0_3", "0_4"), 3: ("0_4", "0_1 0_2 0_3")}
        scaling_in_lagging.catch_up()
        assert not scaling_in_lagging.rebalance(assignor).probing_rebalance
        assert scaling_in_lagging.table() == {2: ("0_1 0_3", "0_2 0_4"), 3: ("0_2 0_4", "0_1 0_3")}


def test_high_availability_shifts_the_deal_for_a_newcomer_where_one_share_would_do():
    """KIP-441 does not say how much may move; this is the price that both docs pages name."""
    moved = {}
    for assignor in (LeastMovementTaskAssignor(), HighAvailabilityTaskAssignor()):
        ten = SimulatedGroup([task(f"{s}_{p}") for s in range(4) for p in range(10)])
        for number in range(1, 11):
            ten.add(number)
        ten.converge(assignor, rounds=5)
        before = {number: set(process.active) for number, process in ten.processes.items()}
        ten.add(0)
        ten.converge(assignor, rounds=100)
        moved[type(assignor)] = sum(
            len(process.active - before.get(number, set())) for number, process in ten.processes.items()
        )
    assert moved[LeastMovementTaskAssignor] == 3  # 40 tasks on 11 processes: three or four each
    assert moved[HighAvailabilityTaskAssignor] > 20
