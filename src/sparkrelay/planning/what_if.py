"""What if an instance joined or left: the group's assignor, run until no further rebalance is needed. Pure.

Every assigned copy is assumed to catch up between two rebalances, as the runtime waits for it (KIP-441). Traffic is
ignored: lags are the initial ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from sparkrelay.assignment.kafka_streams_state import KafkaStreamsState
from sparkrelay.assignment.lags import shortest_lag_to_catch_up
from sparkrelay.assignment.leader.explain import Decision, Kind, explain
from sparkrelay.assignment.process_ids import new_process_ids
from sparkrelay.assignment.validation import ask_for_valid, message_of
from sparkrelay.errors import ConfigException, SparkRelayError, StreamsException
from sparkrelay.protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkrelay.assignment.application_state import ApplicationState
    from sparkrelay.assignment.task_assignor import TaskAssignment, TaskAssignor
    from sparkrelay.types import ProcessId, TaskId

#: A custom assignor might never stop requesting rebalances.
_MOST_ROUNDS = 1000
_MOST_PLACES = 20


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """A group as of its last rebalance, or as a file describes it.

    Attributes:
        state: The present input of an assignor.
        ends: Current length of each logged task's changelogs, in offsets, as far as known.
        notes: Assumptions, in sentences.
        assignor: The group's assignor, as a ``task.assignor.class``; empty if unknown.
    """

    state: ApplicationState
    ends: Mapping[TaskId, int] = field(hash=False)
    notes: tuple[str, ...] = ()
    assignor: str = ""


@dataclass(frozen=True, slots=True)
class Restore:
    """A process's reads from changelogs: copies (``tasks``), offsets to read, and copies of unknown length."""

    tasks: int = 0
    records: int = 0
    unknown: int = 0

    def __add__(self, other: Restore) -> Restore:
        return Restore(self.tasks + other.tasks, self.records + other.records, self.unknown + other.unknown)


@dataclass(frozen=True, slots=True)
class Pause:
    """A task that nobody runs until ``process`` has restored ``records`` offsets (None: unknown)."""

    task: TaskId
    process: ProcessId
    records: int | None


@dataclass(frozen=True, slots=True)
class Held:
    """The tasks of one process, in order."""

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of the assignor, and the restores before the next.

    Attributes:
        held: The tasks of each process.
        decisions: The changes, and why.
        restores: Reads from changelogs by process, if any.
        pauses: Tasks that their process has to restore before it can run them.
        hands_over: True if a running task moves, which takes another rebalance: partitions are revoked in one rebalance
            and assigned in the next (KIP-429).
    """

    held: Mapping[ProcessId, Held] = field(hash=False)
    decisions: tuple[Decision, ...]
    restores: Mapping[ProcessId, Restore] = field(hash=False)
    pauses: tuple[Pause, ...]
    hands_over: bool

    def seconds(self, records_per_second: float) -> float:
        """Return the restore time of the slowest process."""
        return max((restore.records for restore in self.restores.values()), default=0) / records_per_second


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessChange:
    """One process before and after; ``restore`` sums up all rounds."""

    process: ProcessId
    threads: int
    added: bool
    removed: bool
    before: Held
    after: Held
    restore: Restore


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The effect of a change on a group.

    Attributes:
        processes: Every process of before and after, in process order.
        rounds: The assignor's answers.
        converged: False if the assignor would keep requesting rebalances.
    """

    processes: tuple[ProcessChange, ...]
    rounds: tuple[Round, ...]
    converged: bool

    @property
    def rebalances(self) -> int:
        """The number of rebalances, hand-overs included."""
        return len(self.rounds) + sum(one.hands_over for one in self.rounds)

    @property
    def moved(self) -> tuple[TaskId, ...]:
        """Tasks that another process runs in the end, sorted."""
        before = {task: one.process for one in self.processes for task in one.before.active}
        after = {task: one.process for one in self.processes for task in one.after.active}
        return tuple(sorted(task for task, process in after.items() if before.get(task, process) != process))

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """Tasks that pause while their process restores them."""
        return tuple(pause for one in self.rounds for pause in one.pauses)

    @property
    def not_run(self) -> tuple[TaskId, ...]:
        """Tasks that nobody runs in the end, which Kafka allows."""
        return tuple(decision.task for decision in self.rounds[-1].decisions if decision.kind is Kind.NOT_RUN)

    @property
    def restore(self) -> Restore:
        """The reads of all processes from changelogs."""
        return sum((process.restore for process in self.processes), Restore())

    def seconds(self, records_per_second: float) -> float:
        """Return the time until every copy is complete, by the slowest process of each round."""
        return sum(one.seconds(records_per_second) for one in self.rounds)


