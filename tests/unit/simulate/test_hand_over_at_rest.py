"""Hand-overs that went round in circles: between two rebalances a task has no owner, and the target changed."""

from sparkrelay.assignment import LeastMovementTaskAssignor
from sparkrelay.simulate import Scenario, simulate


def test_least_movement_comes_to_rest_while_many_copies_warm_up():
    scenario = Scenario(
        scenario=7435,
        seed=12492528,
        churn="scale-out",
        churn_size=2,
        clients=4,
        threads=4,
        subtopologies=2,
        stateless_subtopologies=1,
        partitions=14,
        standbys=2,
        max_warmups=8,
        racks=1,
        records_per_task=1_266_098,
        bytes_per_record=200,
        restore_rate=64_882,
        input_rate=231,
        probing_interval_s=60.0,
        rebalance_s=0.5,
        detection_s=45.0,
    )
    outcome = simulate(scenario, LeastMovementTaskAssignor())
    assert outcome.error is None
    assert outcome.converged
    assert outcome.imbalance_end == 0
