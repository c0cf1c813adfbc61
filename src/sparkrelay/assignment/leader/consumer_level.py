"""From tasks of processes to what each consumer is sent. See KIP-924, "Consumer Assignments"; KIP-429 (cooperative).

Cooperative rule: a partition is never taken from one consumer and given to another in the same rebalance. A task whose
partition somebody else still owns is *withheld*: its new consumer gets it in the next rebalance, which it is asked to
ask for at once.
"""

from __future__ import annotations

from dataclasses import dataclass
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

__all__ = ["ConsumerLevel", "HostMaps", "host_maps"]

#: ``next_rebalance_ms`` that asks for a rebalance at once.
_AT_ONCE = 0

HostMaps = tuple["dict[HostInfo, list[TopicPartition]]", "dict[HostInfo, list[TopicPartition]]"]


def host_maps(state: ApplicationState, assignments: Mapping[ProcessId, KafkaStreamsAssignment]) -> HostMaps:
    """Return, for each queryable process, the input partitions of its active and of its standby tasks."""
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


@dataclass(slots=True, kw_only=True)
class ConsumerLevel:
    """Spreads each process's tasks over its consumers and writes their assignments.

    Attributes:
        members: The members that take part.
        state: What the assignor was given.
        assignments: What it answered, one entry for each process.
        deadlines_ms: Follow-up rebalances by process, in ms of wall-clock time.
        version: Wire version to answer in.
        commonly_supported_version: Sent to the members.
        owned_by_others: Partitions of members that take no part but have yet to let go of them.
        keep: Leave with each consumer what it has, however uneven that is.
    """

    members: Sequence[GroupMember]
    state: ApplicationState
    assignments: Mapping[ProcessId, KafkaStreamsAssignment]
    deadlines_ms: Mapping[ProcessId, int]
    version: int
    commonly_supported_version: int
    owned_by_others: frozenset[TopicPartition] = frozenset()
    keep: bool = False

    def assign(self) -> dict[str, ConsumerAssignment]:
        """Return what every consumer is sent."""
        infos = {info.id: info for info in self.state.all_tasks}
        owned = self.owned_by_others.union(*(member.owned_partitions for member in self.members))
        hosts = host_maps(self.state, self.assignments)
        result: dict[str, ConsumerAssignment] = {}
        for process, consumers in members_by_process(self.members).items():
            result |= self._assign_process(process, consumers, infos, owned, hosts)
        return result

    def _assign_process(
        self,
        process: ProcessId,
        consumers: Sequence[GroupMember],
        infos: Mapping[TaskId, TaskInfo],
        owned: frozenset[TopicPartition],
        hosts: HostMaps,
    ) -> dict[str, ConsumerAssignment]:
        client = self.state.clients[process]
        given = self.assignments[process]
        previous = {member.consumer_id: _previous(client, member.consumer_id) for member in consumers}
        owner_here = {partition: member.consumer_id for member in consumers for partition in member.owned_partitions}
        holders: dict[TaskId, str] = {}
        if self.keep:
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

        deadline = self.deadlines_ms.get(process, NO_REBALANCE_SCHEDULED)
        result: dict[str, ConsumerAssignment] = {}
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
            # Where the process had a copy of a withheld task, it keeps it warm and open until the task may run here.
            kept_warm = [task for task in withheld if infos[task].is_logged and task in client.previous_standby_tasks]
            next_rebalance = deadline
            if withheld:
                # The rebalance that this consumer asks for at once serves the process's deadline too.
                next_rebalance, deadline = _AT_ONCE, NO_REBALANCE_SCHEDULED
            elif deadline != NO_REBALANCE_SCHEDULED:
                deadline = NO_REBALANCE_SCHEDULED
            result[consumer] = ConsumerAssignment(
                partitions=tuple(partition for partition, _task in entries),
                info=AssignmentInfo(
                    version=self.version,
                    commonly_supported_version=self.commonly_supported_version,
                    active_tasks=[task for _partition, task in entries],
                    standby_tasks=_with_partitions((*standbys[consumer], *kept_warm), infos),
                    partitions_by_host=hosts[0],
                    standby_partitions_by_host=hosts[1],
                    next_rebalance_ms=next_rebalance,
                ),
            )
        return result


def _previous(client: KafkaStreamsState, consumer: str) -> tuple[TaskId, ...]:
    """Return the tasks with state that a consumer had, least lag first; without lags, running ones first."""
    if client.task_lags is not None:
        return client.prev_tasks_by_lag(consumer)
    held = client.previous_tasks_by_consumer.get(consumer, frozenset())
    return tuple(sorted(held, key=lambda task: (task not in client.previous_active_tasks, task)))


def _with_partitions(tasks: Iterable[TaskId], infos: Mapping[TaskId, TaskInfo]) -> dict[TaskId, list[TopicPartition]]:
    return {task: sorted(infos[task].input_topic_partitions) for task in sorted(tasks)}
