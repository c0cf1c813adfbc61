"""The state of a micro-batch under way: its tasks, its transactions, and its outcome. ``batch_runner`` runs it."""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparkrelay.runtime.batch.thread_transactions import TransactionKey
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.tasks.ranges import count_records, share_out

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.client.transaction_calls import ProducerIdentity
    from sparkrelay.runtime.batch.thread_transactions import Transactions
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs, Wave
    from sparkrelay.runtime.contract.commands import LegReport, TaskCommand
    from sparkrelay.runtime.tasks.task import Task, Work
    from sparkrelay.types import TaskId, TopicPartition


@dataclass(slots=True)
class BatchOutcome:
    """Outcome of a micro-batch.

    Attributes:
        reinitialize: tasks to initialize again (unknown outcome, fenced, store out of step), with the reason.
        again: tasks whose batch was aborted and runs again with the same ranges, with the reason.
        resident: True if it ran in the resident job.
        cpu_seconds: of this thread and, in the resident job, of the Python workers.
    """

    committed: list[TaskId] = field(default_factory=list)
    reinitialize: dict[TaskId, Exception] = field(default_factory=dict)
    again: dict[TaskId, Exception] = field(default_factory=dict)
    reports: list[LegReport] = field(default_factory=list)
    resident: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchFailure:
    """Why a micro-batch failed: an error of all of it, or those of some tasks."""

    error: Exception | None
    of_tasks: Mapping[TaskId, Exception]


@dataclass(eq=False)
class MicroBatch:
    """A micro-batch under way.

    Attributes:
        work: the tasks that take part, with their ranges; never changed.
        shares: the tasks of each Spark partition, once transactions are lent.
        keys: task -> the transaction that it writes in, from before anything may be written in it.
        lent: the transactions for workers.
    """

    number: int
    plans: PreparedLegs
    work: Work
    outcome: BatchOutcome
    shares: list[list[TaskId]] = field(default_factory=list)
    keys: dict[TaskId, TransactionKey] = field(default_factory=dict)
    lent: Mapping[TransactionKey, ProducerIdentity] = field(default_factory=dict)
    #: Next sequence numbers, by transaction.
    _sequences: dict[TransactionKey, dict[TopicPartition, int]] = field(default_factory=lambda: defaultdict(dict))

    @property
    def tasks(self) -> list[Task]:
        """The tasks that take part."""
        return [task for task, _ in self.work.values()]

    @property
    def subtopologies(self) -> set[int]:
        """The subtopologies of the tasks."""
        return {id_.subtopology for id_ in self.work}

    @functools.cached_property
    def inputs(self) -> dict[TaskId, set[str]]:
        """Task -> the topics that it reads now."""
        return {id_: {partition.topic for partition in ranges} for id_, (_, ranges) in self.work.items()}

    @functools.cached_property
    def records(self) -> dict[TaskId, int]:
        """Task -> the number of records that it takes."""
        return {id_: count_records(ranges) for id_, (_, ranges) in self.work.items()}

    @property
    def joins_by_request(self) -> bool:
        """True if records are sent by topic name: old transactions have partitions added by request."""
        return any(identity.joins_by_request for identity in self.lent.values())

    def lend(self, spark_partitions: int, transactions: Transactions) -> None:
        """Spread the tasks over Spark partitions; each writes in one transaction for each subtopology."""
        self.shares = share_out(self.records, spark_partitions)
        keys = {
            id_: TransactionKey(id_.subtopology, number) for number, share in enumerate(self.shares) for id_ in share
        }
        self.lent = transactions.lend(set(keys.values()))
        self.keys = keys

    def commands(self) -> tuple[tuple[TaskCommand, ...], ...]:
        """Return the commands for the next wave, by Spark partition."""
        return tuple(
            tuple(
                self.work[id_][0].command(self.lent[self.keys[id_]], self._sequences[self.keys[id_]]) for id_ in share
            )
            for share in self.shares
        )

    def readers(self, wave: Wave) -> int:
        """Return how many Python workers read records at once: one for each leg and Spark partition."""
        shares = ({task: self.inputs[task] for task in share} for share in self.shares)
        return sum(len({leg for leg, _ in wave.reports(inputs)}) for inputs in shares)

    def reported(self, wave: Wave, reports: Sequence[LegReport]) -> bool:
        """Take the reports of a wave; return False if a leg failed.

        Raises:
            JobFailed: a report is missing: records may be missing too.
        """
        self.outcome.reports += reports
        for report in reports:
            # Several tasks may have written to a partition; the last one has the highest.
            known = self._sequences[self.keys[report.task]]
            known.update({p: max(next_, known.get(p, 0)) for p, next_ in report.next_sequences.items()})
        if any(report.error is not None for report in reports):
            return False
        if missing := wave.reports(self.inputs) - {(report.leg, report.task) for report in reports}:
            names = ", ".join(f"leg {leg} of task {task}" for leg, task in sorted(missing))
            raise JobFailed(f"the Spark job ended without a report from {names}")
        return True
