"""All tasks of a pipeline in one process, for the test driver in place of an instance's threads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.client.admin import EARLIEST
from sparkrelay.client.group_requests import OffsetAndMetadata
from sparkrelay.client.transactions import ProducerIdentity
from sparkrelay.runtime.batch.batch_functions import KEPT_ROWS, BatchFunctions
from sparkrelay.runtime.batch.batch_runner import SKIPPED_RECORDS, BatchRunner
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.batch.global_tables import GLOBAL_TABLES, GlobalTables
from sparkrelay.runtime.batch.residency import Residency
from sparkrelay.runtime.spark.jobs import Jobs
from sparkrelay.runtime.tasks.ranges import source_offsets
from sparkrelay.runtime.tasks.restore_work import slice_of
from sparkrelay.runtime.tasks.task import Task, new_task_epoch
from sparkrelay.runtime.worker.restore import RestoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparkrelay.client.file_log import FileLog
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.thread_transactions import TransactionKey
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreReport
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.topology import Leg
    from sparkrelay.types import TopicPartition

#: A test's changelogs are restored in one slice, in effect without a time limit.
_RESTORE_SECONDS: Final = 3600.0
_CLOSE_SECONDS: Final = 60.0


class _FileTransactions:
    """The transactions of a ``FileLog``, with the interface that ``BatchRunner`` expects of a coordinator."""

    def __init__(self, log: FileLog) -> None:
        self._log = log
        self._known: set[TransactionKey] = set()
        #: The group's commits.
        self.commits: dict[TopicPartition, OffsetAndMetadata] = {}

    @property
    def committed(self) -> dict[TopicPartition, int]:
        """The group's offsets."""
        return {partition: commit.offset for partition, commit in self.commits.items()}

    def lend(self, keys: Collection[TransactionKey]) -> dict[TransactionKey, ProducerIdentity]:
        """Return the producer identities for workers."""
        new = [key for key in keys if key not in self._known]
        self._known.update(new)
        # An earlier driver may have been killed here.
        self.abort(new)
        return {key: ProducerIdentity(self._name(key), 0, 0) for key in keys}

    def commit(
        self, offsets: Mapping[TransactionKey, Mapping[TopicPartition, int]], *, notes: Mapping[TopicPartition, str]
    ) -> dict[TransactionKey, None]:
        """Commit transactions with their input offsets."""
        for key, positions in offsets.items():
            self._log.commit(self._name(key))
            self.commits |= {p: OffsetAndMetadata(offset, notes.get(p, "")) for p, offset in positions.items()}
        return dict.fromkeys(offsets)

    def abort(self, keys: Collection[TransactionKey]) -> dict[TransactionKey, None]:
        """Abort transactions."""
        for key in keys:
            self._log.abort(self._name(key))
        return dict.fromkeys(keys)

    def _name(self, key: TransactionKey) -> str:
        return f"{key.subtopology}-{key.spark_partition}"


class _FileOffsets:
    """A ``FileLog`` with the interface that global tables expect of a cluster."""

    def __init__(self, log: FileLog, partitions: int) -> None:
        self._log = log
        self._partitions = partitions

    def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        """Return the number of partitions of each topic."""
        return dict.fromkeys(topics, self._partitions)

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return no ids: files have none."""
        del topics
        return {}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return beginnings, which are 0, or ends."""
        return {partition: 0 if what == EARLIEST else self._log.end(partition) for partition, what in wanted.items()}


