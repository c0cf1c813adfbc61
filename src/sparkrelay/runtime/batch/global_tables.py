"""Global tables of one process: a copy of each whole topic, which no task owns and every task looks into.

A global table is kept by a task of the process's own: the ordinary leg, micro-batch by micro-batch, on one store that
takes the records of all partitions. It differs from the tasks of the group in what a commit is. Nothing but the store
says what it has read, so a batch is committed once its leg has reported: no transaction, no offsets of the group, and
no changelog, as the topic has everything. A copy that cannot be used is therefore never repaired but read anew.
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
from sparkrelay.runtime.batch.batch_runner import BatchOutcome, BatchRunner
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

__all__ = ["GLOBAL_TABLES", "GlobalTables"]

log = logging.getLogger(__name__)

#: In a slot: the directory with a directory for each global table; ``global`` in Kafka Streams' ``state.dir``, too.
GLOBAL_TABLES: Final = "global"
_CLOSE_SECONDS: Final = 60.0
#: How long a job reads a copy that was not closed.
_READING_SECONDS: Final = 1.0


class TopicOffsets(Protocol):
    """What is asked of a cluster: ``Topics``, or what the test driver has in its place."""

    def partition_counts(self, topics: Collection[str], /) -> Mapping[str, int]:
        """Return the partition counts of those topics that there are."""

    def ids(self, topics: Collection[str], /) -> Mapping[str, str]:
        """Return the topics' ids, as far as they have some."""

    def offsets(self, wanted: Mapping[TopicPartition, int], /) -> Mapping[TopicPartition, int]:
        """Return offsets for EARLIEST or LATEST (read_committed)."""


class _NoTransactions:
    """For batches that have nothing to commit but what their store has."""

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
        """Take what the tables are made with.

        Args:
            config: the instance's settings.
            legs: one a table.
            plans: the same, prepared.
            jobs: runs them where the process is.
            home: the directory that holds a directory for each table.
            topics: asks the cluster.
        """
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
        #: Tables of which no batch is in yet since they were opened.
        self._unproven: set[TaskId] = set()
        #: Tables that were made anew since then.
        self._renewed: set[TaskId] = set()
        #: Where every partition ended when its table was opened.
        self._goal: dict[TopicPartition, int] = {}

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where each partition is read next."""
        return {p: offset for task in self._tasks.values() for p, offset in task.position.offsets.items()}

    @property
    def tasks(self) -> list[Task]:
        """The copies, as tasks of this process. Any thread may ask, and not touch them."""
        return list(self._tasks.values())

    @property
    def complete(self) -> bool:
        """True once the copies have all that there was when they were opened."""
        return not self._unproven and not self.left

    @property
    def left(self) -> int:
        """How many offsets they lack until then."""
        return behind(self.positions, self._goal)

    def open(self) -> None:
        """Open every copy where it stands, and make anew those that cannot be used.

        Raises:
            MissingSourceTopicException: a table's topic does not exist.
            SparkRelayError: the broker does not answer, or a copy cannot be made.
        """
        self._renewed.clear()
        for id_ in self._legs:
            try:
                self._open(id_, wipe=False)
            except StateStoreException as error:
                self._open_anew(id_, error)

    def widen(self) -> None:
        """Read the partitions, too, that topics got since their tables were opened.

        Raises:
            StreamsException: a topic was deleted and created again. Whoever looks into the copy has it open, so that it
                cannot be made anew.
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
        """Take in what is new, a micro-batch at most; return what became of it, None if there is nothing.

        Raises:
            SparkRelayError: an error that running again cannot mend.
        """
        # One at a time at first, also with nothing to read: a copy that another pipeline has made is found out so,
        # before anybody looks into it.
        first = min(self._unproven, default=None)
        tasks = self._tasks if first is None else {first: self._tasks[first]}
        ends = self._topics.offsets({p: LATEST for task in tasks.values() for p in task.inputs})
        work = {}
        for id_, task in tasks.items():
            stands = task.position.offsets
            ranges = task.next_ranges(stands, ends, self._limit.records, 0.0)
            if id_ == first:
                ranges = ranges or {partition: (offset, offset) for partition, offset in stands.items()}
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
        """Close the copies; what they have read stays."""
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
