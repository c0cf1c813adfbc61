"""A task as its driver sees it: inputs, owner, position. Events go in, commands come out.

``task_state`` shows which event may occur in which state. No I/O here.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, Self

from sparkrelay.runtime.contract.commands import RestoreCommand, TaskCommand
from sparkrelay.runtime.contract.commit_notes import CHANGELOGS, SOURCE_CHANGELOG, TASKS, note_text
from sparkrelay.runtime.contract.owners import OWNER, RELEASED
from sparkrelay.runtime.tasks.batch_attempt import BatchAttempt
from sparkrelay.runtime.tasks.batch_notes import BatchIntent, BatchNote, newest_batch
from sparkrelay.runtime.tasks.changelog_cuts import ChangelogCuts
from sparkrelay.runtime.tasks.event_times import WrittenTimes, as_note, noted_times, reached_by
from sparkrelay.runtime.tasks.position import LocalCopy, Position
from sparkrelay.runtime.tasks.ranges import Ranges, behind, plan_ranges, stops_of, topics_behind
from sparkrelay.runtime.tasks.restore_work import RestoreWork
from sparkrelay.runtime.tasks.store_descriptions import StoreDescriptions
from sparkrelay.runtime.tasks.task_state import FOLLOWING, TRANSITIONS, TaskEvent, TaskState
from sparkrelay.runtime.tasks.task_times import TaskTimes
from sparkrelay.state.window_keys import LATEST
from sparkrelay.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.client.group_requests import OffsetAndMetadata
    from sparkrelay.client.transactions import ProducerIdentity
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.contract.commands import LegReport, StateReport
    from sparkrelay.runtime.topics.layout import TaskShape
    from sparkrelay.types import TaskId, TopicPartition

_EPOCH_BITS: Final = 62


class Task:
    """One task of a stream thread. While a micro-batch of it runs, it belongs to the batch thread.

    Attributes:
        directory: state directory; None for a stateless task.
        source_changelogs: inputs that are also changelogs, of tables that reuse their topic.
        owner: the owner that commits record; empty: none.
        task_epoch: epoch of the current ownership; the store refuses batches of other epochs.
        hindered: consecutive attempts to initialize or serve the task that failed because the broker did not answer.
        changelog_ids: changelog topic -> its known id, without source topics of tables.
    """

    def __init__(
        self,
        id: TaskId,  # noqa: A002 - its name everywhere
        shape: TaskShape,
        directory: str | None = None,
        *,
        watermark_idle_seconds: float = 0.0,
        task_idle_seconds: Mapping[str, float] | None = None,
    ) -> None:
        self.id = id
        self.shape = shape
        self.inputs = shape.inputs
        self.changelogs = shape.changelogs
        self.source_changelogs = shape.source_changelogs
        self.directory = directory
        self.cuts = ChangelogCuts()
        self._noted_times: Mapping[str, object] = {}
        self.input_ends: dict[TopicPartition, int] = {}
        self._idle_seconds = watermark_idle_seconds, task_idle_seconds or {}
        self._start_over()
        self.position = Position()
        self.attempt = BatchAttempt()
        self.copy = LocalCopy()
        self.owner = ""
        self.task_epoch = 0
        self.hindered = 0
        self.changelog_ids: Mapping[str, str] = {}
        #: Stores whose changelogs got records since the task was positioned.
        self._written: set[str] = set()
        self._machine = StateMachine(f"task {id}", TaskState.CREATED, FOLLOWING)
        #: May be read on any thread. The stream thread reads it for all tasks ten times a second.
        self.state = self._machine.state

    @classmethod
    def of(cls, id_: TaskId, shape: TaskShape, directory: str | None, config: StreamsConfig) -> Self:
        """Return a task with the instance's settings."""
        return cls(
            id_,
            shape,
            directory,
            watermark_idle_seconds=config.watermark_idle_ms / 1000,
            task_idle_seconds={
                store: max(config.max_task_idle_ms, config.join_idle_ms if store in shape.joins else 0) / 1000
                for store in shape.merged
            },
        )

    @property
    def history(self) -> tuple[str, ...]:
        """The last 20 events, oldest first."""
        return self._machine.history

    @property
    def stateful(self) -> bool:
        """True if the task has a store with a changelog."""
        return bool(self.changelogs)

    @property
    def unlogged(self) -> bool:
        """True if the task has stores, all without changelogs."""
        return self.directory is not None and not self.changelogs

    @property
    def lag(self) -> int:
        """Changelog offsets still to restore, where the ends are known."""
        return behind(self.copy.offsets, self.copy.ends)

    @property
    def offset_sum(self) -> int:
        """Changelog offsets restored or written so far, as subscriptions report them."""
        return sum(self.copy.offsets.get(partition, 0) for partition in self.changelogs.values())

    # -- assignment: called by the stream thread ---------------------------------------------------------------------

    def assigned_standby(self) -> RestoreWork | None:
        """Follow the changelog; a task that ran here gives up its transaction."""
        self._on(TaskEvent.ASSIGNED_STANDBY)
        self.attempt, self.hindered = BatchAttempt(), 0
        self.copy.ends, self.copy.wiped_after = {}, None
        if self.directory is None:
            return None
        return self._restore_work(self.directory)

    def assigned_active(self) -> None:
        """Become active, with the existing copy of the state."""
        self._on(TaskEvent.ASSIGNED_ACTIVE)
        self.copy.ends = {}

    def withdrawn(self) -> None:
        """Leave this thread."""
        self._on(TaskEvent.WITHDRAWN)

    # -- initialization: called by the stream thread -----------------------------------------------------------------

    def initialized(
        self,
        task_epoch: int,
        ends: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
    ) -> RestoreWork | None:
        """Become the owner; return what to restore, None for a stateless task.

        ``ends`` of changelogs were listed after former owners were fenced; ``committed`` has the group's offsets if the
        task has stores without changelog or tables that reuse their topic.
        """
        self._on(TaskEvent.INITIALIZED)
        # Another owner may have run the task in between.
        self._start_over()
        self.task_epoch = task_epoch
        # The intent is read from the commits again: an earlier one may be committed by now.
        self.attempt.ranges, self.attempt.intended = None, False
        if self.directory is None:
            return None
        sources = self.source_changelogs
        self.copy.ends = {
            # Records after the group's offset are input: they are processed, and their changes sent downstream.
            partition: min(ends[partition], committed.get(partition, 0)) if partition in sources else ends[partition]
            for partition in self.changelogs.values()
        }
        work = self._restore_work(self.directory)
        work.task_epoch, work.ends = self.task_epoch, dict(self.copy.ends)
        if self.unlogged:
            work.committed = {p: committed.get(p) for p in self.inputs if p.topic in self.shape.state_topics}
            work.width = self.shape.width
        return work

    def _restore_work(self, directory: str) -> RestoreWork:
        return RestoreWork(
            task=self.id,
            directory=directory,
            changelogs=self.changelogs,
            source_changelogs=self.source_changelogs,
            cut=self.shape.cut,
            wipe=self.copy.wipe,
        )

    def restore_begun(self) -> None:
        """Record that the restore was assigned: a copy that must be rebuilt will be."""
        self.copy.wipe = False

    def restore_progressed(
        self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Record the copy's offsets; ``ends`` are those that a standby follows."""
        self.copy.offsets = dict(offsets)
        if ends is not None:
            self.copy.ends = dict(ends)
            self.copy.wipe = False

    def positioned(
        self,
        offsets: Mapping[TopicPartition, int],
        skipped: Mapping[TopicPartition, int],
        batch: int | None,
        topic_ids: Mapping[str, str] | None = None,
        changelog_ids: Mapping[str, str] | None = None,
    ) -> None:
        """Start at these input offsets.

        ``batch`` is the last batch that the store knows as committed, None without a store. Ids of source topics and
        changelogs are given as far as known.
        """
        own = {p.topic for p in self.changelogs.values() if p not in self.source_changelogs}
        self.changelog_ids = {topic: id_ for topic, id_ in (changelog_ids or {}).items() if topic in own}
        self._written.clear()
        self.position.offsets, self.position.skipped = dict(offsets), dict(skipped)
        self.position.topic_ids = topic_ids or {}
        # The store decides what was committed: our own failed batches must not count.
        self.position.batch = max(self.position.batch, batch or 0)
        self.position.committed = self.position.batch if batch is None else batch

    def continue_event_times(self, commits: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Restore the written event times from commits: failed batches raised them beyond what readers rely on."""
        reached = reached_by(self.inputs, {p: noted_times(commits[p].metadata) for p in self.inputs if p in commits})
        self._noted_times = as_note(reached)
        self.written_times = WrittenTimes(self.shape.timed_sinks, reached)

    def noted(self, commits: Mapping[TopicPartition, OffsetAndMetadata], now_ms: int) -> BatchNote | None:
        """Continue the batch numbers in the commits of the inputs, once the task is positioned.

        An unfinished batch is taken over unchanged. Without notes (a new task, or offsets that expired or were set by
        hand) numbers continue from the clock, ``now_ms``, so that none is used twice with different rows. Returns the
        unfinished batch that cannot run again because the task is at other offsets now.
        """
        note = newest_batch(self.id, (commits[p].metadata for p in self.inputs if p in commits))
        intent = None if note is None else note.intent
        if note is None:
            self.position.batch = max(self.position.batch, now_ms)
        elif (
            intent is not None
            and all(self.position.offsets.get(p) == start for p, (start, _) in intent.ranges.items())
            and (self.directory is None or note.number > self.position.committed)
        ):
            self.position.batch = note.number
            self.attempt = BatchAttempt.of(intent, failures=self.attempt.failures)
        else:
            self.position.batch = max(self.position.batch, note.number)
        return None if intent is None or self.attempt.intended else note

    def restored(self) -> None:
        """Enter service."""
        self._on(TaskEvent.RESTORED)

    def hindered_by_silence(self) -> None:
        """Return to CREATED: the broker did not answer before the task was in service."""
        self._on(TaskEvent.HINDERED)

    def fell_out(self) -> None:
        """Return to CREATED: it was fenced, a batch's outcome is unknown, or its store is out of step."""
        self._on(TaskEvent.FELL_OUT)
        self.attempt.ranges = None
        if self.copy.wipe:
            self.copy.offsets = {}

    # -- micro-batches: called by the batch thread -------------------------------------------------------------------

    def ends_listed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Record listed ends. The copy is at its changelogs' ends unless others wrote; a commit proves they did not."""
        sources = self.source_changelogs
        self.copy.listed |= {p: ends[p] for p in self.changelogs.values() if p in ends and p not in sources}
        self.input_ends |= {partition: ends[partition] for partition in self.inputs if partition in ends}

    def next_ranges(
        self,
        positions: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        limit: int,
        now: float,
        clock_ms: int = 0,
    ) -> Ranges:
        """Return the next micro-batch's ranges: those of an unfinished batch, or new input; empty: nothing to do.

        ``positions`` are the task's offsets when the ends were listed; an input without an end has nothing new.
        """
        self.ends_listed(ends)
        if self.attempt.ranges:
            self.times.retried(self.attempt, now, clock_ms)
            return self.attempt.ranges
        ranges = plan_ranges(positions, ends, limit, self.shape.table_topics)
        return self.times.chosen(self.attempt, positions, ranges, self._behind(positions, ranges), now, clock_ms)

    def pass_over(self, partition: TopicPartition, offset: int) -> None:
        """Skip to an offset because earlier records were deleted; drop the unfinished batch."""
        self.position.skipped[partition] = self.position.offsets[partition]
        self.position.offsets[partition] = offset
        self.attempt.ranges = None

    def commit_notes(self, reports: Collection[LegReport]) -> dict[TopicPartition, str]:
        """Return the notes to commit with the batch's offsets."""
        assert self.attempt.ranges is not None, f"task {self.id} has no batch under way"
        newest = {topic: time for report in reports for topic, time in report.newest_out.items()}
        limit = min(self.attempt.limits.values(), default=LATEST)
        self._noted_times = self.written_times.note(newest, limit=limit)
        written = {report.state.store for report in reports if report.state is not None}
        return self._notes(None, written, owner=self.owner)

    def intent_notes(self, clock_ms: int) -> dict[TopicPartition, str]:
        """Return the notes of the commit before the batch: its ranges, and what else its rows depend on."""
        self.attempt.clock_ms = clock_ms
        return self._notes(self.attempt.intent(), owner=self.owner)

    def standing_notes(self, *, released: bool = False) -> dict[TopicPartition, str]:
        """Return the notes of a commit between batches; ``released`` if the task leaves and has no open transaction."""
        intent = self.attempt.intent() if self.attempt.intended else None
        return self._notes(intent, owner=RELEASED if released else self.owner)

    def _notes(
        self, intent: BatchIntent | None, written: Collection[str] = (), *, owner: str
    ) -> dict[TopicPartition, str]:
        """Return the notes of a commit; ``written`` are the stores whose changelogs got records in it."""
        notes: dict[TopicPartition, dict[str, object]] = {
            p: {**SOURCE_CHANGELOG, TASKS: self.shape.width} for p in self.source_changelogs
        }
        batch = BatchNote(self.id, self.position.batch, intent).as_json() if self.shape.foreach_batch else None
        # Of the stores whose changelogs have records, or will have some with the commit.
        changelogs = {
            store: self.changelog_ids[p.topic]
            for store, p in sorted(self.changelogs.items())
            if p.topic in self.changelog_ids
            and (store in written or store in self._written or self.copy.offsets.get(p, 0) > 0)
        }
        if batch or self._noted_times or changelogs or owner:
            parts = {OWNER: owner, "batch": batch, "event_times": self._noted_times, CHANGELOGS: changelogs}
            notes.setdefault(self.inputs[0], {}).update(parts)
        return {partition: note_text(self.id, parts) for partition, parts in notes.items()}

    def batch_begun(self, ranges: Ranges) -> None:
        """Begin a batch, or retry the unfinished one."""
        self._on(TaskEvent.BATCH_BEGUN)
        attempt = self.attempt
        if attempt.ranges is None:
            self.position.batch += 1
            attempt.tries = 0
            attempt.behind = self._behind(self.position.offsets, ranges)
            attempt.clock_ms, attempt.intended, attempt.fixed = 0, False, False
            attempt.left_out = {}
        attempt.ranges = ranges
        attempt.tries += 1
        attempt.describe = self.descriptions.due(self.copy.listed, self.cuts.before)

    def batch_intended(self) -> None:
        """Record that the intent is committed: every later owner of the task knows it."""
        self.attempt.intended = True

    def batch_fixed(self) -> None:
        """Fix the batch's records for all further attempts: a function is about to get its rows."""
        self.attempt.fixed = self.attempt.intended

    def command(self, transaction: ProducerIdentity, sequences: Mapping[TopicPartition, int]) -> TaskCommand:
        """Return the command for a wave of the batch, given the lent transaction and its next sequence numbers."""
        attempt, position = self.attempt, self.position
        assert attempt.ranges is not None, f"task {self.id} has no batch under way"
        return TaskCommand(
            task=self.id,
            batch=position.batch,
            committed=position.committed,
            task_epoch=self.task_epoch,
            directory=self.directory,
            transaction=transaction,
            ranges=attempt.ranges,
            positions={p: offset for p, offset in position.offsets.items() if p.topic in self.shape.state_topics},
            changelog_next=dict(self.copy.offsets),
            sequences=dict(sequences),
            skipped=dict(position.skipped),
            tries=attempt.tries,
            behind=attempt.behind,
            silence_ms=attempt.silence_ms,
            awaited=attempt.awaited,
            event_time_limits=attempt.limits,
            unread=attempt.unread,
            clock_ms=attempt.clock_ms,
            now_ms=attempt.now_ms,
            left_out=attempt.left_out,
            describe=attempt.describe,
            topic_ids=position.topic_ids,
            changelog_ids=self.changelog_ids,
            fixed=attempt.fixed,
        )

    def batch_committed(self, states: Iterable[StateReport] = ()) -> None:
        """Record that the batch is committed; ``states`` are the reports of its stateful steps."""
        self._on(TaskEvent.BATCH_COMMITTED)
        attempt, position = self.attempt, self.position
        assert attempt.ranges is not None, f"task {self.id} has no batch under way"
        position.offsets.update({partition: end for partition, (_, end) in attempt.ranges.items()})
        for partition in attempt.ranges:
            position.skipped.pop(partition, None)
        position.committed = position.batch
        # The commit proves that nobody else has owned the task since the ends were listed: all records are ours.
        self.copy.offsets |= self.copy.listed
        self.copy.offsets |= {partition: position.offsets[partition] for partition in self.source_changelogs}
        states = tuple(states)
        self.times.committed(states, attempt, position.offsets)
        for state in states:
            self._written.add(state.store)
            self.copy.disk_bytes = state.disk_bytes
            changelog = self.changelogs.get(state.store)
            if changelog is None:
                continue
            if changelog.topic in attempt.describe:
                self.descriptions.committed(changelog, self.copy.listed[changelog])
            if state.expired is not None and state.store in self.shape.cut:
                listed, last = self.copy.listed[changelog], state.last_end
                self.cuts.committed(changelog, listed, expired=state.expired, last_end=last)
        attempt.ranges = None
        attempt.failures = 0

    def batch_aborted(self) -> None:
        """Record that the batch was aborted."""
        self._on(TaskEvent.BATCH_ABORTED)

    def batch_narrowed(self, records: int) -> None:
        """Retry the failed batch with at most that many of its records."""
        ranges = self.attempt.narrow(records, self.shape.table_topics)
        self.attempt.limit(self.times.event_time_limits, self.position.offsets, ranges)
        self.attempt.behind = self._behind(self.position.offsets, ranges)

    def failed(self) -> int:
        """Count a persistent failure of the task; return the number of consecutive ones."""
        self.attempt.failures += 1
        return self.attempt.failures

    def copy_corrupt(self) -> bool:
        """Rebuild the copy; return False if it was already rebuilt for the same batch, so that this cannot help."""
        helps = self.copy.wiped_after != self.position.committed
        self.copy.wipe, self.copy.wiped_after = True, self.position.committed
        return helps

    def copy_lost(self) -> None:
        """Forget the copy's offsets."""
        self.copy.offsets = {}

    def close_command(self, *, close: bool = True) -> RestoreCommand | None:
        """Return the command that drops journals of committed batches and syncs or closes the stores, if any."""
        running = self.state is TaskState.RUNNING
        if self.directory is None or not (running or close):
            return None
        return RestoreCommand(
            task=self.id,
            directory=self.directory,
            drop_journals=self.position.committed if running else None,
            changelog_next=dict(self.copy.offsets) if running else {},
            task_epoch=self.task_epoch,
            close=close,
        )

    def _start_over(self) -> None:
        """Track times and descriptions from scratch, as a new owner does."""
        self.times = TaskTimes(self.shape, *self._idle_seconds, unlogged=self.unlogged)
        self.written_times = WrittenTimes(self.shape.timed_sinks)
        self.descriptions = StoreDescriptions()

    def _behind(self, positions: Mapping[TopicPartition, int], ranges: Ranges) -> frozenset[str]:
        """Return the topics with more records than these ranges."""
        return topics_behind(stops_of(positions, ranges), self.input_ends)

    def _on(self, event: TaskEvent) -> None:
        """Apply an event; raise IllegalTransitionException if it cannot occur in this state."""
        sources, target = TRANSITIONS[event]
        if self.state not in sources:
            raise self._machine.refusal(event.name)
        if target is None:
            self._machine.note(event.name)
        else:
            self._machine.move(target, event.name)
            self.state = target


#: The tasks of a micro-batch with the ranges that each takes.
Work = dict["TaskId", tuple[Task, Ranges]]


def new_task_epoch() -> int:
    """Return a unique epoch; 0 is never returned."""
    return secrets.randbits(_EPOCH_BITS) + 1
