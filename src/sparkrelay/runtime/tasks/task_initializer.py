"""How tasks come into service: their transactions are opened, their stores restored, their positions found.

The order is what exactly-once stands on: docs/internals/exactly-once.md, "Initializing a task".
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
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkrelay.client.admin import CommittedOffset
    from sparkrelay.client.application_admin import ApplicationAdmin
    from sparkrelay.client.transactions import TransactionCoordinator
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.contract.commands import RestoreReport
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.tasks.restore_work import RestoreWork
    from sparkrelay.runtime.tasks.state_updater import StateUpdater
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topics import Topics

__all__ = ["TaskInitializer", "longest_initialization"]

log = logging.getLogger(__name__)


#: A partition without a leader, or a coordinator, keeps one task from service; the thread has others, and the group.
_LONGEST_SECONDS: Final = 10.0
_SHARE_OF_REBALANCE: Final = 0.25
#: Markers of a transaction that has ended take some milliseconds.
_SHORTEST_LOOK: Final = 0.005
_LONGEST_LOOK: Final = 0.2


def longest_initialization(config: StreamsConfig) -> float:
    """Return the seconds that each question to the broker may take while tasks are initialized."""
    share = config.max_poll_interval_ms / 1000 * _SHARE_OF_REBALANCE
    return min(_LONGEST_SECONDS, share, config.default_api_timeout_ms / 1000)


class TaskInitializer:
    """Opens the tasks of one stream thread, on the stream thread."""

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
        #: Input partitions that source topics got while this thread ran: whatever is in them came since.
        self._added: set[TopicPartition] = set()
        #: Topics that were asked for and are not there -> since when, and when they were last asked for.
        self._missing: dict[frozenset[str], tuple[float, float]] = {}

    def see(self, layout: TaskLayout) -> None:
        """Take a new layout: the names of the application's topics, and how many partitions those of the user have."""
        self.internal_topics = layout.internal_topics.keys()
        before, self._source_partitions = self._source_partitions, layout.source_partitions
        for topic, count in layout.source_partitions.items():
            self._added |= {TopicPartition(topic, number) for number in range(before.get(topic, count), count)}

    def initialize(self, tasks: list[Task]) -> None:
        """End what former owners have left - they write no more under what they had - and only then list ends."""
        self._transactions.init(self._left_open(tasks), transaction_timeout_ms=self._config.transaction_timeout_ms)
        fault_points.reach("initialize-after-epoch")
        ends = self._decided_ends(tasks)
        try:
            # Nothing but the group's offsets says where stores without changelog must stand, and tables that reuse
            # their topic.
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
        """Decide where tasks start and take them into service; a request asks for all of them at once."""
        inputs = [partition for task, _ in ready for partition in task.inputs]
        # Offsets and what was noted with them, as of one moment.
        commits = self._topics.commits(inputs, stable=True)
        committed = {partition: commit.offset for partition, commit in commits.items()}
        changelogs = [partition for task, _ in ready for partition in task.changelogs.values()]
        topic_ids = self._topics.ids({partition.topic for partition in (*inputs, *changelogs)})
        self._require_state(ready, commits, topic_ids)
        seen = {
            partition: offset
            for task, report in ready
            if report is not None
            for partition, offset in report.positions.items()
            if partition in task.inputs and partition.topic in task.shape.state_topics
        }
        for task, report in ready:
            if report is not None:
                seen |= source_offsets(task.source_changelogs, report.changelog_next, committed)
        known = {partition: offset for task, _ in ready for partition, offset in task.position.offsets.items()}
        tasks = [task for task, _ in ready]
        first = self._first_offsets([p for p in inputs if p not in committed and p not in seen], known)
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
            task.goes_on_saying(commits)
            if task.shape.foreach_batch and (lost := task.noted(commits, int(time.time() * 1000))):
                log.warning(
                    "task %s: batch %d was begun and is not run again as it was, because the task stands elsewhere by "
                    "now. Sinks of foreachBatch() may have rows of it, and get those that are read again under another "
                    "number",
                    task.id,
                    lost.number,
                )
        self._require_intended([task for task in tasks if task.attempt.intended])
        # Also that it is noted with them what they are, from now on.
        self._commit(tasks, [*first, *(p for task in tasks for p in task.source_changelogs)], moved)
        for task in tasks:
            task.restored()
            at = ", ".join(f"{partition}@{offset}" for partition, offset in task.position.offsets.items())
            log.debug("task %s is in service at %s", task.id, at)
        self._in_service.put(tasks)

    def release(self, tasks: Collection[Task], application: ApplicationAdmin | None = None) -> None:
        """Note of tasks that leave that nothing of them is under way: their next owners need end nothing then.

        Args:
            tasks: in service.
            application: asks instead of the thread's own client, which is interrupted once the thread is to end.
        """
        stands = ((task.inputs[0], task.position.offsets.get(task.inputs[0])) for task in tasks)
        offsets = {first: offset for first, offset in stands if offset is not None}
        notes = {p: note for task in tasks for p, note in task.standing_notes(released=True).items() if p in offsets}
        member = self._in_service.present_member
        if not offsets or member is None:
            return
        try:
            (application or self._application).set_offsets(offsets, notes, member=member)
        except KafkaException as error:
            log.debug("that tasks %s were let go could not be noted: %s", name_tasks(t.id for t in tasks), error)

    def start_over(self, tasks: list[Task]) -> None:
        """Open those tasks anew that the broker's silence kept from service."""
        for task in tasks:
            if task.state is TaskState.RESTORING:
                task.hindered_by_silence()

    def _restores(
        self,
        tasks: Collection[Task],
        ends: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
    ) -> list[RestoreWork]:
        """Take stateless tasks into service at once; return what is to be restored for the others."""
        works = []
        ready: list[tuple[Task, RestoreReport | None]] = []
        for task in tasks:
            work = task.initialized(new_task_epoch(), ends, committed)
            if work is None:
                ready.append((task, None))
            else:
                works.append(work)
        if ready:
            self.serve(ready)
        return works

    def _require_state(
        self,
        ready: Sequence[tuple[Task, RestoreReport | None]],
        commits: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Make sure that no state was lost with its changelog.

        A changelog that has records brings its own positions, whoever wrote it.

        Raises:
            StreamsException: some was, and no operator has accepted it.
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
        self, commits: Mapping[TopicPartition, CommittedOffset], seen: Mapping[TopicPartition, int]
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
        commits: Mapping[TopicPartition, CommittedOffset],
        topic_ids: Mapping[str, str],
    ) -> dict[TopicPartition, int]:
        """Return where tasks begin in topics that replace those that their state has seen: an operator has set it.

        Raises:
            StreamsException: nobody has.
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
        commits: Mapping[TopicPartition, CommittedOffset],
        seen: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, str],
    ) -> dict[TopicPartition, int]:
        """Return the group's offsets that are to win over what the state has seen.

        Both are written in one transaction, so a difference means that somebody has set the group's offset. It wins
        where the records that the state would go on with are gone, or if ``sparkrelay offsets set`` has set it further
        on; else the state would lose or repeat some.
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
        self, partitions: Collection[TopicPartition], known: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return where partitions start that the group has no position for.

        ``known`` are the tasks' own from before: where the log ends now is not where it ended then.
        """
        reset = {p: LATEST if self._latest(p) and p not in self._added else EARLIEST for p in partitions}
        kept = {p: known[p] for p, where in reset.items() if where == LATEST and p in known}
        return {**self._offsets({p: where for p, where in reset.items() if p not in kept}), **kept}

    def _require_intended(self, tasks: Collection[Task]) -> None:
        """Make sure that batches which were begun can be run again as they were.

        Raises:
            StreamsException: records of one are gone from their topic, or were never in this one.
        """
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
                "The rows that foreachBatch() got of it, if it did, cannot be made again. Look into its sinks for what "
                "they have of that batch; then set the group's offset of the partition to where the task is to go on"
            )

    def _left_open(self, tasks: Collection[Task]) -> list[str]:
        """Return the transactional ids under which former owners may still write for tasks, or have left something."""
        application, found = self._config.application_id, set[str]()
        by_first = {task.inputs[0]: task for task in tasks}
        for first, commit in self._topics.commits(by_first).items():
            task, noted = by_first[first], noted_owner(commit.metadata)
            if noted is None:
                # A release before this one wrote for each task under an id of its own.
                found.add(f"{application}-{task.id}")
            elif noted != RELEASED and (owner := Owner.parse(noted)) is not None:
                found.update(owner.transactional_ids(application, task.id.subtopology))
        # Its own ones the thread has opened when it began.
        for subtopology in {task.id.subtopology for task in tasks}:
            found.difference_update(self._owner.transactional_ids(application, subtopology))
        return sorted(found)

    def _decided_ends(self, tasks: Collection[Task]) -> Mapping[TopicPartition, int]:
        """Return the ends of the tasks' changelogs, once no transaction is open in those that nobody else writes.

        What a former owner committed just before it let go may not be visible yet.

        Raises:
            TimeoutException: one is open for longer than an initialization may take.
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
                    "group's offsets do not name. It is waited for: brokers abort it after its "
                    f"transaction.timeout.ms, which is {self._config.transaction_timeout_ms} here"
                )
            time.sleep(backoff.next())

    def _offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = True
    ) -> Mapping[TopicPartition, int]:
        """Ask for offsets.

        Raises:
            TimeoutException: there was no answer within the time that an initialization may take.
            UnknownTopicException: a topic has not been there for as long as any call may take.
        """
        topics = frozenset(partition.topic for partition in wanted)
        longest = self._config.default_api_timeout_ms / 1000
        began = time.monotonic()
        since, last = self._missing.pop(topics, (began, began))
        if began - last >= longest:
            # Nobody has asked for just those in between: that was another trouble.
            since = began
        try:
            return self._topics.offsets(
                wanted, timeout=longest_initialization(self._config), read_committed=read_committed
            )
        except UnknownTopicException as error:
            # A broker that has just come back may not know its topics for a while.
            now = time.monotonic()
            text = TopicNames(self._config.application_id).explain(error)
            if now - since >= longest:
                raise UnknownTopicException(text) from error
            self._missing[topics] = since, now
            raise TimeoutException(text) from error

    def _latest(self, partition: TopicPartition) -> bool:
        """Return whether a partition without a position starts at its end."""
        # What our own legs wrote was never read by anybody: the setting is about the user's topics.
        return self._config.auto_offset_reset == "latest" and partition.topic not in self.internal_topics

    def _commit(
        self, tasks: Collection[Task], partitions: Collection[TopicPartition], moved: Mapping[TopicPartition, int]
    ) -> None:
        """Commit where tasks start, and who writes for them, before anything is taken from there.

        A topic's end is another one whenever it is asked for. Without this, what comes before the first commit of its
        partition would be lost with the next initialization, here or elsewhere.

        Args:
            tasks: that begin.
            partitions: that the group has no offset of, or nothing noted with it.
            moved: where the group's offset wins over the state. An operator's mark stays until the state has it, too.

        Raises:
            KafkaException: it is refused; a rebalance that is under way passes.
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
    partition: TopicPartition, commits: Mapping[TopicPartition, CommittedOffset], topic_ids: Mapping[str, str]
) -> bool:
    """Return whether an operator has set the group's offset of a partition, for the topic as it is now."""
    topic_id = set_by_hand(commits[partition].metadata)
    return topic_id is not None and topic_id == topic_ids.get(partition.topic)
