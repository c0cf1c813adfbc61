"""The default assignor: balanced in the end, available on the way. See KIP-441.

For the same input it answers what Kafka Streams' ``HighAvailabilityTaskAssignor`` answers: both are a pure function of
process ids, threads, tasks and lags. It is written on the public API alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.placement.movements import Lags, Movements
from sparkrelay.assignment.placement.rack_awareness import Costs, RackAwareness, racks_known
from sparkrelay.assignment.placement.tag_standbys import place_standbys
from sparkrelay.assignment.placement.working_copy import Placement
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor
from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor
from sparkrelay.errors import TaskAssignmentException

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.assignment_configs import AssignmentConfigs
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId

__all__ = ["HighAvailabilityTaskAssignor"]


class HighAvailabilityTaskAssignor(TaskAssignor):
    """Runs a task where its state is, and warms it up where balance wants it.

    1. Logged tasks are dealt round robin over the sorted processes, then evened out per thread: the *target*.
    2. Standbys go to the least loaded processes.
    3. Where the target is too far behind, a caught-up process runs the task for now, and the target warms up.
    4. Tasks without a changelog fill up processes with few active tasks.

    As in Java, who ran a task before does not shape the target; it only decides who can run it now.
    """

    settings = frozenset()

    def assign(self, application_state: ApplicationState) -> TaskAssignment:
        """Place every task; ask for a probing rebalance while movements are outstanding."""
        try:
            states = application_state.kafka_streams_states(True)
        except TaskAssignmentException:
            # Without lags nobody knows who is caught up: leave everything where it is, and look again later.
            return FallbackPriorTaskAssignor().assign(application_state)
        if not states:
            return TaskAssignment([])
        configs = application_state.assignment_configs
        infos = {info.id: info for info in application_state.all_tasks}
        placement = Placement(states, infos)
        logged = [task for task, name in enumerate(placement.tasks) if infos[name].is_logged]
        stateless = [task for task, name in enumerate(placement.tasks) if not infos[name].is_logged]
        lags = Lags(states, placement, logged, configs.acceptable_recovery_lag)

        racks = self._rack_awareness(application_state, states, placement, infos)
        costs = _costs(configs)

        placement.deal(logged)
        placement.balance(placement.active)
        if racks is not None:
            racks.optimize_actives(logged, **costs)
        if configs.num_standby_replicas > 0:
            tagged = place_standbys(placement, states, logged, configs)
            placement.balance(placement.standby, tagged.may_balance if tagged else None)
            if racks is not None:
                racks.optimize_standbys(may_move=tagged.may_exchange if tagged else None, **costs)

        movements = Movements(placement, lags, configs.max_warmup_replicas)
        movements.apply()

        placement.place_stateless(stateless)
        if racks is not None:
            racks.optimize_actives(stateless, traffic_cost=1, non_overlap_cost=0)

        return TaskAssignment(
            placement.to_assignments(),
            probing_rebalance=movements.scheduled > 0,
            warm_ups={
                placement.processes[client]: frozenset(placement.tasks[task] for task in tasks)
                for client, tasks in movements.warm_ups.items()
            },
        )

    @staticmethod
    def _rack_awareness(
        application_state: ApplicationState,
        states: Mapping[ProcessId, KafkaStreamsState],
        placement: Placement,
        infos: Mapping[TaskId, TaskInfo],
    ) -> RackAwareness | None:
        """Return what optimises for racks; None if it is not asked for, or a rack is not known."""
        configs = application_state.assignment_configs
        if configs.rack_aware_assignment_strategy == "none":
            return None
        if not racks_known(states, infos.values(), changelogs=configs.num_standby_replicas > 0):
            return None
        return RackAwareness(placement, states, infos, configs.rack_aware_assignment_strategy)


def _costs(configs: AssignmentConfigs) -> Costs:
    return {
        "traffic_cost": 10 if configs.traffic_cost is None else configs.traffic_cost,
        "non_overlap_cost": 1 if configs.non_overlap_cost is None else configs.non_overlap_cost,
    }
