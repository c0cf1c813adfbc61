"""Assignors modelled on the systems that KIP-441 discusses, for comparison and as examples.

They use only the public names of ``sparkrelay.assignment``, and, unlike KIP-441, do not wait for state to catch up. See
``docs/assignors.md``.
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
