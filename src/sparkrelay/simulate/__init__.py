"""Studies of task assignors: thousands of what-if groups, simulated through their rebalances, on Spark.

This package's modules are pure, but for :mod:`sparkrelay.simulate.study`, which runs them on Spark's executors.
"""

from sparkrelay.simulate.outcome import Outcome
from sparkrelay.simulate.scenario import Churn, Scenario, mixed_scenarios
from sparkrelay.simulate.simulation import simulate

__all__ = ["Churn", "Outcome", "Scenario", "mixed_scenarios", "simulate"]
