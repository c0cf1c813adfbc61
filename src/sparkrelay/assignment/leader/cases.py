"""Assignment cases in JSON, to run any assignor on.

``application_state(case["input"])`` takes both forms of clients: *direct* (threads, previous tasks, lags) and
*consumer* (the subscription of each member, from which lags are computed).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.assignment import (
    ApplicationState,
    AssignmentConfigs,
    GroupMember,
    KafkaStreamsState,
    TaskInfo,
    TaskTopicPartition,
)
from sparkrelay.assignment.leader.client_states import client_states
from sparkrelay.protocol import HostInfo, SubscriptionInfo, parse_task_id
from sparkrelay.types import ProcessId, TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_CONFIG_NAMES = {"rack_aware_strategy": "rack_aware_assignment_strategy"}


def application_state(case_input: Mapping[str, Any]) -> ApplicationState:
    """Return the assignor's input from the ``input`` of a case.

    Raises:
        ConfigException: a setting is out of range.
        KeyError: a required field is missing.
        ValueError: an id is malformed.
    """
    tasks = task_infos(case_input["tasks"])
    direct = [_direct_state(client) for client in case_input["clients"] if "consumers" not in client]
    clients = {state.process_id: state for state in direct}
    members = group_members(case_input["clients"])
    clients |= client_states(members, tasks, end_offset_sums(case_input["tasks"]))
    return ApplicationState(
        all_tasks=frozenset(tasks),
        clients=clients,
        assignment_configs=assignment_configs(case_input.get("configs", {})),
    )


def assignment_configs(configs: Mapping[str, Any]) -> AssignmentConfigs:
    """Return settings from a case's ``configs``, by default Kafka's."""
    return AssignmentConfigs(**{_CONFIG_NAMES.get(key, key): value for key, value in configs.items()})


def task_infos(tasks: Iterable[Mapping[str, Any]]) -> list[TaskInfo]:
    """Return tasks from a case's ``tasks``, with conventional topics if none are named."""
    return [_task_info(task) for task in tasks]


def end_offset_sums(tasks: Iterable[Mapping[str, Any]]) -> dict[TaskId, int]:
    """Return the end offset sum of each logged task of a case."""
    infos = ((_task_info(task), task) for task in tasks)
    return {info.id: int(task.get("end_offset_sum", 0)) for info, task in infos if info.is_logged}


def group_members(clients: Iterable[Mapping[str, Any]]) -> list[GroupMember]:
    """Return the members of clients in the consumer form."""
    return [
        GroupMember(
            consumer_id=consumer["consumer_id"],
            subscription=SubscriptionInfo(
                process_id=ProcessId.parse(client["process_id"]),
                user_end_point=client.get("user_end_point"),
                task_offset_sums={
                    parse_task_id(task): total for task, total in consumer.get("offset_sums", {}).items()
                },
                client_tags=client.get("client_tags") or {},
            ),
            owned_partitions=frozenset(TopicPartition(*owned) for owned in consumer.get("owned_partitions", ())),
            rack_id=consumer.get("rack_id", client.get("rack_id")),
        )
        for client in clients
        for consumer in client.get("consumers", ())
    ]


def _task_info(task: Mapping[str, Any]) -> TaskInfo:
    name = parse_task_id(task["id"])
    stateful = bool(task.get("stateful", False))
    sources = task.get("input_partitions")
    if sources is None:
        sources = [{"topic": f"in-{name.subtopology}", "partition": name.partition}]
    changelogs = task.get("changelog_partitions")
    if changelogs is None:
        changelogs = [{"topic": f"cl-{name.subtopology}", "partition": name.partition}] if stateful else []
    stores = task.get("stores")
    if stores is None:
        stores = [f"store-{name.subtopology}"] if stateful else []
    roles: dict[TopicPartition, dict[str, Any]] = {}
    racks: dict[TopicPartition, list[str]] = {}
    for role, listed in (("is_source", sources), ("is_changelog", changelogs)):
        for item in listed:
            at = TopicPartition(item["topic"], item["partition"])
            fields = roles.setdefault(at, {"is_source": False})
            fields[role] = True
            if item.get("racks") is not None:
                racks[at] = item["racks"]
    partitions = [TaskTopicPartition(topic_partition=at, racks=lambda: racks, **fields) for at, fields in roles.items()]
    return TaskInfo(name, frozenset(stores), frozenset(partitions))


def _direct_state(client: Mapping[str, Any]) -> KafkaStreamsState:
    process = ProcessId.parse(client["process_id"])
    threads = int(client.get("threads", 1))
    end_point = client.get("user_end_point")
    return KafkaStreamsState(
        process_id=process,
        num_processing_threads=threads,
        consumer_client_ids=frozenset(f"{process}-{thread}" for thread in range(threads)),
        previous_active_tasks=frozenset(map(parse_task_id, client.get("prev_active", ()))),
        previous_standby_tasks=frozenset(map(parse_task_id, client.get("prev_standby", ()))),
        host_info=HostInfo.parse(end_point) if end_point else None,
        client_tags=client.get("client_tags") or {},
        rack_id=client.get("rack_id"),
        task_lags={parse_task_id(task): lag for task, lag in client.get("lags", {}).items()},
    )
