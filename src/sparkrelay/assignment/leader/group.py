"""The leader's part of a rebalance, from the members' subscriptions to their assignments; no I/O.

The caller has listed the tasks and created the internal topics. Every failure ends in an answer for *every* member: if
the leader just raised, the others would wait in vain for their sync.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.agreement import assignor_name
from sparkrelay.assignment.application_state import ApplicationState
from sparkrelay.assignment.group_member import ConsumerAssignment, GroupMember
from sparkrelay.assignment.kafka_streams_assignment import KafkaStreamsAssignment
from sparkrelay.assignment.lags import is_caught_up
from sparkrelay.assignment.leader.client_states import client_states, lags_by_process
from sparkrelay.assignment.leader.consumer_level import assign_consumers
from sparkrelay.assignment.leader.kept import kept_assignment
from sparkrelay.assignment.task_assignor import (
    AssignmentError,
    GroupAssignment,
    GroupSubscription,
    TaskAssignment,
    TaskAssignor,
)
from sparkrelay.assignment.validation import ask, invalid_assignment, message_of, validate
from sparkrelay.errors import (
    KafkaException,
    SparkRelayError,
    StreamsException,
    TaskAssignmentException,
    WakeupException,
)
from sparkrelay.protocol import LATEST_SUPPORTED_VERSION, NO_REBALANCE_SCHEDULED, AssignmentInfo, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sparkrelay.assignment.assignment_configs import AssignmentConfigs
    from sparkrelay.assignment.task_info import TaskInfo
    from sparkrelay.types import ProcessId, TaskId, TopicPartition

#: Older versions do not send what they support, as version probing needs.
_FIRST_PROBING_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """The leader's answer, and its input.

    Attributes:
        members: The assignment of each member, by consumer id; also after a failure.
        assignments: Tasks by process, as the assignor placed them; empty after a failure.
        warm_ups: Standbys that only prepare a move.
        state: The assignor's input; None if it was not called.
        probing_rebalance: True while the assignor has outstanding movements.
        error: What is wrong with the assignor's answer.
        failure: Raised on the leader's thread once the answer is sent; None if all is well.
        kept: Why the previous assignment was kept (TaskAssignmentException), or None.
        withheld: Active tasks by process that wait until another consumer has released their partitions.
        version_probing: True if a member writes a version newer than ours, which will rejoin with an older one.
    """

    members: Mapping[str, ConsumerAssignment]
    assignments: Mapping[ProcessId, KafkaStreamsAssignment] = field(default_factory=dict)
    warm_ups: Mapping[ProcessId, frozenset[TaskId]] = field(default_factory=dict)
    state: ApplicationState | None = None
    probing_rebalance: bool = False
    error: AssignmentError = AssignmentError.NONE
    failure: SparkRelayError | None = None
    kept: str | None = None
    withheld: Mapping[ProcessId, frozenset[TaskId]] = field(default_factory=dict)
    version_probing: bool = False

    @property
    def awaited(self) -> Mapping[ProcessId, frozenset[TaskId]]:
        """The copies that a follow-up rebalance may wait for: warm-ups and standbys that are behind.

        A standby that will swap roles with the task's runner is not a warm-up (KIP-441).
        """
        if not self.probing_rebalance or self.state is None:
            return self.warm_ups
        acceptable = self.state.assignment_configs.acceptable_recovery_lag
        found = {}
        for process, placed in self.assignments.items():
            lags = self.state.clients[process].task_lags or {}
            behind = (
                task for task in placed.standby_tasks if task in lags and not is_caught_up(lags[task], acceptable)
            )
            found[process] = self.warm_ups.get(process, frozenset()).union(behind)
        return found

    @property
    def stable(self) -> bool:
        """True if no member has to request another rebalance."""
        return (
            self.failure is None
            and not self.version_probing
            and all(member.info.next_rebalance_ms == NO_REBALANCE_SCHEDULED for member in self.members.values())
        )


def error_assignments(
    members: Iterable[GroupMember], code: ErrorCode, *, commonly_supported_version: int = LATEST_SUPPORTED_VERSION
) -> dict[str, ConsumerAssignment]:
    """Return empty assignments with ``code`` for every member, in version 11 as Kafka sends them."""
    info = AssignmentInfo(commonly_supported_version=commonly_supported_version, err_code=code)
    return {member.consumer_id: ConsumerAssignment(partitions=(), info=info) for member in members}


def assign_group(
    *,
    members: Sequence[GroupMember],
    tasks: Iterable[TaskInfo],
    ends: Mapping[TaskId, int] | Callable[[], Mapping[TaskId, int]],
    assignor: TaskAssignor,
    configs: AssignmentConfigs,
    leader: ProcessId,
    now_ms: int,
    refused: Mapping[str, ErrorCode] | None = None,
) -> GroupResult:
    """Assign all tasks to the members of the group.

    Args:
        members: All members, with decoded subscriptions.
        tasks: Every task of the topology.
        ends: End offset sums of the logged tasks (``client_states.end_offset_sums``), or a function that lists them
            once the assignor needs lags, and raises TaskAssignmentException if it cannot.
        assignor: Places the tasks on processes.
        configs: Settings for it.
        leader: The leader's process, which requests probing rebalances.
        now_ms: Wall-clock time, ms since the epoch.
        refused: Members without part in the assignment, such as of another topology, and their error codes.

    Raises:
        WakeupException: a request to the broker was interrupted.
    """
    turned_away = refused or {}
    answers: dict[str, ConsumerAssignment] = {}
    owned_by_others: set[TopicPartition] = set()
    for member in members:
        if member.consumer_id in turned_away:
            answers |= error_assignments([member], turned_away[member.consumer_id])
            owned_by_others |= member.owned_partitions
    members = [member for member in members if member.consumer_id not in turned_away]
    if any(member.subscription.error_code == ErrorCode.SHUTDOWN_REQUESTED for member in members):
        return GroupResult(members={**error_assignments(members, ErrorCode.SHUTDOWN_REQUESTED), **answers})
    if not members:
        return GroupResult(members=answers)

    version = min(LATEST_SUPPORTED_VERSION, *(member.subscription.version for member in members))
    probing = any(member.subscription.is_future for member in members)
    if version < _FIRST_PROBING_VERSION and probing:
        reason = (
            f"a member uses version {version} of the assignment protocol and another a version newer than "
            f"{LATEST_SUPPORTED_VERSION}: they cannot be in one group; upgrade the old one first"
        )
        return _failed(members, answers, TaskAssignmentException(reason))
    known = frozenset(tasks)
    state = ApplicationState(
        all_tasks=known,
        clients=client_states(members, known, None if callable(ends) else ends),
        assignment_configs=configs,
        compute_lags=(lambda: lags_by_process(members, ends())) if callable(ends) else None,
    )
    try:
        answer, error, kept = _ask(assignor, state, members, leader)
    except (KeyboardInterrupt, WakeupException):
        raise  # meant for us, not for the assignor
    except KafkaException as raised:
        # A permanent error of a request to the broker, such as a missing ACL.
        return _failed(members, answers, raised, state=state)
    except BaseException as raised:  # noqa: BLE001 - user code; every member must get an answer
        return _failed(members, answers, _blame(assignor, "failed", raised), state=state)

    placed: dict[ProcessId, KafkaStreamsAssignment] = {}
    sent: dict[str, ConsumerAssignment] = {}
    if error not in {AssignmentError.UNKNOWN_PROCESS_ID, AssignmentError.UNKNOWN_TASK_ID}:
        placed = _by_process(state, answer)
        sent = assign_consumers(
            members=members,
            state=state,
            assignments=placed,
            deadlines_ms=_deadlines(answer, leader, now_ms, configs.probing_rebalance_interval_ms),
            version=version,
            commonly_supported_version=min(m.subscription.latest_supported_version for m in members),
            owned_by_others=frozenset(owned_by_others),
            keep=kept is not None,
        )
    if (failure := _report(assignor, members, sent, error)) is not None:
        return _failed(members, answers, failure, state=state, error=error)
    return GroupResult(
        members=MappingProxyType({**sent, **answers}),
        assignments=MappingProxyType(placed),
        warm_ups=answer.warm_ups,
        state=state,
        probing_rebalance=answer.probing_rebalance,
        kept=kept,
        withheld=MappingProxyType(_withheld(members, placed, sent)),
        version_probing=probing,
    )


def _ask(
    assignor: TaskAssignor, state: ApplicationState, members: Iterable[GroupMember], leader: ProcessId
) -> tuple[TaskAssignment, AssignmentError, str | None]:
    """Return the answer, its first error, and why it is the previous assignment, if it is."""
    try:
        return *ask(assignor, state), None
    except TaskAssignmentException as reason:
        # As KIP-924 says; Java 4.3 fails all members instead.
        answer = kept_assignment(state, _copied(members), leader)
        return answer, validate(state, answer), _reason(reason)


def _report(
    assignor: TaskAssignor,
    members: Iterable[GroupMember],
    sent: Mapping[str, ConsumerAssignment],
    error: AssignmentError,
) -> StreamsException | None:
    """Call ``on_assignment_computed``; return the exception for the leader's thread, if any."""
    subscription = GroupSubscription(MappingProxyType({member.consumer_id: member for member in members}))
    try:
        assignor.on_assignment_computed(GroupAssignment(MappingProxyType(sent)), subscription, error)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:  # noqa: BLE001 - as in assign_group
        return _blame(assignor, "failed in on_assignment_computed", raised)
    return None if error is AssignmentError.NONE else invalid_assignment(assignor, error)


