"""Bringing tasks into service: former owners are fenced, stores restored, positions found.

Exactly-once depends on the order: docs/internals/exactly-once.md, "Initializing a task".
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import (
    KafkaException,
    RebalanceInProgressException,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commit_notes import set_by_hand, set_by_hand_note
from sparkrelay.runtime.contract.owners import RELEASED, Owner, noted_owner
from sparkrelay.runtime.tasks.ranges import name_tasks, source_offsets
from sparkrelay.runtime.tasks.replaced_topics import lost_changelogs, lost_state, replaced_topic
from sparkrelay.runtime.tasks.task import new_task_epoch
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.topics.changes import other_inputs
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.header import replaced_topics
from sparkrelay.topology.starts import Start
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkrelay.client.application_admin import ApplicationAdmin
    from sparkrelay.client.group_requests import OffsetAndMetadata
    from sparkrelay.client.transactions import TransactionCoordinator
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.contract.commands import RestoreReport
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.tasks.restore_work import RestoreWork
    from sparkrelay.runtime.tasks.state_updater import StateUpdater
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.topology.starts import TopicStart

log = logging.getLogger(__name__)

#: A partition without a leader or coordinator blocks one task; the thread must serve the others, and the group.
_LONGEST_SECONDS: Final = 10.0
_SHARE_OF_REBALANCE: Final = 0.25
#: Transaction markers take some milliseconds.
_SHORTEST_LOOK: Final = 0.005
_LONGEST_LOOK: Final = 0.2


def longest_initialization(config: StreamsConfig) -> float:
    """Return how long each request to the broker may take while tasks are initialized, in seconds."""
    share = config.max_poll_interval_ms / 1000 * _SHARE_OF_REBALANCE
    return min(_LONGEST_SECONDS, share, config.default_api_timeout_ms / 1000)


class TaskInitializer:
    """Initializes the tasks of one stream thread, on that thread."""

    def __init__(
        self,
        *,
        config: StreamsConfig,
        owner: Owner,
        transactions: TransactionCoordinator,
        application: ApplicationAdmin,
        topics: Topics,
        state_updater: StateUpdater,
        in_service: InService,
    ) -> None:
        self._config = config
        self._owner = owner
        self._transactions = transactions
        self._application = application
        self._topics = topics
        self._state_updater = state_updater
        self._in_service = in_service
        #: Names of the application's own topics.
        self.internal_topics: Collection[str] = ()
        self._source_partitions: Mapping[str, int] = {}
        #: Partitions added to source topics while this thread ran: all their records are new.
        self._added: set[TopicPartition] = set()
        #: Requested topics that are missing -> since when, and when they were last requested.
        self._missing: dict[frozenset[str], tuple[float, float]] = {}

    def see(self, layout: TaskLayout) -> None:
        """Take a new layout: names of internal topics, and partition counts of source topics."""
        self.internal_topics = layout.internal_topics.keys()
        before, self._source_partitions = self._source_partitions, layout.source_partitions
        for topic, count in layout.source_partitions.items():
            self._added |= {TopicPartition(topic, number) for number in range(before.get(topic, count), count)}

    def initialize(self, tasks: list[Task]) -> None:
        """Fence former owners and end their transactions; only then list ends and assign restores."""
        self._transactions.init(self._left_open(tasks), transaction_timeout_ms=self._config.transaction_timeout_ms)
        fault_points.reach("initialize-after-epoch")
        ends = self._decided_ends(tasks)
        try:
            # Only the group's offsets tell apart valid stores without changelog, and tables that reuse their topic.
            wanted = [p for task in tasks if task.unlogged for p in task.inputs if p.topic in task.shape.state_topics]
            wanted += [p for task in tasks for p in task.source_changelogs]
            committed = self._topics.committed(wanted)
            works = self._restores(tasks, ends, committed)
        except KafkaException:
            self.start_over(tasks)
            raise
        self._state_updater.assign(works)
        for task in tasks:
            task.restore_begun()

    def serve(self, ready: Sequence[tuple[Task, RestoreReport | None]]) -> None:
        """Position restored tasks and take them into service, with one request of each kind for all."""
        inputs = [partition for task, _ in ready for partition in task.inputs]
        # Offsets and notes of one moment.
        commits = self._topics.commits(inputs, stable=True)
        committed = {partition: commit.offset for partition, commit in commits.items()}
        changelogs = [partition for task, _ in ready for partition in task.changelogs.values()]
        topic_ids = self._topics.ids({partition.topic for partition in (*inputs, *changelogs)})
        self._require_state(ready, commits, topic_ids)
        restored = [(task, report) for task, report in ready if report is not None]
        seen = {
            partition: offset
            for task, found in restored
            for partition, offset in found.positions.items()
            if partition in task.inputs and partition.topic in task.shape.state_topics
        }
        for task, found in restored:
            seen |= source_offsets(task.source_changelogs, found.changelog_next, committed)
        tasks = [task for task, _ in ready]
        known = {partition: offset for task in tasks for partition, offset in task.position.offsets.items()}
        begun = {topic: start for task in tasks for topic, start in task.shape.starts.items()}
        first = self._first_offsets([p for p in inputs if p not in committed and p not in seen], known, begun)
        self._warn_of_forgotten(commits, seen)
        moved = self._begun_anew(ready, seen, commits, topic_ids)
        moved |= self._moved_by_hand(commits, {p: offset for p, offset in seen.items() if p not in moved}, topic_ids)
        positions = {**first, **committed, **seen, **moved}
        for task, report in ready:
            if report is not None and (
                change := other_inputs(task.id, report.positions, task.inputs, task.shape.state_topics)
            ):
                log.warning("%s", change)
            task.positioned(
                {partition: positions[partition] for partition in task.inputs},
                skipped={partition: seen[partition] for partition in task.inputs if partition in moved},
                batch=None if report is None else report.batch,
                topic_ids={p.topic: topic_ids[p.topic] for p in task.inputs if p.topic in topic_ids},
                changelog_ids={p.topic: topic_ids[p.topic] for p in task.changelogs.values() if p.topic in topic_ids},
            )
            task.continue_event_times(commits)
            if task.shape.foreach_batch and (lost := task.noted(commits, int(time.time() * 1000))):
                log.warning(
                    "task %s: batch %d was begun and is not run again, because the task is at other offsets now. Sinks "
                    "of foreachBatch() may have rows of it, and get those that are read again under another number",
                    task.id,
                    lost.number,
                )
        self._require_intended([task for task in tasks if task.attempt.intended])
        # From now on, changelogs that are source topics are noted as such.
        unset = [p for p in inputs if p not in committed]
        self._commit(tasks, [*unset, *(p for task in tasks for p in task.source_changelogs)], moved)
        for task in tasks:
            task.restored()
            at = ", ".join(f"{partition}@{offset}" for partition, offset in task.position.offsets.items())
            log.debug("task %s is in service at %s", task.id, at)
        self._in_service.put(tasks)

    def release(self, tasks: Collection[Task], application: ApplicationAdmin | None = None) -> None:
        """Record that leaving tasks have no open transaction, so that their next owners need to end none.

        ``application`` replaces the thread's own client, which is interrupted once the thread is to end.
        """
        positions = ((task.inputs[0], task.position.offsets.get(task.inputs[0])) for task in tasks)
        offsets = {first: offset for first, offset in positions if offset is not None}
        notes = {p: note for task in tasks for p, note in task.standing_notes(released=True).items() if p in offsets}
        member = self._in_service.present_member
        if not offsets or member is None:
            return
        try:
            (application or self._application).set_offsets(offsets, notes, member=member)
        except KafkaException as error:
            log.debug("the release of tasks %s could not be recorded: %s", name_tasks(t.id for t in tasks), error)

    def start_over(self, tasks: list[Task]) -> None:
        """Return tasks to CREATED that did not enter service because the broker did not answer."""
        for task in tasks:
            if task.state is TaskState.RESTORING:
                task.hindered_by_silence()

    def _restores(
        self,
        tasks: Collection[Task],
        ends: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
    ) -> list[RestoreWork]:
        """Take stateless tasks into service; return what to restore for the others."""
        works = [(task, task.initialized(new_task_epoch(), ends, committed)) for task in tasks]
        if stateless := [(task, None) for task, work in works if work is None]:
            self.serve(stateless)
        return [work for _, work in works if work is not None]

    def _require_state(
        self,
        ready: Sequence[tuple[Task, RestoreReport | None]],
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Raise StreamsException if state was lost with its changelog and no operator has accepted that.

        A changelog with records brings its own positions, whoever wrote it.
        """
        for task, report in ready:
            if report is None:
                continue
            empty = {
                store: partition
                for store, partition in task.changelogs.items()
                if partition not in task.source_changelogs
                and not (report.batch and report.changelog_next.get(partition, 0))
            }
            notes = {p: commits[p].metadata for p in task.inputs if p in commits}
            if lost := lost_changelogs(empty, notes, topic_ids):
                raise lost_state(self._config.application_id, task.id, lost, task.changelogs)

    def _warn_of_forgotten(
        self, commits: Mapping[TopicPartition, OffsetAndMetadata], seen: Mapping[TopicPartition, int]
    ) -> None:
        for partition, offset in sorted(seen.items()):
            if offset and partition not in commits:
                log.warning(
                    "%s: the group has no offset, although the state has seen the records up to %d: the offset has "
                    "expired or was deleted. The state decides",
                    partition,
                    offset,
                )

    def _begun_anew(
        self,
        ready: Sequence[tuple[Task, RestoreReport | None]],
        seen: Mapping[TopicPartition, int],
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str],
    ) -> dict[TopicPartition, int]:
        """Return where tasks begin in topics that replaced those in their state, as set by an operator.

        Raises StreamsException if no operator has set it.
        """
        begun = {}
        for task, report in ready:
            other = replaced_topics({} if report is None else report.topic_ids, topic_ids)
            replaced = [p for p in task.inputs if p in seen and p.topic in other]
            unset = {p.topic for p in replaced if p not in commits or not _set_by_hand(p, commits, topic_ids)}
            if unset:
                raise replaced_topic(self._config.application_id, task.id, unset, stateful=True)
            for partition in replaced:
                begun[partition] = commits[partition].offset
                log.warning(
                    "task %s: topic %r was deleted and created again. The state has seen %d offsets of the old one; it "
                    "is kept, and the task reads the new one from offset %d",
                    task.id,
                    partition.topic,
                    seen[partition],
                    begun[partition],
                )
        return begun

    def _moved_by_hand(
        self,
        commits: Mapping[TopicPartition, OffsetAndMetadata],
        seen: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
    ) -> dict[TopicPartition, int]:
        """Return the group's offsets that override those of the state.

        Both are written in one transaction, so they only differ if somebody set the group's offset. It wins if the
        records that the state needs next were deleted, or if ``sparkrelay offsets set`` moved it forward; otherwise the
        state would lose or repeat records.
        """
        moved = {p: offset for p, offset in seen.items() if p in commits and commits[p].offset != offset}
        earliest = self._offsets(dict.fromkeys(moved, EARLIEST))
        winning = {}
        for partition, offset in moved.items():
            group_offset = commits[partition].offset
            if group_offset > offset and _set_by_hand(partition, commits, topic_ids):
                winning[partition] = group_offset
                log.warning(
                    "%s: the group's offset was set to %d; records from %d on are not in the state",
                    partition,
                    group_offset,
                    offset,
                )
            elif offset < earliest[partition] <= group_offset:
                winning[partition] = group_offset
                log.warning(
                    "%s: records %d to %d are gone from the topic and are not in the state; going on at the group's "
                    "offset %d",
                    partition,
                    offset,
                    earliest[partition],
                    group_offset,
                )
            else:
                log.warning(
                    "%s: the group's offset is %d, the state has seen %d; the state decides",
                    partition,
                    group_offset,
                    offset,
                )
        return winning

    def _first_offsets(
        self,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, int],
        starts: Mapping[str, TopicStart],
    ) -> Mapping[TopicPartition, int]:
        """Return where partitions without a group offset start.

        Tasks' earlier positions, ``known``, are kept: the log end has moved since.
        """
        now = int(time.time() * 1000)
        first = {p: self._start(p, starts) for p in partitions}
        offsets = {p: start.offset for p, start in first.items() if start.offset is not None}
        listed = {p: where for p, start in first.items() if (where := start.listed_at(now)) is not None}
        kept = {p: known[p] for p, where in listed.items() if where != EARLIEST and p in known}
        found = self._offsets({p: where for p, where in listed.items() if p not in kept})
        earliest = self._offsets(dict.fromkeys(offsets, EARLIEST))
        timed = [p for p in found if listed[p] not in {EARLIEST, LATEST}]
        ends = self._offsets(dict.fromkeys([*offsets, *timed], LATEST))
        for partition, offset in offsets.items():
            if not earliest[partition] <= offset <= ends[partition]:
                raise StreamsException(
                    f"starting= says offset {offset} of {partition}, which has the offsets {earliest[partition]} to "
                    f"{ends[partition]}; name one of these"
                )
        # -1: there is no record of that time or later.
        return {p: ends[p] if offset < 0 else offset for p, offset in found.items()} | offsets | kept

    def _start(self, partition: TopicPartition, starts: Mapping[str, TopicStart]) -> Start:
        """Return where a partition without a group offset starts."""
        said = starts.get(partition.topic)
        if partition in self._added:
            return Start.parse("earliest")
        if said is None:
            return Start.parse("latest" if self._latest(partition) else "earliest")
        count = self._source_partitions.get(partition.topic, 0)
        if (start := said.of(partition.partition)) is None or max(said.partitions, default=0) >= count:
            named = ", ".join(map(str, sorted(said.partitions)))
            raise StreamsException(
                f"starting= names partitions {named} of {partition.topic}, which has {count}: name each of them"
            )
        return start

    def _require_intended(self, tasks: Collection[Task]) -> None:
        """Raise StreamsException if an intended batch cannot run again because its records are gone from the topic."""
        ranges = {
            partition: (task, *span)
            for task in tasks
            for partition, span in (task.attempt.ranges or {}).items()
            if span[0] < span[1]
        }
        if not ranges:
            return
        earliest = self._offsets(dict.fromkeys(ranges, EARLIEST))
        latest = self._offsets(dict.fromkeys(ranges, LATEST))
        for partition, (task, start, stop) in ranges.items():
            if earliest[partition] <= start and stop <= latest[partition]:
                continue
            raise StreamsException(
                f"task {task.id}: batch {task.position.batch} was begun with the records {start} to {stop - 1} of "
                f"{partition}, and its topic has only those from {earliest[partition]} to {latest[partition] - 1}. "
                "If foreachBatch() got its rows, they cannot be made again. Check what its sinks have of that batch, "
                "then set the group's offset of the partition to where the task is to continue"
            )

    def _left_open(self, tasks: Collection[Task]) -> list[str]:
        """Return the transactional ids with which former owners may still write, or have left transactions open."""
        application, found = self._config.application_id, set[str]()
        by_first = {task.inputs[0]: task for task in tasks}
        for first, commit in self._topics.commits(by_first).items():
            task, noted = by_first[first], noted_owner(commit.metadata)
            if noted is None:
                # Earlier releases had a transactional id for each task.
                found.add(f"{application}-{task.id}")
            elif noted != RELEASED and (owner := Owner.parse(noted)) is not None:
                found.update(owner.transactional_ids(application, task.id.subtopology))
        # The thread initialized its own ids when it began.
        for subtopology in {task.id.subtopology for task in tasks}:
            found.difference_update(self._owner.transactional_ids(application, subtopology))
        return sorted(found)

    def _decided_ends(self, tasks: Collection[Task]) -> Mapping[TopicPartition, int]:
        """Return the ends of the tasks' changelogs, once no transaction is open in those that only the tasks write.

        Commits of a former owner may not be visible yet. Raises TimeoutException if a transaction stays open for too
        long.
        """
        changelogs = {p for task in tasks for p in task.changelogs.values()}
        own = changelogs - {p for task in tasks for p in task.source_changelogs}
        written = self._offsets(dict.fromkeys(own, LATEST), read_committed=False)
        backoff = Backoff(_SHORTEST_LOOK, _LONGEST_LOOK)
        deadline = time.monotonic() + longest_initialization(self._config)
        while True:
            ends = self._offsets(dict.fromkeys(changelogs, LATEST))
            undecided = sorted(partition for partition in own if ends[partition] < written[partition])
            if not undecided:
                return ends
            if time.monotonic() >= deadline:
                raise TimeoutException(
                    f"a transaction is open in changelog {', '.join(map(str, undecided))}, of a former owner that the "
                    "group's offsets do not name. Waiting for brokers to abort it after its transaction.timeout.ms, "
                    f"which is {self._config.transaction_timeout_ms} here"
                )
            time.sleep(backoff.next())

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = True
    ) -> Mapping[TopicPartition, int]:
        """Return offsets. Raises TimeoutException if an initialization has no time to wait, or for a missing topic.

        A topic that is missing for as long as any call may take raises UnknownTopicException.
        """
        topics = frozenset(partition.topic for partition in wanted)
        longest = self._config.default_api_timeout_ms / 1000
        began = time.monotonic()
        since, last = self._missing.pop(topics, (began, began))
        if began - last >= longest:
            # They were not requested meanwhile: that was another failure.
            since = began
        try:
            return self._topics.offsets(
                wanted, timeout=longest_initialization(self._config), read_committed=read_committed
            )
        except UnknownTopicException as error:
            # A restarted broker may not know its topics for a while.
            now = time.monotonic()
            text = TopicNames(self._config.application_id).explain(error)
            if now - since >= longest:
                raise UnknownTopicException(text) from error
            self._missing[topics] = since, now
            raise TimeoutException(text) from error

    def _latest(self, partition: TopicPartition) -> bool:
        """Return whether a partition without a position starts at its end."""
        # Records of internal topics must all be read: the setting is for the user's topics.
        return self._config.auto_offset_reset == "latest" and partition.topic not in self.internal_topics

    def _commit(
        self, tasks: Collection[Task], partitions: Collection[TopicPartition], moved: Mapping[TopicPartition, int]
    ) -> None:
        """Commit where tasks start, and their owner, before they process anything.

        A topic's end moves: otherwise, records before the partition's first commit would be lost with the next
        initialization. ``partitions`` have no group offset or note. Where the group's offset overrides the state
        (``moved``), an operator's mark stays until the state has it too.
        """
        member = self._in_service.present_member
        if member is None:
            raise RebalanceInProgressException("this member is not in the group at present")
        offsets, notes = {}, {}
        for task in tasks:
            task.owner = str(self._owner)
            said = task.standing_notes()
            for partition in {task.inputs[0], *(p for p in task.inputs if p in partitions)}:
                offsets[partition] = task.position.offsets[partition]
                notes[partition] = said.get(partition, "")
                if partition in moved and (topic_id := task.position.topic_ids.get(partition.topic)) is not None:
                    notes[partition] = set_by_hand_note(topic_id, notes[partition])
        self._application.set_offsets(offsets, notes, member=member)


def _set_by_hand(
    partition: TopicPartition, commits: Mapping[TopicPartition, OffsetAndMetadata], topic_ids: Mapping[str, str]
) -> bool:
    """Return whether an operator set the group's offset of a partition, for the current topic of that name."""
    topic_id = set_by_hand(commits[partition].metadata)
    return topic_id is not None and topic_id == topic_ids.get(partition.topic)
