"""The assignments of consumers, from those of processes. See KIP-924, "Consumer Assignments"; KIP-429 (cooperative).

Cooperative rule: a partition never moves from one consumer to another within one rebalance. A task with a partition
that another consumer still owns is *withheld*: its new consumer gets it in the next rebalance, which it requests now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.group_member import ConsumerAssignment
from sparkrelay.assignment.leader.client_states import members_by_process
from sparkrelay.assignment.leader.threads import ThreadLoads
from sparkrelay.protocol import NO_REBALANCE_SCHEDULED, AssignmentInfo, HostInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.group_member import GroupMember
    from sparkrelay.assignment.kafka_streams_assignment import KafkaStreamsAssignment
    from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId, TopicPartition

#: ``next_rebalance_ms`` for a rebalance at once.
_AT_ONCE = 0


def host_maps(
    state: ApplicationState, assignments: Mapping[ProcessId, KafkaStreamsAssignment]
) -> tuple[dict[HostInfo, list[TopicPartition]], dict[HostInfo, list[TopicPartition]]]:
    """Return the input partitions of the active and of the standby tasks of each queryable process."""
    infos = {info.id: info for info in state.all_tasks}
    active: dict[HostInfo, list[TopicPartition]] = {}
    standby: dict[HostInfo, list[TopicPartition]] = {}
    for process, client in state.clients.items():
        if client.host_info is None:
            continue
        for hosts, tasks in (
            (active, assignments[process].active_tasks),
            (standby, assignments[process].standby_tasks),
        ):
            partitions = {partition for task in tasks for partition in infos[task].input_topic_partitions}
            hosts[client.host_info] = sorted({*hosts.get(client.host_info, ()), *partitions})
    return active, standby


def assign_consumers(
    *,
    members: Sequence[GroupMember],
    state: ApplicationState,
    assignments: Mapping[ProcessId, KafkaStreamsAssignment],
    deadlines_ms: Mapping[ProcessId, int],
    version: int,
    commonly_supported_version: int,
    owned_by_others: frozenset[TopicPartition] = frozenset(),
    keep: bool = False,
) -> dict[str, ConsumerAssignment]:
    """Spread each process's tasks over its consumers; return the assignment of every consumer.

    ``assignments`` has one entry for each process. ``deadlines_ms`` are follow-up rebalances by process, in ms of
    wall-clock time. ``owned_by_others`` are partitions that members without part in the assignment still own. ``keep``
    leaves its tasks with each consumer, however uneven that is.
    """
    infos = {info.id: info for info in state.all_tasks}
    owned = owned_by_others.union(*(member.owned_partitions for member in members))
    active_hosts, standby_hosts = host_maps(state, assignments)
    result: dict[str, ConsumerAssignment] = {}
    for process, consumers in members_by_process(members).items():
        client, given = state.clients[process], assignments[process]
        previous = {member.consumer_id: _previous(client, member.consumer_id) for member in consumers}
        owner_here = {partition: member.consumer_id for member in consumers for partition in member.owned_partitions}
        holders: dict[TaskId, str] = {}
        if keep:
            holders = {task: consumer for consumer, tasks in previous.items() for task in tasks}
            holders |= {
                task: owner_here[partition]
                for task in given.active_tasks
                for partition in infos[task].input_topic_partitions
                if partition in owner_here
            }
        loads = ThreadLoads(previous)
        actives = loads.spread((task for task in given.active_tasks if infos[task].is_logged), previous, holders)
        standbys = loads.spread(given.standby_tasks, previous, holders)
        stateless = loads.spread((task for task in given.active_tasks if not infos[task].is_logged), {}, holders)

        deadline = deadlines_ms.get(process, NO_REBALANCE_SCHEDULED)
        for consumer in loads.consumers:
            entries: list[tuple[TopicPartition, TaskId]] = []
            withheld: list[TaskId] = []
            for task in (*actives[consumer], *stateless[consumer]):
                partitions = infos[task].input_topic_partitions
                if any(owner_here.get(partition) != consumer and partition in owned for partition in partitions):
                    withheld.append(task)
                else:
                    entries.extend((partition, task) for partition in partitions)
            entries.sort()
            # A copy of a withheld task stays warm and open until the task may run here.
            kept_warm = [task for task in withheld if infos[task].is_logged and task in client.previous_standby_tasks]
            result[consumer] = ConsumerAssignment(
                partitions=tuple(partition for partition, _task in entries),
                info=AssignmentInfo(
                    version=version,
                    commonly_supported_version=commonly_supported_version,
                    active_tasks=[task for _partition, task in entries],
                    standby_tasks=_with_partitions((*standbys[consumer], *kept_warm), infos),
                    partitions_by_host=active_hosts,
                    standby_partitions_by_host=standby_hosts,
                    next_rebalance_ms=_AT_ONCE if withheld else deadline,
                ),
            )
            # One consumer's request, which may come sooner, serves the process's deadline.
            deadline = NO_REBALANCE_SCHEDULED
    return result


def _previous(client: KafkaStreamsState, consumer: str) -> tuple[TaskId, ...]:
    """Return the stateful tasks that a consumer had, least lag first; without lags, running ones first."""
    if client.task_lags is not None:
        return client.prev_tasks_by_lag(consumer)
    held = client.previous_tasks_by_consumer.get(consumer, frozenset())
    return tuple(sorted(held, key=lambda task: (task not in client.previous_active_tasks, task)))


def _with_partitions(tasks: Iterable[TaskId], infos: Mapping[TaskId, TaskInfo]) -> dict[TaskId, list[TopicPartition]]:
    return {task: sorted(infos[task].input_topic_partitions) for task in sorted(tasks)}
