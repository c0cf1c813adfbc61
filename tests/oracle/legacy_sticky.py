"""The internal sticky assignor of Kafka Streams, which recorded answers are compared with."""

from __future__ import annotations

import functools

from sparkrelay.assignment.placement.rack_awareness import Costs, RackAwareness, racks_known
from sparkrelay.assignment.sticky import _Plan
from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor


class _LegacyPlan(_Plan):
    """Optimises for racks by other rules than the public assignor: default costs, `min_traffic` for standbys."""

    def optimize_standbys(self):
        if self._replicas <= 0 or (costs := self._costs) is None:
            return
        placement, racks = self._for_racks()
        racks.optimize_standbys(costs, strategy="min_traffic")
        self._take_over(placement)

    @functools.cached_property
    def _costs(self):
        configs = self._state.assignment_configs
        if configs.rack_aware_assignment_strategy == "none":
            return None
        if not racks_known(self._states, self._state.all_tasks, changelogs=configs.num_standby_replicas > 0):
            return None
        traffic, non_overlap = configs.traffic_cost, configs.non_overlap_cost
        return Costs(1 if traffic is None else traffic, 10 if non_overlap is None else non_overlap)

    def _for_racks(self):
        placement, _public = super()._for_racks()
        infos = {info.id: info for info in self._state.all_tasks}
        strategy = self._state.assignment_configs.rack_aware_assignment_strategy
        return placement, RackAwareness(placement, self._states, infos, strategy)


class LegacyStickyTaskAssignor(TaskAssignor):
    """Leaves tasks where they are, by other rules for ties than the public one."""

    def assign(self, application_state):
        plan = _LegacyPlan(application_state, preserve=False, legacy=True)
        plan.place_actives()
        plan.optimize_actives()
        plan.place_standbys()
        plan.optimize_standbys()
        return TaskAssignment(plan.to_assignments())
