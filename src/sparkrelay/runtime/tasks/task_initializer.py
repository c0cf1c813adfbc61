"""How tasks come into service: their transactions are opened, their stores restored, their positions found.

The order is what exactly-once stands on: docs/internals/runtime.md, "Initializing a task".
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.errors import (
    CommitFailedException,
    KafkaException,
    ProducerFencedException,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
)
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commit_notes import set_by_hand
from sparkrelay.runtime.tasks.ranges import source_offsets
from sparkrelay.runtime.tasks.replaced_topics import lost_changelogs, lost_state, replaced_topic
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.topics.changes import other_inputs
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.header import replaced_topics
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkrelay.client.admin import CommittedOffset
    from sparkrelay.client.transactions import ProducerIdentity, TransactionCoordinator
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.contract.commands import RestoreReport
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.tasks.restore_work import RestoreWork
    from sparkrelay.runtime.tasks.state_updater import StateUpdater
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.types import TaskId

__all__ = ["TaskInitializer", "longest_initialization"]

log = logging.getLogger(__name__)


#: A partition without a leader, or a coordinator, keeps one task from service; the thread has others, and the group.
_LONGEST_SECONDS: Final = 10.0
_SHARE_OF_REBALANCE: Final = 0.25


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
        transactions: TransactionCoordinator,
        topics: Topics,
        state_updater: StateUpdater,
        in_service: InService,
    ) -> None:
        self._config = config
        self._transactions = transactions
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
        """Open transactions first - that fences a former owner and ends its transaction - and only then list ends."""
        names = {self._transactional_id(task.id): task for task in tasks}
        identities = self._transactions.init(list(names), transaction_timeout_ms=self._config.transaction_timeout_ms)
        fault_points.reach("initialize-after-epoch")
        changelogs = {p for task in tasks for p in task.changelogs.values()}
        ends = self._offsets(dict.fromkeys(changelogs, LATEST))
        try:
            # Nothing but the group's offsets says where stores without changelog must stand, and tables that reuse
            # their topic.
            wanted = [p for task in tasks if task.unlogged for p in task.inputs if p.topic in task.state_topics]
            wanted += [p for task in tasks for p in task.source_changelogs]
            committed = self._topics.committed(wanted)
            works = self._restores(names, identities, ends, committed)
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
            if partition in task.inputs and partition.topic in task.state_topics
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
                change := other_inputs(task.id, report.positions, task.inputs, task.state_topics)
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
            if task.foreach_batch and (lost := task.noted(commits, int(time.time() * 1000))):
                log.warning(
                    "task %s: batch %d was begun and is not run again as it was, because the task stands elsewhere by "
                    "now. Sinks of foreachBatch() may have rows of it, and get those that are read again under another "
                    "number",
                    task.id,
                    lost.number,
                )
        self._require_intended([task for task in tasks if task.attempt.intended])
        at_first = {p: o for p, o in first.items() if self._latest(p)}
        # Also that it is noted with them what they are, from now on.
        at_first |= {p: positions[p] for task in tasks for p in task.source_changelogs}
        fallen_out = self._commit_first(tasks, at_first)
        self._in_service.fall_out(fallen_out)
        served = [task for task in tasks if task.id not in fallen_out]
        for task in served:
            task.restored()
            at = ", ".join(f"{partition}@{offset}" for partition, offset in task.position.offsets.items())
            log.debug("task %s is in service at %s", task.id, at)
        self._in_service.put(served)

    def start_over(self, tasks: list[Task]) -> None:
        """Open those tasks anew that the broker's silence kept from service."""
        for task in tasks:
            if task.state is TaskState.RESTORING:
                task.hindered_by_silence()

    def _restores(
        self,
        names: Mapping[str, Task],
        identities: Mapping[str, ProducerIdentity],
        ends: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int],
    ) -> list[RestoreWork]:
        """Take stateless tasks into service at once; return what is to be restored for the others."""
        works = []
        ready: list[tuple[Task, RestoreReport | None]] = []
        for name, task in names.items():
            work = task.initialized(identities[name], ends, committed)
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

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
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
            return self._topics.offsets(wanted, timeout=longest_initialization(self._config))
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

    def _commit_first(
        self, tasks: Collection[Task], ends: Mapping[TopicPartition, int]
    ) -> dict[TaskId, tuple[Task, Exception]]:
        """Commit the ends where tasks start, before anything is taken from there; return the tasks that must not.

        An end is another one whenever it is asked for. Without this, what comes before the first commit of its
        partition would be lost with the next initialization, here or elsewhere.

        Raises:
            KafkaException: a commit is refused for a reason that does not pass, such as a missing permission.
        """
        offsets: dict[ProducerIdentity, dict[TopicPartition, int]] = {}
        for task in tasks:
            if mine := {partition: ends[partition] for partition in task.inputs if partition in ends}:
                assert task.producer is not None, f"task {task.id} is served without a transaction"
                offsets[task.producer] = mine
        if not offsets:
            return {}
        notes = {p: note for task in tasks for p, note in task.standing_notes().items()}
        answers = self._transactions.commit(offsets, self._config.application_id, notes=notes)
        fallen_out: dict[TaskId, tuple[Task, Exception]] = {}
        for task in tasks:
            answer = answers.get(self._transactional_id(task.id), task.producer)
            if isinstance(answer, ProducerFencedException | CommitFailedException) or (
                isinstance(answer, KafkaException) and answer.retriable
            ):
                fallen_out[task.id] = task, answer
            elif isinstance(answer, Exception):
                raise answer
            else:
                task.producer = answer
        return fallen_out

    def _transactional_id(self, id_: TaskId) -> str:
        return f"{self._config.application_id}-{id_}"


def _set_by_hand(
    partition: TopicPartition, commits: Mapping[TopicPartition, CommittedOffset], topic_ids: Mapping[str, str]
) -> bool:
    """Return whether an operator has set the group's offset of a partition, for the topic as it is now."""
    topic_id = set_by_hand(commits[partition].metadata)
    return topic_id is not None and topic_id == topic_ids.get(partition.topic)