def _withheld(
    members: Iterable[GroupMember],
    placed: Mapping[ProcessId, KafkaStreamsAssignment],
    sent: Mapping[str, ConsumerAssignment],
) -> dict[ProcessId, frozenset[TaskId]]:
    """Return the active tasks of each process that none of its consumers got."""
    running: dict[ProcessId, set[TaskId]] = {}
    for member in members:
        running.setdefault(member.process_id, set()).update(sent[member.consumer_id].info.active_tasks)
    missing = {process: frozenset(entry.active_tasks) - running[process] for process, entry in placed.items()}
    return {process: tasks for process, tasks in missing.items() if tasks}


def _reason(error: TaskAssignmentException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - user code: a subclass
        return message_of(error)


def _blame(assignor: TaskAssignor, what: str, error: BaseException) -> StreamsException:
    blamed = StreamsException(f"task assignor {assignor_name(type(assignor))} {what}: {message_of(error)}")
    blamed.__cause__ = error
    return blamed


def _failed(
    members: Iterable[GroupMember],
    answers: Mapping[str, ConsumerAssignment],
    failure: SparkRelayError,
    *,
    state: ApplicationState | None = None,
    error: AssignmentError = AssignmentError.NONE,
) -> GroupResult:
    sent = {**error_assignments(members, ErrorCode.ASSIGNMENT_ERROR), **answers}
    return GroupResult(members=MappingProxyType(sent), state=state, failure=failure, error=error)


def _copied(members: Iterable[GroupMember]) -> dict[ProcessId, dict[TaskId, int]]:
    """Return the offset sums of each process's copies, unknown (negative) for running tasks."""
    found: dict[ProcessId, dict[TaskId, int]] = {}
    for member in members:
        of_process = found.setdefault(member.process_id, {})
        for task, offsets in member.subscription.task_offset_sums.items():
            of_process[task] = max(offsets, of_process.get(task, offsets))
    return found


def _by_process(state: ApplicationState, answer: TaskAssignment) -> dict[ProcessId, KafkaStreamsAssignment]:
    """Return one entry for each process; an answer may have several, or, in error, none."""
    placed = {process: KafkaStreamsAssignment.of(process, ()) for process in state.clients}
    for entry in answer.assignment:
        if entry.process_id in placed:
            merged = placed[entry.process_id]
            for task in entry.tasks.values():
                merged = merged.assign_task(task)
            placed[entry.process_id] = merged if merged.tasks.keys() != entry.tasks.keys() else entry
    return placed


def _deadlines(answer: TaskAssignment, leader: ProcessId, now_ms: int, interval_ms: int) -> dict[ProcessId, int]:
    deadlines: dict[ProcessId, int] = {}
    for entry in answer.assignment:
        if entry.followup_rebalance_deadline is not None:
            wanted = max(0, round(entry.followup_rebalance_deadline.timestamp() * 1000))
            deadlines[entry.process_id] = min(wanted, deadlines.get(entry.process_id, wanted))
    if answer.probing_rebalance:
        # Only the leader's process: if all requested at once, the group would rebalance several times.
        probing = now_ms + interval_ms
        deadlines[leader] = min(probing, deadlines.get(leader, probing))
    return deadlines
