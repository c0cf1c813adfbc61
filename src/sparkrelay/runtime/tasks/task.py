"""A task as its driver sees it: what it reads, who owns it, and where it stands. Events go in, commands come out.

``task_state`` draws which event may come when. No I/O here.
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
from sparkrelay.runtime.tasks.due_times import DueTimes
from sparkrelay.runtime.tasks.event_times import EventTimeLimits, WrittenTimes, reached_by, reached_in, said_again
from sparkrelay.runtime.tasks.idle_topics import IdleTopics
from sparkrelay.runtime.tasks.idle_watermarks import IdleWatermarks
from sparkrelay.runtime.tasks.position import LocalCopy, Position
from sparkrelay.runtime.tasks.ranges import behind, plan_ranges, stops_of, topics_behind
from sparkrelay.runtime.tasks.restore_work import RestoreWork
from sparkrelay.runtime.tasks.store_descriptions import StoreDescriptions
from sparkrelay.runtime.tasks.task_state import FOLLOWING, TRANSITIONS, TaskEvent, TaskState
from sparkrelay.state.watermarks import LATEST
from sparkrelay.state_machine import StateMachine

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.client.admin import CommittedOffset
    from sparkrelay.client.transactions import ProducerIdentity
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.contract.commands import LegReport, StateReport
    from sparkrelay.runtime.topics.layout import TaskShape
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["Task", "new_task_epoch"]

Ranges = dict["TopicPartition", tuple[int, int]]
_EPOCH_BITS: Final = 62


class Task:
    """One task of a stream thread. That thread's, and the batch thread's while a micro-batch of it is under way.

    Args:
        id: its name.
        shape: what it reads and keeps.
        directory: state directory, or None for a stateless task.
        watermark_idle_seconds: after how long without input watermarks go on (``watermark.idle.ms``); 0: never.
        task_idle_seconds: store -> for how long a silent source topic of its grouping or join holds its watermark back;
            0: not.

    Attributes:
        source_changelogs: the inputs that are changelogs, too, of tables that reuse their topic.
        cuts: where those may be cut.
        descriptions: when they are to say what their stores hold.
        owner: who writes for it, as its commits are to say; empty: they need not.
        task_epoch: number of this time that it is run here; the store refuses batches of any other.
        hindered: times in a row that the broker's silence kept it from being initialized or served.
        changelog_ids: changelog topic -> its id, as far as known, without tables' source topics.
    """

    __slots__ = (
        "_machine",
        "_times_said",
        "_written",
        "attempt",
        "changelog_ids",
        "changelogs",
        "copy",
        "cuts",
        "descriptions",
        "directory",
        "due_times",
        "event_time_limits",
        "hindered",
        "id",
        "idle_topics",
        "idle_watermarks",
        "input_ends",
        "inputs",
        "owner",
        "position",
        "shape",
        "source_changelogs",
        "state",
        "task_epoch",
        "task_idle_seconds",
        "watermark_idle_seconds",
        "written_times",
    )

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
        self._times_said: Mapping[str, object] = {}
        self.input_ends: dict[TopicPartition, int] = {}
        # An idle batch takes no offsets. So offsets, which are all that a store without changelog goes by when it is
        # taken over, do not say whether one of them was committed.
        self.watermark_idle_seconds = 0.0 if self.unlogged else watermark_idle_seconds
        self.task_idle_seconds = {} if task_idle_seconds is None else task_idle_seconds
        if shape.merged and self.watermark_idle_seconds:
            # As long as a topic is waited for, the clock does not go on without it.
            self.watermark_idle_seconds = max(self.watermark_idle_seconds, *self.task_idle_seconds.values())
        self._watch_idleness()
        self.position = Position()
        self.attempt = BatchAttempt()
        self.copy = LocalCopy()
        self.owner = ""
        self.task_epoch = 0
        self.hindered = 0
        self.changelog_ids: Mapping[str, str] = {}
        #: Stores whose changelogs have had records since the task was positioned.
        self._written: set[str] = set()
        self._machine = StateMachine(f"task {id}", TaskState.CREATED, FOLLOWING)
        #: Where it stands. Any thread may ask, and the stream thread asks all its tasks ten times a second.
        self.state = self._machine.state

    @classmethod
    def of(cls, id_: TaskId, shape: TaskShape, directory: str | None, config: StreamsConfig) -> Self:
        """Return a task of that shape, which the instance's settings are true of."""
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
        """Its last 20 events, oldest first."""
        return self._machine.history

    @property
    def stateful(self) -> bool:
        """True if any leg of the task has a store with a changelog."""
        return bool(self.changelogs)

    @property
    def unlogged(self) -> bool:
        """True if the task has stores, none of which has a changelog."""
        return self.directory is not None and not self.changelogs

    @property
    def goes_by_silence(self) -> bool:
        """True if watermarks of the task may go on because nothing comes."""
        return self.idle_watermarks.counts or self.idle_topics.counts

    @property
    def lag(self) -> int:
        """Changelog offsets still to restore, as far as the ends are known."""
        return behind(self.copy.offsets, self.copy.ends)

    @property
    def offset_sum(self) -> int:
        """Changelog offsets restored or written so far, as a subscription reports them."""
        return sum(self.copy.offsets.get(partition, 0) for partition in self.changelogs.values())

    # -- events of the group: the stream thread's --------------------------------------------------------------------

    def assigned_standby(self) -> RestoreWork | None:
        """Follow the changelog from now on; a task that ran here gives its transaction up."""
        self._on(TaskEvent.ASSIGNED_STANDBY)
        self.attempt, self.hindered = BatchAttempt(), 0
        self.copy.ends, self.copy.wiped_after = {}, None
        if self.directory is None:
            return None
        return RestoreWork(
            task=self.id,
            directory=self.directory,
            changelogs=self.changelogs,
            source_changelogs=self.source_changelogs,
            cut=self.shape.cut,
            wipe=self.copy.wipe,
        )

    def assigned_active(self) -> None:
        """Become the one that runs the task, with the copy that it has."""
        self._on(TaskEvent.ASSIGNED_ACTIVE)
        self.copy.ends = {}

    def withdrawn(self) -> None:
        """Belong to this thread no more."""
        self._on(TaskEvent.WITHDRAWN)

    # -- events on the way into service: the stream thread's ----------------------------------------------------------

    def initialized(
        self,
        task_epoch: int,
        ends: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
    ) -> RestoreWork | None:
        """Begin to run the task here; return what is to be restored, None for a stateless task.

        Args:
            task_epoch: a new one.
            ends: the changelogs' ends, listed when no former owner could write any more.
            committed: the group's offsets, if the task has stores without changelog or tables that reuse their topic.
        """
        self._on(TaskEvent.INITIALIZED)
        # Others may have run it meanwhile.
        self._watch_idleness()
        self.task_epoch = task_epoch
        # Commits say what is intended: what was intended before may be in by now.
        self.attempt.ranges, self.attempt.intended = None, False
        if self.directory is None:
            return None
        sources = self.source_changelogs
        self.copy.ends = {
            # What the topic has beyond the group's offset is still to be taken in, and its changes to be sent on.
            partition: min(ends[partition], committed.get(partition, 0)) if partition in sources else ends[partition]
            for partition in self.changelogs.values()
        }
        return RestoreWork(
            task=self.id,
            directory=self.directory,
            changelogs=self.changelogs,
            source_changelogs=sources,
            cut=self.shape.cut,
            task_epoch=self.task_epoch,
            ends=dict(self.copy.ends),
            committed={p: committed.get(p) for p in self.inputs if p.topic in self.shape.state_topics}
            if self.unlogged
            else None,
            width=self.shape.width if self.unlogged else None,
            wipe=self.copy.wipe,
        )

    def restore_begun(self) -> None:
        """Take it that the restore has what it needs: a copy that was to be rebuilt will be."""
        self.copy.wipe = False

    def restore_progressed(
        self, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """Note how far the copy is; ``ends`` are those that a standby follows."""
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
        """Begin at those offsets.

        Args:
            offsets: of its inputs.
            skipped: see :class:`Position`.
            batch: the last one that the store knows as committed; None without a store.
            topic_ids: source topic -> the id of the topic that the offsets belong to, as far as known.
            changelog_ids: changelog topic -> its id, as far as known.
        """
        own = {p.topic for p in self.changelogs.values() if p not in self.source_changelogs}
        self.changelog_ids = {topic: id_ for topic, id_ in (changelog_ids or {}).items() if topic in own}
        self._written.clear()
        self.position.offsets, self.position.skipped = dict(offsets), dict(skipped)
        self.position.topic_ids = topic_ids or {}
        # What the store knows: batches of ours that came to nothing must not count as committed.
        self.position.batch = max(self.position.batch, batch or 0)
        self.position.committed = self.position.batch if batch is None else batch

    def goes_on_saying(self, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Say of event times what the commits of its inputs say, and go on from there.

        A batch of ours that came to nothing has said more: whoever reads what the task writes would not wait for that.
        """
        reached = reached_by(self.inputs, {p: reached_in(commits[p].metadata) for p in self.inputs if p in commits})
        self._times_said = said_again(reached)
        self.written_times = WrittenTimes(self.shape.timed_sinks, reached)

    def noted(self, commits: Mapping[TopicPartition, CommittedOffset], now_ms: int) -> BatchNote | None:
        """Go on by what the commits of its inputs say of its batches, once it is positioned.

        A batch that was begun is taken as it was. Where nothing says how far the numbers are (it is new, or its offsets
        expired or were set by hand), they go on from the clock: none may come again with other rows.

        Args:
            commits: of its inputs.
            now_ms: milliseconds since 1970.

        Returns:
            The batch that was begun and cannot be taken any more, since the task stands elsewhere.
        """
        note = newest_batch(self.id, (commits[p].metadata for p in self.inputs if p in commits))
        if note is None:
            self.position.batch = max(self.position.batch, now_ms)
        elif note.intent is None or not self._stands_at(note.number, note.intent.ranges):
            self.position.batch = max(self.position.batch, note.number)
        else:
            self.position.batch = note.number
            self.attempt = BatchAttempt.of(note.intent, failures=self.attempt.failures)
        return None if note is None or note.intent is None or self.attempt.intended else note

    def _stands_at(self, number: int, ranges: Ranges | Mapping[TopicPartition, tuple[int, int]]) -> bool:
        """Return whether a batch of that number and ranges may be the next one."""
        offsets = self.position.offsets
        return all(offsets.get(p) == start for p, (start, _) in ranges.items()) and (
            self.directory is None or number > self.position.committed
        )

    def restored(self) -> None:
        """Be in service."""
        self._on(TaskEvent.RESTORED)

    def hindered_by_silence(self) -> None:
        """Be initialized once more, as the broker did not answer before the task was in service."""
        self._on(TaskEvent.HINDERED)

    def fell_out(self) -> None:
        """Be initialized once more: it was fenced, the outcome of a batch is unknown, or its store lost step."""
        self._on(TaskEvent.FELL_OUT)
        self.attempt.ranges = None
        if self.copy.wipe:
            self.copy.offsets = {}

    # -- events of a micro-batch: the batch thread's -------------------------------------------------------------------

    def ends_listed(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note the inputs' ends and the changelogs', as far as they were listed.

        Where those end the copy stands if nobody else has written since; a commit proves it.
        """
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
        """Return what the next micro-batch takes: what an unfinished one took, else what is new; empty: there is none.

        Once it is time for windows of idle inputs to end, or of inputs that waited for an idle one, or something is due
        by the clock, there is one that takes no record of those.

        Args:
            positions: where the task stood when the ends were asked for.
            ends: of its inputs and changelogs, as far as they are known. An input without one has nothing new.
            limit: offsets that it may take.
            now: monotonic time in seconds.
            clock_ms: what the clock of the wall says, in milliseconds since 1970.
        """
        self.ends_listed(ends)
        ranges = self.attempt.ranges
        if ranges:
            # One that a former owner began was not chosen here.
            self.attempt.looked_at = self.attempt.looked_at or now
            if self.attempt.now_ms is None:
                self.attempt.now_ms = clock_ms
            if not self.attempt.silence_ms:
                self.idle_watermarks.had_input(now)
            return ranges
        self.attempt.silence_ms, self.attempt.now_ms = 0, clock_ms
        ranges = plan_ranges(positions, ends, limit, self.shape.table_topics)
        self.attempt.limit(self.event_time_limits, positions, ranges)
        unread = self.event_time_limits.unread_since
        awaited = self.idle_topics.look(self._behind(positions, ranges), now, unread)
        self.attempt.awaited, self.attempt.looked_at = awaited, now
        if any(partition.topic in self.shape.timed_topics for partition in ranges):
            self.idle_watermarks.had_input(now)
        elif self.shape.timed_topics and (silence_ms := self.idle_watermarks.due(now, unread.values())):
            self.attempt.silence_ms = silence_ms
            ranges |= {p: (offset, offset) for p, offset in positions.items() if p.topic in self.shape.timed_topics}
        topics = (
            self.idle_topics.due(awaited)
            | self.event_time_limits.due(self.attempt.limits)
            | self.due_times.due(clock_ms)
        )
        if topics and not self.unlogged:
            idle = {p: (offset, offset) for p, offset in positions.items() if p.topic in topics}
            ranges = idle | ranges
        return ranges

    def pass_over(self, partition: TopicPartition, offset: int) -> None:
        """Go on at an offset, as the records before it are gone; what the batch under way took counts no more."""
        self.position.skipped[partition] = self.position.offsets[partition]
        self.position.offsets[partition] = offset
        self.attempt.ranges = None

    def inputs_unknown(self, now: float) -> None:
        """Note that nobody could say whether there is input: that is no silence."""
        self.idle_watermarks.had_input(now)
        self.idle_topics.inputs_unknown(now)

    def commit_notes(self, reports: Collection[LegReport]) -> dict[TopicPartition, str]:
        """Return what is to be noted with the offsets that are committed with the batch."""
        assert self.attempt.ranges is not None, f"task {self.id} has no batch under way"
        newest = {topic: time for report in reports for topic, time in report.newest_out.items()}
        limit = min(self.attempt.limits.values(), default=LATEST)
        self._times_said = self.written_times.note(newest, limit=limit)
        written = {report.state.store for report in reports if report.state is not None}
        return self._notes(None, written, owner=self.owner)

    def intent_notes(self, clock_ms: int) -> dict[TopicPartition, str]:
        """Return what the commit before the batch is to say: what it takes, and by what its rows go.

        Raises:
            StreamsException: that is too long.
        """
        self.attempt.clock_ms = clock_ms
        return self._notes(self.attempt.intent(), owner=self.owner)

    def standing_notes(self, *, released: bool = False) -> dict[TopicPartition, str]:
        """Return what a commit between batches is to note, which takes the place of what was noted before.

        Args:
            released: True if the task leaves, and nothing of it is under way.
        """
        intent = self.attempt.intent() if self.attempt.intended else None
        return self._notes(intent, owner=RELEASED if released else self.owner)

    def _notes(
        self, intent: BatchIntent | None, written: Collection[str] = (), *, owner: str
    ) -> dict[TopicPartition, str]:
        """Return the notes of a commit; ``written`` are the stores whose changelogs have records in it."""
        notes: dict[TopicPartition, dict[str, object]] = {
            p: {**SOURCE_CHANGELOG, TASKS: self.shape.width} for p in self.source_changelogs
        }
        batch = BatchNote(self.id, self.position.batch, intent).as_json() if self.shape.foreach_batch else None
        changelogs = self._changelogs_with_state(written)
        if batch or self._times_said or changelogs or owner:
            said = {OWNER: owner, "batch": batch, "event_times": self._times_said, CHANGELOGS: changelogs}
            notes.setdefault(self.inputs[0], {}).update(said)
        return {partition: note_text(self.id, parts) for partition, parts in notes.items()}

    def _changelogs_with_state(self, written: Collection[str]) -> dict[str, str]:
        """Return store -> its changelog's id, of those that have records or will have some with the commit."""
        return {
            store: self.changelog_ids[p.topic]
            for store, p in sorted(self.changelogs.items())
            if p.topic in self.changelog_ids
            and (store in written or store in self._written or self.copy.offsets.get(p, 0) > 0)
        }

    def batch_begun(self, ranges: Ranges) -> None:
        """Begin a batch of those ranges, or try the unfinished one again."""
        self._on(TaskEvent.BATCH_BEGUN)
        if self.attempt.ranges is None:
            self.position.batch += 1
            self.attempt.tries = 0
            self.attempt.behind = self._behind(self.position.offsets, ranges)
            self.attempt.clock_ms, self.attempt.intended, self.attempt.fixed = 0, False, False
            self.attempt.left_out = {}
        self.attempt.ranges = ranges
        self.attempt.tries += 1
        self.attempt.describe = self.descriptions.due(self.copy.listed, self.cuts.before)

    def batch_intended(self) -> None:
        """Take it that every owner of the task knows by now what the batch takes."""
        self.attempt.intended = True

    def batch_fixed(self) -> None:
        """Have the batch take the same records in every try from now on: a function is about to get its rows."""
        self.attempt.fixed = self.attempt.intended

    def command(self, transaction: ProducerIdentity, sequences: Mapping[TopicPartition, int]) -> TaskCommand:
        """Return what a wave of the batch is to do.

        Args:
            transaction: what to write under.
            sequences: where that goes on.
        """
        assert self.attempt.ranges is not None, f"task {self.id} has no batch under way"
        seen = {p: offset for p, offset in self.position.offsets.items() if p.topic in self.shape.state_topics}
        return TaskCommand(
            task=self.id,
            batch=self.position.batch,
            committed=self.position.committed,
            task_epoch=self.task_epoch,
            directory=self.directory,
            transaction=transaction,
            ranges=self.attempt.ranges,
            positions=seen,
            changelog_next=dict(self.copy.offsets),
            sequences=dict(sequences),
            skipped=dict(self.position.skipped),
            tries=self.attempt.tries,
            behind=self.attempt.behind,
            silence_ms=self.attempt.silence_ms,
            awaited=self.attempt.awaited,
            event_time_limits=self.attempt.limits,
            unread=self.attempt.unread,
            clock_ms=self.attempt.clock_ms,
            now_ms=self.attempt.now_ms,
            left_out=self.attempt.left_out,
            describe=self.attempt.describe,
            topic_ids=self.position.topic_ids,
            changelog_ids=self.changelog_ids,
            fixed=self.attempt.fixed,
        )

    def batch_committed(self, states: Iterable[StateReport] = ()) -> None:
        """Take it that everything that the batch wrote is in; ``states`` are what its stateful steps have reported."""
        self._on(TaskEvent.BATCH_COMMITTED)
        assert self.attempt.ranges is not None, f"task {self.id} has no batch under way"
        self.position.offsets.update({partition: end for partition, (_, end) in self.attempt.ranges.items()})
        for partition in self.attempt.ranges:
            self.position.skipped.pop(partition, None)
        self.position.committed = self.position.batch
        # Nobody has initialized the task between the look and this commit, so all that was there is ours.
        self.copy.offsets |= self.copy.listed
        self.copy.offsets |= {partition: self.position.offsets[partition] for partition in self.source_changelogs}
        states = tuple(states)
        self.idle_watermarks.committed(states)
        self.idle_topics.committed(states, self.attempt.awaited, self.attempt.looked_at)
        self.due_times.committed(states, self.attempt.now_ms or 0)
        topics = {partition.topic for partition in self.attempt.ranges}
        self.event_time_limits.committed(states, self.attempt.limits, topics, self.position.offsets)
        for state in states:
            self._written.add(state.store)
            self.copy.disk_bytes = state.disk_bytes
            changelog = self.changelogs.get(state.store)
            if changelog is None:
                continue
            if changelog.topic in self.attempt.describe:
                self.descriptions.committed(changelog, self.copy.listed[changelog])
            if state.expired is not None and state.store in self.shape.cut:
                listed, last = self.copy.listed[changelog], state.last_end
                self.cuts.committed(changelog, listed, expired=state.expired, last_end=last)
        self.attempt.ranges = None
        self.attempt.failures = 0

    def batch_aborted(self) -> None:
        """Take it that nothing that the batch wrote counts."""
        self._on(TaskEvent.BATCH_ABORTED)

    def batch_narrowed(self, records: int) -> None:
        """Have the batch that has failed take so many of its records when it runs again; others come in later ones."""
        ranges = self.attempt.narrow(records, self.shape.table_topics)
        self.attempt.limit(self.event_time_limits, self.position.offsets, ranges)
        self.attempt.behind = self._behind(self.position.offsets, ranges)

    def failed(self) -> int:
        """Count a failure of the task's own that does not pass of itself; return how many there were in a row."""
        self.attempt.failures += 1
        return self.attempt.failures

    def copy_corrupt(self) -> bool:
        """Have the copy rebuilt; return False if it was already, for the same batch: that cannot help."""
        helps = self.copy.wiped_after != self.position.committed
        self.copy.wipe, self.copy.wiped_after = True, self.position.committed
        return helps

    def copy_lost(self) -> None:
        """Count on nothing of the copy any more."""
        self.copy.offsets = {}

    # ------------------------------------------------------------------------------------------------------------------

    def close_command(self, *, close: bool = True) -> RestoreCommand | None:
        """Return what drops the journals of committed batches, and syncs or closes the stores; None without any."""
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

    def _watch_idleness(self) -> None:
        """Begin to count silence, as an owner of the task that has just come."""
        self.idle_watermarks = IdleWatermarks(self.watermark_idle_seconds, self.shape.cut)
        self.idle_topics = IdleTopics(self.task_idle_seconds, self.shape.merged)
        self.due_times = DueTimes(self.shape.clocked)
        self.event_time_limits = EventTimeLimits()
        self.written_times = WrittenTimes(self.shape.timed_sinks)
        self.descriptions = StoreDescriptions()

    def _behind(self, positions: Mapping[TopicPartition, int], ranges: Ranges) -> frozenset[str]:
        """Return the topics that have more than a micro-batch of those ranges takes."""
        return topics_behind(stops_of(positions, ranges), self.input_ends)

    def _on(self, event: TaskEvent) -> None:
        """Take an event.

        Raises:
            IllegalTransitionException: it cannot come now.
        """
        sources, target = TRANSITIONS[event]
        if self.state not in sources:
            raise self._machine.refusal(event.name)
        if target is None:
            self._machine.note(event.name)
        else:
            self._machine.move(target, event.name)
            self.state = target


def new_task_epoch() -> int:
    """Return a number that nobody else has run the task under, in any process; 0 is nobody's."""
    return secrets.randbits(_EPOCH_BITS) + 1
