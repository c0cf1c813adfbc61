"""The internal sticky assignor of Kafka Streams, which recorded answers are compared with."""

from __future__ import annotations

from sparkrelay.assignment.sticky import _Plan
from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor


class LegacyStickyTaskAssignor(TaskAssignor):
    """Leaves tasks where they are, by other rules for ties than the public one."""

    def assign(self, application_state):
        plan = _Plan(application_state, preserve=False, legacy=True)
        plan.place_actives()
        plan.optimize_actives()
        plan.place_standbys()
        plan.optimize_standbys()
        return TaskAssignment(plan.to_assignments())
