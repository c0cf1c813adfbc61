"""Global tables of one process: copies of whole topics that belong to no task, for lookups by all tasks.

A global table is maintained by a task of the process: an ordinary leg, in micro-batches, on one store that takes the
records of all partitions. Only its commits differ from those of the group's tasks. Only the store knows what was read,
so a batch is committed once its leg has reported: no transaction, no group offsets, and no changelog, as the topic has
everything. An unusable copy is therefore never repaired but read again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, Protocol

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.client.transaction_calls import ProducerIdentity
from sparkrelay.errors import (
    IncompatibleTopologyException,
    MissingSourceTopicException,
    StateStoreException,
    StreamsException,
)
from sparkrelay.runtime.batch.batch_limit import BatchLimit
from sparkrelay.runtime.batch.batch_runner import BatchRunner
from sparkrelay.runtime.batch.micro_batch import BatchOutcome
from sparkrelay.runtime.contract.commands import RestoreCommand
from sparkrelay.runtime.tasks.ranges import behind
from sparkrelay.runtime.tasks.restore_work import slice_of
from sparkrelay.runtime.tasks.task import Task, new_task_epoch
from sparkrelay.runtime.topics.layout import TaskShape
from sparkrelay.runtime.topics.partition_counts import missing
from sparkrelay.state.header import replaced_topics
from sparkrelay.state.home.obsolete import ABANDONED_SECONDS
from sparkrelay.types import TaskId, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.thread_transactions import TransactionKey
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.contract.commands import RestoreReport
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.topology import Leg

log = logging.getLogger(__name__)

#: Directory in a slot for the global tables' directories; named as in Kafka Streams' ``state.dir``.
GLOBAL_TABLES: Final = "global"
_CLOSE_SECONDS: Final = 60.0
#: How long a job verifies a copy that was not closed.
_READING_SECONDS: Final = 1.0


class TopicOffsets(Protocol):
    """What is asked of a cluster: ``Topics``, or a stand-in of the test driver."""

    def partition_counts(self, topics: Collection[str], /) -> Mapping[str, int]:
        """Return the partition counts of existing topics."""

    def ids(self, topics: Collection[str], /) -> Mapping[str, str]:
        """Return the known ids of topics."""

    def offsets(self, wanted: Mapping[TopicPartition, int], /) -> Mapping[TopicPartition, int]:
        """Return offsets for EARLIEST or LATEST (read_committed)."""


class _NoTransactions:
    """For batches that only commit to their store."""

    def lend(self, keys: Collection[TransactionKey]) -> dict[TransactionKey, ProducerIdentity]:
        return dict.fromkeys(keys, ProducerIdentity("", 0, 0))

    def commit(
        self, offsets: Mapping[TransactionKey, Mapping[TopicPartition, int]], *, notes: Mapping[TopicPartition, str]
    ) -> dict[TransactionKey, None]:
        del notes
        return dict.fromkeys(offsets)

    def abort(self, keys: Collection[TransactionKey]) -> dict[TransactionKey, None]:
        return dict.fromkeys(keys)


class GlobalTables:
    """The copies of all global tables of a pipeline. One thread owns it."""

    def __init__(
        self,
        *,
        config: StreamsConfig,
        legs: Sequence[Leg],
        plans: PreparedLegs,
        jobs: Jobs,
        home: Path,
        topics: TopicOffsets,
    ) -> None:
        """Prepare; ``legs`` has one leg per table, and ``home`` will have a directory for each."""
        self._config = config
        self._legs = {TaskId(leg.subtopology, 0): leg for leg in legs}
        self._plans = plans
        self._jobs = jobs
        self._home = home
        self._topics = topics
        self._batches = BatchRunner(
            jobs,
            _NoTransactions(),
            config.application_id,
            retries=config.max_batch_retries,
            max_bytes=config.max_batch_bytes,
        )
        self._limit = BatchLimit(config.max_batch_records, config.transaction_timeout_ms, config.max_batch_retries)
        self._tasks: dict[TaskId, Task] = {}
        #: Tables without a committed batch since they were opened.
        self._unproven: set[TaskId] = set()
        #: Tables rebuilt since then.
        self._renewed: set[TaskId] = set()
        #: The end of each partition when its table was opened.
        self._goal: dict[TopicPartition, int] = {}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset to read in each partition."""
        return {p: offset for task in self._tasks.values() for p, offset in task.position.offsets.items()}

    @property
    def tasks(self) -> list[Task]:
        """The copies, as tasks of this process. Thread-safe, read-only."""
        return list(self._tasks.values())

    @property
    def complete(self) -> bool:
        """True once the copies have all records that existed when they were opened."""
        return not self._unproven and not self.left

    @property
    def left(self) -> int:
        """The number of offsets missing until then."""
        return behind(self.positions, self._goal)

    def open(self) -> None:
        """Open every copy at its position, and read unusable ones again.

        Raises MissingSourceTopicException for a missing topic, and SparkRelayError if the broker does not answer or a
        copy cannot be made.
        """
        self._renewed.clear()
        for id_ in self._legs:
            try:
                self._open(id_, wipe=False)
            except StateStoreException as error:
                self._open_anew(id_, error)

    def widen(self) -> None:
        """Read partitions that topics got since their tables were opened.

        Raises StreamsException if a topic was deleted and created again: readers have the copy open, so it cannot be
        rebuilt.
        """
        topics = [_topic(leg) for leg in self._legs.values()]
        counts, ids = self._topics.partition_counts(topics), self._topics.ids(topics)
        for id_, task in self._tasks.items():
            topic = _topic(self._legs[id_])
            if replaced_topics(task.position.topic_ids, ids):
                raise StreamsException(
                    f"topic {topic!r} of the global table {_store(self._legs[id_])!r} was deleted and created again "
                    "while it was read. Start the instance again: it reads the new topic from its beginning"
                )
            new = [TopicPartition(topic, number) for number in range(len(task.inputs), counts.get(topic, 0))]
            if new:
                task.position.offsets |= self._topics.offsets(dict.fromkeys(new, EARLIEST))
                task.inputs = (*task.inputs, *new)

    def advance(self) -> BatchOutcome | None:
        """Run a micro-batch of new records; return its outcome, None if there are none. Raises lasting errors."""
        # At first one at a time, even with nothing to read: this detects a copy made by another pipeline before it is
        # used.
        first = min(self._unproven, default=None)
        tasks = self._tasks if first is None else {first: self._tasks[first]}
        ends = self._topics.offsets({p: LATEST for task in tasks.values() for p in task.inputs})
        work = {}
        for id_, task in tasks.items():
            offsets = task.position.offsets
            ranges = task.next_ranges(offsets, ends, self._limit.records, 0.0)
            if id_ == first:
                ranges = ranges or {partition: (offset, offset) for partition, offset in offsets.items()}
            if ranges:
                work[id_] = task, ranges
        if not work:
            return None
        try:
            outcome = self._batches.run(self._plans, work, {})
        except IncompatibleTopologyException as error:
            if first is None or first in self._renewed:
                raise
            self._open_anew(first, error)
            return BatchOutcome()
        for reason in outcome.reinitialize.values():
            raise reason
        self._limit.note_batch(outcome, work)
        self._unproven.difference_update(outcome.committed)
        return outcome

    def close(self) -> None:
        """Close the copies; what they have read is kept."""
        tasks, self._tasks = self._tasks, {}
        if commands := [command for task in tasks.values() if (command := task.close_command()) is not None]:
            slice_ = slice_of(commands, self._jobs.spark_partitions)
            self._jobs.drop_journals(slice_, description="closing global tables", seconds=_CLOSE_SECONDS)

    def _open_anew(self, id_: TaskId, reason: Exception) -> None:
        log.warning("global table %r is read anew: %s", _store(self._legs[id_]), reason)
        self._renewed.add(id_)
        self._open(id_, wipe=True)

    def _open(self, id_: TaskId, *, wipe: bool) -> None:
        topic, store = _topic(self._legs[id_]), _store(self._legs[id_])
        count = self._topics.partition_counts([topic]).get(topic)
        if not count:
            raise MissingSourceTopicException(missing(f"topic {topic!r} of the global table {store!r}", topic))
        inputs = tuple(TopicPartition(topic, number) for number in range(count))
        first = self._topics.offsets(dict.fromkeys(inputs, EARLIEST))
        ends = self._topics.offsets(dict.fromkeys(inputs, LATEST))
        task = Task(id_, TaskShape(inputs, {}, frozenset({topic})), str(self._home / store))
        task.initialized(new_task_epoch(), {}, {})
        topic_ids = self._topics.ids([topic])
        report = self._taken_over(task, topic_ids, wipe=wipe)
        gone = [
            f"the copy is at offset {offset} of {partition}, which has {first[partition]} to {ends[partition]}"
            for partition, offset in report.positions.items()
            if partition in first and not first[partition] <= offset <= ends[partition]
        ]
        if gone:
            self._open_anew(id_, StateStoreException("; ".join(gone)))
            return
        task.positioned({**first, **report.positions}, skipped={}, batch=report.batch, topic_ids=topic_ids)
        task.restored()
        self._tasks[id_] = task
        self._unproven.add(id_)
        self._goal |= ends

    def _taken_over(self, task: Task, topic_ids: Mapping[str, str], *, wipe: bool) -> RestoreReport:
        assert task.directory is not None, "a global table has a directory"
        command = RestoreCommand(
            task=task.id,
            directory=task.directory,
            take_over=True,
            task_epoch=task.task_epoch,
            wipe=wipe,
            kept_aside=False,
            unused_before=time.time() - ABANDONED_SECONDS,
            topic_ids=topic_ids,
        )
        slice_ = slice_of([command], self._jobs.spark_partitions, seconds=_READING_SECONDS)
        description = f"opening the global table of {_topic(self._legs[task.id])}"
        while True:
            (report,) = self._jobs.restore(slice_, description=description)
            if report.error is not None:
                raise report.error
            if report.read_through:
                return report


def _topic(leg: Leg) -> str:
    (topic,) = leg.source.topics
    return topic


def _store(leg: Leg) -> str:
    assert leg.aggregation is not None, "a global table is a store"
    return leg.aggregation.store
