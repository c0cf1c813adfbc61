"""The default assignor, Kafka Streams' ``HighAvailabilityTaskAssignor``. See KIP-441.

It gives the same answers as Java's: both are pure functions of process ids, threads, tasks and lags.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.placement.movements import Lags, Movements
from sparkrelay.assignment.placement.rack_awareness import STATELESS, Costs, RackAwareness, racks_known
from sparkrelay.assignment.placement.tag_standbys import place_standbys
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor
from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor
from sparkrelay.errors import TaskAssignmentException

if TYPE_CHECKING:
    from sparkrelay.assignment.application_state import ApplicationState


class HighAvailabilityTaskAssignor(TaskAssignor):
    """Runs a task where its state is, while the process that should run it warms up.

    1. The *target*: logged tasks are dealt round robin over the sorted processes, then balanced per thread.
    2. Standbys go to the least loaded processes.
    3. If the target is too far behind, a caught-up process runs the task for now, and the target warms up
       (``placement.movements``).
    4. Tasks without a changelog fill up processes with few active tasks.

    As in Java, previous owners do not shape the target; they only decide who can run a task now.
    """

    settings = frozenset()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task; request a probing rebalance while movements are outstanding."""
        try:
            states = application_state.kafka_streams_states(True)
        except TaskAssignmentException:
            # Without lags nobody counts as caught up: keep the previous assignment, and try again later.
            return FallbackPriorTaskAssignor().assign(application_state)
        if not states:
            return TaskAssignment([])
        configs = application_state.assignment_configs
        infos = {info.id: info for info in application_state.all_tasks}
        placement = Placement(states, infos)
        logged = [task for task, name in enumerate(placement.tasks) if infos[name].is_logged]
        stateless = [task for task, name in enumerate(placement.tasks) if not infos[name].is_logged]
        lags = Lags(states, placement, logged, configs.acceptable_recovery_lag)

        racks = None
        standbys, strategy = configs.num_standby_replicas > 0, configs.rack_aware_assignment_strategy
        if strategy != "none" and racks_known(states, infos.values(), changelogs=standbys):
            racks = RackAwareness(placement, states, infos, strategy)
        costs = Costs(
            10 if configs.traffic_cost is None else configs.traffic_cost,
            1 if configs.non_overlap_cost is None else configs.non_overlap_cost,
        )

        placement.deal(logged)
        placement.balance(placement.active)
        if racks is not None:
            racks.optimize_actives(logged, costs)
        if standbys:
            tagged = place_standbys(placement, states, logged, configs)
            placement.balance(placement.standby, tagged.may_balance if tagged else None)
            if racks is not None:
                racks.optimize_standbys(costs, may_move=tagged.may_exchange if tagged else None)

        movements = Movements(placement, lags, configs.max_warmup_replicas)
        movements.apply()

        placement.place_stateless(stateless)
        if racks is not None:
            racks.optimize_actives(stateless, STATELESS)

        return TaskAssignment(
            placement.to_assignments(),
            probing_rebalance=movements.scheduled > 0,
            warm_ups={
                placement.processes[client]: frozenset(placement.tasks[task] for task in tasks)
                for client, tasks in movements.warm_ups.items()
            },
        )