class DriverTasks:
    """The tasks, their stores and their micro-batches."""

    def __init__(
        self,
        *,
        config: StreamsConfig,
        layout: TaskLayout,
        plans: PreparedLegs,
        global_tables: tuple[Sequence[Leg], PreparedLegs],
        partitions: int,
        target: ExecutorTarget,
        log: FileLog,
        client: Mapping[str, Any],
        state_dir: Path,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._layout = layout
        self._plans = plans
        self._log = log
        self._state_dir = state_dir
        self._now_ms = now_ms
        restore = RestoreSpec(
            target.spark_partitions, config.application_id, client, config.store_max_bytes, plans.source_changelogs()
        )
        self._jobs = Jobs(target, restore=restore, name=config.application_id)
        self._transactions = _FileTransactions(log)
        legs, global_plans = global_tables
        self._global_tables = GlobalTables(
            config=config,
            legs=legs,
            plans=global_plans,
            jobs=self._jobs,
            home=state_dir / GLOBAL_TABLES,
            topics=_FileOffsets(log, partitions),
        )
        self._tasks: list[Task] = []
        self._failing = FailingRecords.of(config)
        self._batches: BatchRunner | None = None

    def open(self) -> None:
        """Initialize every task and global table from its local state and changelogs."""
        self._global_tables.open()
        self._tasks = [
            Task.of(id_, shape, str(self._state_dir / str(id_)) if shape.stores else None, self._config)
            for id_, shape in self._layout.tasks.items()
        ]
        self._batches = BatchRunner(
            self._jobs,
            self._transactions,
            self._config.application_id,
            retries=self._config.max_batch_retries,
            residency=Residency(self._jobs, over=lambda: False),
            global_tables=str(self._state_dir / GLOBAL_TABLES),
            functions=BatchFunctions(self._jobs, self._config.application_id, self._state_dir / KEPT_ROWS),
            skipped_records=self._state_dir / SKIPPED_RECORDS if self._config.skips_records else None,
            failing=self._failing,
        )
        ends = self._ends(partition for task in self._tasks for partition in task.changelogs.values())
        commands = []
        for task in self._tasks:
            work = task.initialized(new_task_epoch(), ends, self._transactions.committed)
            if work is not None:
                commands.append(work.command(work.missing(work.goal(ends)), {}))
        reports = {report.task: report for report in self._restored(commands)}
        for task in self._tasks:
            self._serve(task, reports.get(task.id))

    def process(self) -> None:
        """Update the global tables, then run micro-batches until no task has input; raises the error of a batch."""
        assert self._batches is not None, "the tasks are open"
        while self._global_tables.advance() is not None:
            pass
        while True:
            ends = self._ends(p for task in self._tasks for p in (*task.inputs, *task.changelogs.values()))
            unread = {p for task in self._tasks for p, at in task.position.offsets.items() if ends[p] > at}
            work = {}
            for task in self._tasks:
                if self._waits(task, unread):
                    continue
                now_ms, limit = self._now_ms(), self._failing.limited(self._config.max_batch_records)
                ranges = task.next_ranges(task.position.offsets, ends, limit, now_ms / 1000, now_ms)
                if ranges:
                    work[task.id] = task, ranges
            work = self._failing.chosen(work)
            if not work:
                return
            outcome = self._batches.run(self._plans, work, self._layout.sink_partitions)
            # Other failed batches are retried, as in an instance: Spark may lose a Python worker.
            for error in outcome.reinitialize.values():
                raise error

    def _waits(self, task: Task, unread: Collection[TopicPartition]) -> bool:
        """Return whether tasks upstream, whose event times this one depends on, still have unread input."""
        writers = self._layout.writers
        return any(not writers[p.topic].inputs.isdisjoint(unread) for p in task.inputs if p.topic in writers)

    def close(self) -> None:
        """End the tasks and close their stores."""
        if self._batches is not None:
            self._batches.close()
        commands = [command for task in self._tasks if (command := task.close_command()) is not None]
        if commands:
            slice_ = slice_of(commands, self._jobs.spark_partitions)
            self._jobs.drop_journals(slice_, description="closing the stores", seconds=_CLOSE_SECONDS)
        self._tasks = []
        self._global_tables.close()

    def clear(self) -> None:
        """Remove all records, all state and all offsets of the closed tasks."""
        self.remove_state()
        self._log.clear()
        self._transactions = _FileTransactions(self._log)

    def remove_state(self) -> None:
        """Remove the local state of all tasks."""
        shutil.rmtree(self._state_dir, ignore_errors=True)

    def global_table(self, store: str) -> Path:
        """Return the directory of a global table."""
        return self._state_dir / GLOBAL_TABLES / store

    def directories(self, subtopology: int) -> list[Path]:
        """Return the directories of a subtopology's tasks, in order of partitions."""
        tasks = sorted((task for task in self._tasks if task.id.subtopology == subtopology), key=lambda task: task.id)
        return [Path(task.directory) for task in tasks if task.directory is not None]

    def _restored(self, commands: list[RestoreCommand]) -> list[RestoreReport]:
        if not commands:
            return []
        slice_ = slice_of(commands, self._jobs.spark_partitions, seconds=_RESTORE_SECONDS)
        reports = self._jobs.restore(slice_, description="restoring all tasks")
        for report in reports:
            if report.error is not None:
                raise report.error
        return reports

    def _serve(self, task: Task, report: RestoreReport | None) -> None:
        """Put a task into service at the offsets of its state, else of the group, else at 0."""
        positions = {partition: self._transactions.committed.get(partition, 0) for partition in task.inputs}
        if report is not None:
            seen = {p: o for p, o in report.positions.items() if p.topic in task.shape.state_topics and p in positions}
            positions |= seen | source_offsets(
                task.source_changelogs, report.changelog_next, self._transactions.committed
            )
            task.restore_progressed(report.changelog_next)
        task.positioned(positions, skipped={}, batch=None if report is None else report.batch)
        if task.shape.foreach_batch:
            task.continue_event_times(self._transactions.commits)
            task.noted(self._transactions.commits, self._now_ms())
        task.restored()

    def _ends(self, partitions: Any) -> dict[TopicPartition, int]:
        return {partition: self._log.end(partition) for partition in partitions}