def what_if(
    state: ApplicationState,
    assignor: TaskAssignor,
    *,
    add: Collection[ProcessId] = (),
    remove: Collection[ProcessId] = (),
    threads: int = 1,
    ends: Mapping[TaskId, int] | None = None,
) -> WhatIf:
    """Return the effect of a change.

    Args:
        state: The group, with lags.
        assignor: The group's assignor.
        add: Ids of instances that join, without state (see ``process_ids.new_process_ids``).
        remove: Processes that leave.
        threads: Stream threads of each instance that joins.
        ends: Length of each task's changelogs, in offsets; by default the greatest lag of any process.

    Raises:
        ConfigException: a process to remove does not exist, or none would be left.
        StreamsException: the assignor fails, or its answer is invalid.
    """
    for process in remove:
        if process not in state.clients:
            raise ConfigException(f"process {process} is not in the group, so it cannot be removed")
    present = {process: client for process, client in state.clients.items() if process not in remove}
    if not present and not add:
        raise ConfigException("no process would be left: all are removed and none is added")
    simulation = _Simulation(state, ends or {})
    present |= {process: simulation.newcomer(process, threads) for process in add}
    rounds, converged = simulation.run(replace(state, clients=present), assignor)
    return WhatIf(_processes(state.clients, present, rounds), tuple(rounds), converged)


