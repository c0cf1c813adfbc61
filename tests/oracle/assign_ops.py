"""The operations of ``tests.oracle.assign``: JSON in, JSON out, in the schema of the assignment cases.

Errors that belong to an operation carry the names that Java gives them, since the answers are compared with Java's;
input that the schema does not allow raises :class:`MalformedInput`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import TYPE_CHECKING, Any

from tests.oracle.legacy_sticky import LegacyStickyTaskAssignor

from sparkrelay.assignment import (
    ApplicationState,
    AssignedTask,
    HighAvailabilityTaskAssignor,
    KafkaStreamsAssignment,
    TaskAssignment,
    TaskAssignor,
    task_assignment_utils,
)
from sparkrelay.assignment.lags import lag_of
from sparkrelay.assignment.leader.cases import (
    application_state,
    assignment_configs,
    end_offset_sums,
    group_members,
    task_infos,
)
from sparkrelay.assignment.leader.consumer_level import host_maps
from sparkrelay.assignment.leader.group import assign_group
from sparkrelay.assignment.leader.threads import ThreadLoads
from sparkrelay.assignment.placement.rack_awareness import cross_rack, racks_known
from sparkrelay.assignment.sticky import FallbackPriorTaskAssignor, StickyTaskAssignor
from sparkrelay.assignment.validation import ask
from sparkrelay.errors import ConfigException, StreamsException, TaskAssignmentException
from sparkrelay.protocol import (
    NO_REBALANCE_SCHEDULED,
    AssignmentInfo,
    HostInfo,
    SubscriptionInfo,
    parse_task_id,
)
from sparkrelay.types import ProcessId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sparkrelay.types import TaskId

__all__ = ["OPERATIONS", "MalformedInput", "run_operation"]

Json = dict[str, Any]


class MalformedInput(Exception):  # noqa: N818 - it is an answer of the tool, not an error of the library
    """A request that the schema does not allow; the message names what is wrong with it."""


class _JavaError(Exception):
    """An operation's own error, under Java's name for it."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


