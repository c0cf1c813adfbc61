"""Processes, with lags, from the members' subscriptions.

Sentinels: -2 a running active, -3 an unknown sum; see :mod:`sparkrelay.protocol.common`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
from sparkrelay.assignment.lags import lag_of
from sparkrelay.errors import StreamsException
from sparkrelay.protocol import LATEST_OFFSET, LONG_MAX, HostInfo, split_tags

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkrelay.assignment.group_member import GroupMember
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId, TopicPartition


def end_offset_sums(
    tasks: Iterable[TaskInfo], end_offsets: Mapping[TopicPartition, int], *, created: Iterable[str] = ()
) -> dict[TaskId, int]:
    """Return, for every logged task, the sum of its changelogs' end offsets.

    The end offset of a source topic that is a changelog is the committed one. ``created`` topics count as empty.

    Raises:
        StreamsException: an end offset is missing.
    """
    empty = frozenset(created)
    sums: dict[TaskId, int] = {}
    for task in tasks:
        changelogs = [p for p in task.changelog_topic_partitions if p.topic not in empty]
        for partition in changelogs:
            if partition not in end_offsets:
                raise StreamsException(
                    f"no end offset was listed for changelog partition {partition} of task {task.id}; "
                    "list the ends of all changelog partitions before assigning"
                )
        if task.is_logged:
            sums[task.id] = min(sum(end_offsets[p] for p in changelogs), LONG_MAX)
    return sums


def members_by_process(members: Iterable[GroupMember]) -> dict[ProcessId, list[GroupMember]]:
    """Return the members of each process, sorted; processes are in order of appearance."""
    groups: dict[ProcessId, list[GroupMember]] = {}
    for member in members:
        groups.setdefault(member.process_id, []).append(member)
    return {process: sorted(group, key=lambda member: member.consumer_id) for process, group in groups.items()}


def client_states(
    members: Iterable[GroupMember], tasks: Iterable[TaskInfo], ends: Mapping[TaskId, int] | None
) -> dict[ProcessId, KafkaStreamsState]:
    """Return the processes of the members, with lags if the end offset sums of the logged tasks are known."""
    task_of = {partition: task.id for task in tasks for partition in task.input_topic_partitions}
    return {
        process: _client_state(process, consumers, task_of, None if ends is None else _lags(consumers, ends))
        for process, consumers in members_by_process(members).items()
    }


def lags_by_process(members: Iterable[GroupMember], ends: Mapping[TaskId, int]) -> dict[ProcessId, dict[TaskId, int]]:
    """Return the lags of each process, given the end offset sums of the logged tasks."""
    return {process: _lags(consumers, ends) for process, consumers in members_by_process(members).items()}


def _lags(consumers: Iterable[GroupMember], ends: Mapping[TaskId, int]) -> dict[TaskId, int]:
    reported = _reported(consumers)
    return {task: lag_of(reported.get(task), end) for task, end in ends.items()}


def _reported(consumers: Iterable[GroupMember]) -> dict[TaskId, int]:
    reported: dict[TaskId, int] = {}
    for consumer in consumers:
        reported |= consumer.subscription.task_offset_sums
    return reported


def _client_state(
    process: ProcessId,
    consumers: Sequence[GroupMember],
    task_of: Mapping[TopicPartition, TaskId],
    lags: Mapping[TaskId, int] | None,
) -> KafkaStreamsState:
    reported = _reported(consumers)
    active = {
        task_of[partition] for consumer in consumers for partition in consumer.owned_partitions if partition in task_of
    }
    active |= {task for task, offset_sum in reported.items() if offset_sum == LATEST_OFFSET}
    racks = {consumer.rack_id for consumer in consumers}
    tags, _reserved = split_tags(consumers[0].subscription.client_tags)
    return KafkaStreamsState(
        process_id=process,
        num_processing_threads=len(consumers),
        consumer_client_ids=frozenset(consumer.consumer_id for consumer in consumers),
        previous_active_tasks=frozenset(active),
        previous_standby_tasks=frozenset(reported.keys() - active),
        host_info=_host_info(consumers),
        client_tags=tags,
        rack_id=racks.pop() if len(racks) == 1 else None,
        task_lags=lags,
        previous_tasks_by_consumer={
            consumer.consumer_id: frozenset(consumer.subscription.task_offset_sums) for consumer in consumers
        },
    )


def _host_info(consumers: Sequence[GroupMember]) -> HostInfo | None:
    for consumer in consumers:
        if consumer.subscription.user_end_point:
            try:
                return HostInfo.parse(consumer.subscription.user_end_point)
            except ValueError:
                # A wrong setting makes only this instance unavailable to queries.
                continue
    return None
