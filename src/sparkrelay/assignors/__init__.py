"""Assignors after the systems that KIP-441 looked at before it decided: to compare with, and to copy from.

Each uses nothing but the public names of ``sparkrelay.assignment``, as a user's own would.
None of them waits for state to catch up: that is KIP-441's own idea. See ``docs/assignors.md``.
"""

from sparkrelay.assignors.consumer_sticky import ConsumerStickyTaskAssignor
from sparkrelay.assignors.cruise_control import CruiseControlTaskAssignor
from sparkrelay.assignors.elasticsearch import ElasticsearchTaskAssignor
from sparkrelay.assignors.samza_host_affinity import SamzaHostAffinityTaskAssignor

__all__ = [
    "ConsumerStickyTaskAssignor",
    "CruiseControlTaskAssignor",
    "ElasticsearchTaskAssignor",
    "SamzaHostAffinityTaskAssignor",
]