def run_operation(name: object, given: object) -> Json:
    """Run one operation and return its output, errors of the operation included.

    Raises:
        MalformedInput: there is no such operation, or its input does not fit the schema.
    """
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    if operation is None:
        raise MalformedInput(f"unknown op {name!r}; known are {', '.join(sorted(OPERATIONS))}")
    if not isinstance(given, dict):
        raise MalformedInput(f"op {name!r}: input must be a JSON object, not {type(given).__name__}")
    try:
        return operation(given)
    except _JavaError as error:
        return _error(error.name, str(error))
    except (ConfigException, TaskAssignmentException) as error:
        return _error(type(error).__name__, str(error))
    except StreamsException as error:
        return _error("IllegalStateException", str(error))
    except KeyError as error:
        raise MalformedInput(f"op {name!r}: input lacks {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise MalformedInput(f"op {name!r}: {error}") from error


def _error(name: str, message: str) -> Json:
    return {"error": {"class": name, "message": message}}


# Assignors


def _assignor_op(make: Callable[[], TaskAssignor]) -> Callable[[Json], Json]:
    def run(given: Json) -> Json:
        if "rounds" in given:
            rounds = [run_round({**given, "clients": item["clients"]}) for item in given["rounds"]]
            return {"rounds": rounds, "converged": not rounds[-1]["probing_rebalance"]}
        return run_round(given) | _derived(given)

    def run_round(given: Json) -> Json:
        state = application_state(given)
        answer, _ = ask(make(), state)
        return {
            "assignment": _assignment_json(answer.assignment),
            "probing_rebalance": answer.probing_rebalance,
        } | _racks(state, answer.assignment)

    return run


def _racks(state: ApplicationState, assignments: Iterable[KafkaStreamsAssignment]) -> Json:
    """Return whether racks were looked at, and how many partitions are read across racks."""
    configs = state.assignment_configs
    if configs.rack_aware_assignment_strategy == "none":
        return {}
    standbys = configs.num_standby_replicas > 0
    if not racks_known(state.clients, state.all_tasks, changelogs=standbys):
        return {"rack_aware_enabled": False}
    infos = {info.id: info for info in state.all_tasks}
    active = standby = 0
    for entry in assignments:
        rack = state.clients[entry.process_id].rack_id
        for task in entry.active_tasks:
            active += cross_rack(infos[task], infos[task].input_topic_partitions, rack)
        for task in entry.standby_tasks:
            standby += cross_rack(infos[task], infos[task].changelog_topic_partitions, rack)
    counted = {"rack_aware_enabled": True, "active_cross_rack": active}
    return counted | {"standby_cross_rack": standby} if standbys else counted


def _sticky_op(*, preserve: bool) -> Callable[[Json], Json]:
    def run(given: Json) -> Json:
        state = application_state(given)
        answer, verdict = ask(StickyTaskAssignor(must_preserve_active_task_assignment=preserve), state)
        return _utils_json({entry.process_id: entry for entry in answer.assignment}) | {"validation": verdict.value}

    return run


def _derived(given: Json) -> Json:
    if not all("consumers" in client for client in given["clients"]):
        return {}
    return {
        "derived": {
            str(process): {
                "capacity": client.num_processing_threads,
                "prev_active": _names(client.previous_active_tasks),
                "prev_standby": _names(client.previous_standby_tasks),
                "lags": {str(task): lag for task, lag in sorted(client.stateful_tasks_to_lag_sums.items())},
            }
            for process, client in application_state(given).clients.items()
        }
    }


def _group(given: Json) -> Json:
    make = _GROUP_ASSIGNORS.get(given["assignor"])
    if make is None:
        known = ", ".join(sorted(_GROUP_ASSIGNORS))
        raise MalformedInput(f"op 'group': unknown assignor {given['assignor']!r}; known are {known}")
    members = group_members(given["clients"])
    if "min_user_version" in given:
        # The leader answers in the lowest version that it received.
        members = [
            dataclasses.replace(
                member, subscription=dataclasses.replace(member.subscription, version=given["min_user_version"])
            )
            for member in members
        ]
    result = assign_group(
        members=members,
        tasks=task_infos(given["tasks"]),
        ends=end_offset_sums(given["tasks"]),
        assignor=make(),
        configs=assignment_configs(given.get("configs", {})),
        leader=ProcessId.parse(given["leader"]),
        now_ms=given["now_ms"],
    )
    if result.failure is not None:
        raise result.failure
    if result.state is None:
        raise MalformedInput("op 'group': the group has no members")
    common = given.get("min_supported_version")
    active_hosts, standby_hosts = host_maps(result.state, result.assignments)
    return {
        "assignment": _assignment_json(result.assignments.values()),
        "probing_rebalance": result.probing_rebalance,
        "stable": result.stable and not given.get("version_probing", False),
        "consumers": {
            # As it arrives: older versions carry less.
            consumer: {
                "partitions": _pairs(sent.partitions),
                "info": _sent_info_json(AssignmentInfo.decode(_with_common(sent.info, common).encode())),
            }
            for consumer, sent in result.members.items()
        },
        "partitions_by_host": {str(host): _pairs(partitions) for host, partitions in active_hosts.items()},
        "standby_partitions_by_host": {str(host): _pairs(partitions) for host, partitions in standby_hosts.items()},
    } | _derived(given)


def _with_common(info: AssignmentInfo, version: int | None) -> AssignmentInfo:
    return info if version is None else dataclasses.replace(info, commonly_supported_version=version)


def _threads(given: Json) -> Json:
    ends = {parse_task_id(task): total for task, total in given["end_offset_sums"].items()}
    reported: dict[TaskId, int] = {}
    for consumer in given["consumers"]:
        reported |= {parse_task_id(task): total for task, total in consumer["offset_sums"].items()}
    lags = {task: lag_of(reported.get(task), end) for task, end in ends.items()}
    previous = {
        consumer["consumer_id"]: sorted(
            (task for task in map(parse_task_id, consumer["offset_sums"]) if task in lags),
            key=lambda task: (lags[task], task),
        )
        for consumer in given["consumers"]
    }
    loads = ThreadLoads(previous)
    return {
        kind: {
            consumer: [str(task) for task in tasks]
            for consumer, tasks in loads.spread(map(parse_task_id, given[kind]), sticky).items()
        }
        for kind, sticky in (("active_stateful", previous), ("standby", previous), ("active_stateless", None))
    }


# TaskAssignmentUtils


def _validate(given: Json) -> Json:
    state = application_state(given)
    return {"error": task_assignment_utils.validate_task_assignment(state, _task_assignment(given)).value}


def _identity(given: Json) -> Json:
    state = application_state(given)
    copied = task_assignment_utils.identity_assignment(state)
    verdict = task_assignment_utils.validate_task_assignment(state, TaskAssignment(copied.values()))
    return _utils_json(copied) | {"validation": verdict.value}


def _default_standby(given: Json) -> Json:
    return _utils_json(
        task_assignment_utils.default_standby_task_assignment(application_state(given), _given_assignments(given))
    )


def _optimize_active(given: Json) -> Json:
    state = application_state(given)
    params = dict(given.get("params", {}))
    chosen = params.pop("tasks", None)
    infos = {info.id: info for info in state.all_tasks}
    tasks: list[TaskId]
    if isinstance(chosen, list):
        tasks = [parse_task_id(task) for task in chosen]
    else:
        wanted = {None: (True, False), "stateful": (True,), "stateless": (False,)}[chosen]
        tasks = [task for task, info in infos.items() if info.is_stateful in wanted]
    try:
        optimized = task_assignment_utils.optimize_rack_aware_active_tasks(
            state, _given_assignments(given), tasks, **params
        )
    except ValueError as error:
        raise _JavaError("IllegalArgumentException", str(error)) from error
    return _utils_json(optimized)


def _optimize_standby(given: Json) -> Json:
    params = {key: value for key, value in given.get("params", {}).items() if key != "tasks"}
    return _utils_json(
        task_assignment_utils.optimize_rack_aware_standby_tasks(
            application_state(given), _given_assignments(given), **params
        )
    )


def _task_assignment(given: Json) -> TaskAssignment:
    return TaskAssignment(map(_given_assignment, given["assignment"]))


def _given_assignments(given: Json) -> dict[ProcessId, KafkaStreamsAssignment]:
    return {entry.process_id: entry for entry in map(_given_assignment, given["assignment"])}


def _given_assignment(entry: Json) -> KafkaStreamsAssignment:
    active = [parse_task_id(task) for task in entry.get("active", ())]
    standby = [parse_task_id(task) for task in entry.get("standby", ())]
    for task in sorted(set(active) & set(standby)):
        values = f"AssignedTask{{ACTIVE, {task}}} and AssignedTask{{STANDBY, {task}}}"
        raise _JavaError("IllegalStateException", f"Duplicate key {task} (attempted merging values {values})")
    made = KafkaStreamsAssignment.of(
        ProcessId.parse(entry["process_id"]),
        [
            *(AssignedTask(task, AssignedTask.Type.ACTIVE) for task in active),
            *(AssignedTask(task, AssignedTask.Type.STANDBY) for task in standby),
        ],
    )
    if entry.get("followup_ms") is None:
        return made
    return made.with_followup_rebalance(dt.datetime.fromtimestamp(entry["followup_ms"] / 1000, dt.UTC))


def _utils_json(assignments: Mapping[ProcessId, KafkaStreamsAssignment]) -> Json:
    return {
        "assignment": _assignment_json(assignments.values()),
        "followup": {
            str(process): round(entry.followup_rebalance_deadline.timestamp() * 1000)
            for process, entry in assignments.items()
            if entry.followup_rebalance_deadline is not None
        },
    }


def _assignment_json(assignments: Iterable[KafkaStreamsAssignment]) -> Json:
    return {
        str(entry.process_id): {"active": _names(entry.active_tasks), "standby": _names(entry.standby_tasks)}
        for entry in assignments
    }


def _names(tasks: Iterable[TaskId]) -> list[str]:
    return [str(task) for task in sorted(tasks)]


def _pairs(partitions: Iterable[TopicPartition]) -> list[list[Any]]:
    return [list(partition) for partition in partitions]


# Wire


def _subscription_encode(given: Json) -> Json:
    try:
        info = SubscriptionInfo(
            process_id=ProcessId.parse(given["process_id"]),
            version=given["version"],
            latest_supported_version=given["latest_supported_version"],
            user_end_point=given.get("user_end_point"),
            task_offset_sums={parse_task_id(task): total for task, total in given.get("task_offset_sums", {}).items()},
            unique_field=given.get("unique_field", 0),
            error_code=given.get("error_code", 0),
            client_tags=given.get("client_tags") or {},
        )
        encoded = info.encode()
    except ValueError as error:
        raise _JavaError("IllegalArgumentException", str(error)) from error
    return {"hex": encoded.hex(), "decoded": _subscription_json(SubscriptionInfo.decode(encoded))}


def _subscription_decode(given: Json) -> Json:
    try:
        return _subscription_json(SubscriptionInfo.decode(bytes.fromhex(given["hex"])))
    except TaskAssignmentException as error:
        raise _JavaError("BufferUnderflowException", "null") from error
    except ValueError as error:
        raise _JavaError("IllegalArgumentException", str(error)) from error


def _subscription_json(info: SubscriptionInfo) -> Json:
    return {
        "version": info.version,
        "latest_supported_version": info.latest_supported_version,
        "process_id": str(info.process_id),
        "user_end_point": info.user_end_point,
        "task_offset_sums": {str(task): total for task, total in sorted(info.task_offset_sums.items())},
        "prev_tasks": _names(info.prev_tasks),
        "standby_tasks": _names(info.standby_tasks),
        "error_code": info.error_code,
        "client_tags": dict(info.client_tags),
    }


def _assignment_encode(given: Json) -> Json:
    def hosts(name: str) -> dict[HostInfo, list[TopicPartition]]:
        return {HostInfo.parse(host): _partitions(listed) for host, listed in given.get(name, {}).items()}

    next_rebalance = given.get("next_rebalance_ms")
    try:
        info = AssignmentInfo(
            version=given["version"],
            commonly_supported_version=given["commonly_supported_version"],
            active_tasks=[parse_task_id(task) for task in given.get("active_tasks", ())],
            standby_tasks={
                parse_task_id(task): _partitions(listed) for task, listed in given.get("standby_tasks", {}).items()
            },
            partitions_by_host=hosts("partitions_by_host"),
            standby_partitions_by_host=hosts("standby_partitions_by_host"),
            err_code=given.get("err_code", 0),
            next_rebalance_ms=NO_REBALANCE_SCHEDULED if next_rebalance is None else next_rebalance,
        )
    except ValueError as error:
        raise _JavaError("IllegalArgumentException", str(error)) from error
    encoded = info.encode()
    return {"hex": encoded.hex(), "decoded": _assignment_info_json(AssignmentInfo.decode(encoded))}


def _partitions(listed: Iterable[list[Any]]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for topic, partition in listed]


def _assignment_decode(given: Json) -> Json:
    return _assignment_info_json(AssignmentInfo.decode(bytes.fromhex(given["hex"])))


def _sent_info_json(info: AssignmentInfo) -> Json:
    return {
        "version": info.version,
        "commonly_supported_version": info.commonly_supported_version,
        "active_tasks": [str(task) for task in info.active_tasks],
        "standby_tasks": {str(task): _pairs(listed) for task, listed in sorted(info.standby_tasks.items())},
        "err_code": int(info.err_code),
        "next_rebalance_ms": info.next_rebalance_ms,
    }


def _assignment_info_json(info: AssignmentInfo) -> Json:
    return _sent_info_json(info) | {
        "partitions_by_host": {str(host): _pairs(listed) for host, listed in info.partitions_by_host.items()},
        "standby_partitions_by_host": {
            str(host): _pairs(listed) for host, listed in info.standby_partitions_by_host.items()
        },
    }


_GROUP_ASSIGNORS: Mapping[str, Callable[[], TaskAssignor]] = {
    "ha": HighAvailabilityTaskAssignor,
    "legacy_sticky": LegacyStickyTaskAssignor,
    "fallback_prior": FallbackPriorTaskAssignor,
}

OPERATIONS: Mapping[str, Callable[[Json], Json]] = {
    **{name: _assignor_op(make) for name, make in _GROUP_ASSIGNORS.items()},
    "sticky": _sticky_op(preserve=False),
    "sticky_preserve": _sticky_op(preserve=True),
    "default_standby": _default_standby,
    "optimize_active": _optimize_active,
    "optimize_standby": _optimize_standby,
    "identity": _identity,
    "validate": _validate,
    "threads": _threads,
    "group": _group,
    "subscription_encode": _subscription_encode,
    "subscription_decode": _subscription_decode,
    "assignment_encode": _assignment_encode,
    "assignment_decode": _assignment_decode,
}