def moves_by_place(
    state: ApplicationState,
    assignor: TaskAssignor,
    *,
    count: int,
    remove: Collection[ProcessId] = (),
    threads: int = 1,
    ends: Mapping[TaskId, int] | None = None,
) -> tuple[int, int]:
    """Return the least and the most tasks that move, over the places of new ids; samples places in a large group."""
    present = state.clients.keys() - set(remove)
    step = max(1, len(present) // _MOST_PLACES)
    moved = []
    for place in range(0, len(present) + 1, step):
        added = new_process_ids(present, count, place=place)
        outcome = what_if(state, assignor, add=added, remove=remove, threads=threads, ends=ends)
        moved.append(len(outcome.moved))
    return min(moved), max(moved)


class _Simulation:
    """Applies an assignor's answers, with all copies warm before the next rebalance."""

    def __init__(self, state: ApplicationState, ends: Mapping[TaskId, int]) -> None:
        self._clients = state.clients
        self._acceptable = state.assignment_configs.acceptable_recovery_lag
        #: The length of each logged task's changelogs; None if unknown.
        self._whole: dict[TaskId, int | None] = {}
        for info in state.all_tasks:
            if info.is_logged:
                known = [lag for c in state.clients.values() if (lag := (c.task_lags or {}).get(info.id, -1)) >= 0]
                self._whole[info.id] = ends.get(info.id, max(known, default=None))

    def newcomer(self, process: ProcessId, threads: int) -> KafkaStreamsState:
        """Return a process without state, on the least used rack and tags of the group."""
        places: dict[tuple[str | None, tuple[tuple[str, str], ...]], int] = {}
        for client in self._clients.values():
            place = client.rack_id, tuple(sorted(client.client_tags.items()))
            places[place] = places.get(place, 0) + 1
        rack, tags = min(places, key=places.__getitem__) if places else (None, ())
        return KafkaStreamsState(
            process_id=process,
            num_processing_threads=threads,
            rack_id=rack,
            client_tags=dict(tags),
            task_lags={
                task: shortest_lag_to_catch_up(self._acceptable) if end is None else end
                for task, end in self._whole.items()
            },
        )

    def run(self, state: ApplicationState, assignor: TaskAssignor) -> tuple[list[Round], bool]:
        """Return the rounds, and whether the assignor converged."""
        rounds: list[Round] = []
        while len(rounds) < _MOST_ROUNDS:
            try:
                answer = ask_for_valid(assignor, state)
            except SparkRelayError:
                raise
            except (Exception, SystemExit) as error:  # user code may raise anything
                raise StreamsException(f"the assignor failed: {message_of(error)}") from error
            rounds.append(self._round(state, answer))
            asks_again = answer.probing_rebalance or any(e.followup_rebalance_deadline for e in answer.assignment)
            if not asks_again:
                return rounds, True
            following = _follow(state, rounds[-1].held)
            if _same(state, following):
                return rounds, False
            state = following
        return rounds, False

    def _round(self, state: ApplicationState, answer: TaskAssignment) -> Round:
        held = {
            process: Held(
                tuple(sorted(t for e in answer.assignment if e.process_id == process for t in e.active_tasks)),
                tuple(sorted(t for e in answer.assignment if e.process_id == process for t in e.standby_tasks)),
            )
            for process in sorted(state.clients)
        }
        restores: dict[ProcessId, Restore] = {}
        pauses = []
        for process, tasks in held.items():
            for task in (*tasks.active, *tasks.standby):
                if task not in self._whole or (left := self._left(state.clients[process], task)) == 0:
                    continue
                one = Restore(tasks=1, records=left or 0, unknown=int(left is None))
                restores[process] = restores.get(process, Restore()) + one
                if task in tasks.active:
                    pauses.append(Pause(task, process, left))
        decisions = explain(state, answer)
        return Round(
            held=MappingProxyType(held),
            decisions=decisions,
            restores=MappingProxyType(restores),
            pauses=tuple(sorted(pauses, key=lambda pause: pause.task)),
            hands_over=any(decision.kind is Kind.MOVES for decision in decisions),
        )

    def _left(self, client: KafkaStreamsState, task: TaskId) -> int | None:
        """Return how many offsets a process still has to restore; None if unknown."""
        lag = (client.task_lags or {}).get(task, UNKNOWN_OFFSET_SUM)
        if lag == LATEST_OFFSET:
            return 0
        if lag == UNKNOWN_OFFSET_SUM:
            return None
        made_up = self._whole[task] is None and lag == shortest_lag_to_catch_up(self._acceptable)
        return None if made_up else lag


def _follow(state: ApplicationState, held: Mapping[ProcessId, Held]) -> ApplicationState:
    """Return the group once all assigned copies are complete."""
    clients = {}
    for process, client in state.clients.items():
        tasks = held[process]
        lags = {task: 0 if lag == LATEST_OFFSET else lag for task, lag in (client.task_lags or {}).items()}
        lags |= {task: 0 for task in tasks.standby if task in lags}
        lags |= {task: LATEST_OFFSET for task in tasks.active if task in lags}
        clients[process] = replace(
            client,
            previous_active_tasks=frozenset(tasks.active),
            previous_standby_tasks=frozenset(tasks.standby),
            task_lags=lags,
        )
    return replace(state, clients=clients)


def _processes(
    before: Mapping[ProcessId, KafkaStreamsState], after: Mapping[ProcessId, KafkaStreamsState], rounds: Sequence[Round]
) -> tuple[ProcessChange, ...]:
    """Return every process before and after."""
    changes = []
    for process in sorted({*before, *after}):
        old = before.get(process)
        changes.append(
            ProcessChange(
                process=process,
                threads=(old or after[process]).num_processing_threads,
                added=old is None,
                removed=process not in after,
                before=Held(tuple(sorted(old.previous_active_tasks)), tuple(sorted(old.previous_standby_tasks)))
                if old
                else Held(),
                after=rounds[-1].held.get(process, Held()),
                restore=sum((one.restores.get(process, Restore()) for one in rounds), Restore()),
            )
        )
    return tuple(changes)


def _same(one: ApplicationState, other: ApplicationState) -> bool:
    return all(
        client.previous_active_tasks == other.clients[process].previous_active_tasks
        and client.previous_standby_tasks == other.clients[process].previous_standby_tasks
        and client.task_lags == other.clients[process].task_lags
        for process, client in one.clients.items()
    )
