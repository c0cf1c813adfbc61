"""One micro-batch: commands out, one Spark job per wave, reports in, then commit or abort.

Only the driver commits. Workers produce under lent producer ids; nothing they wrote is visible until the driver, with
all legs' reports, sends offsets and EndTxn. So a task's state, repartition records, outputs and offsets become visible
together or not at all. Refused: workers that commit, because a transaction may only end after all legs that write in it
have reported, which no worker sees.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from sparkrelay.errors import (
    CommitFailedException,
    KafkaException,
    OffsetOutOfRangeException,
    ProducerFencedException,
    SchemaRegistryException,
    SparkRelayError,
    StateStoreException,
    StoreCorruptedException,
    StoreFullException,
    StoreOutOfStepException,
    StreamsException,
    UnknownSchemaException,
    UnknownTopicException,
)
from sparkrelay.runtime.batch.commit_checks import CommitChecks
from sparkrelay.runtime.batch.shown_rows import print_rows
from sparkrelay.runtime.batch.thread_transactions import TransactionKey, Transactions
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.spark.jobs import ClosedWorkerLent, JobCancelled, JobFailed, TaskFailed
from sparkrelay.runtime.tasks.ranges import count_records, name_tasks, share_out, stops_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from sparkrelay.runtime.batch.batch_functions import BatchFunctions
    from sparkrelay.runtime.batch.failing_records import FailingRecords
    from sparkrelay.runtime.batch.residency import Residency
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs, Wave
    from sparkrelay.runtime.contract.commands import LegReport
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.runtime.tasks.task import Task, Work
    from sparkrelay.types import TaskId, TopicPartition

log = logging.getLogger(__name__)

#: Directory in a slot for skipped records that are yet to be written.
SKIPPED_RECORDS: Final = "skipped-records"
#: A joining thread waits for it, and may not get a core. But a JVM takes 10 s to start on a busy host, and cancelling
#: ends its workers, so that the first batch starts over.
_LONGEST_PREWARM_SECONDS = 30.0
#: A single reader gets half of the bytes: with all of them, a store's worker alone would use 1.5 GB.
_LEAST_READERS: Final = 2
#: Repeated this long after the first run: Spark's workers take turns, and the JVM must compile its code.
_REPEATING_SECONDS = 0.6


class AnotherTaskFailed(StreamsException):
    """A task succeeded, but its batch was aborted."""


class _SchemaFetched(StreamsException):
    """The batch had records with unknown schemas, which are fetched now."""


#: Not failures of the batch itself: its steps did not run, or run again with new knowledge. None repeats forever.
_NO_FAILURES: Final = (BatchTooLarge, ClosedWorkerLent, JobCancelled, _SchemaFetched)


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


class BatchRunner:
    """Runs micro-batches of one stream thread. One batch thread owns it."""

    def __init__(
        self,
        jobs: Jobs,
        transactions: Transactions,
        application_id: str,
        *,
        retries: int,
        residency: Residency | None = None,
        global_tables: str | None = None,
        functions: BatchFunctions | None = None,
        skipped_records: Path | None = None,
        failing: FailingRecords | None = None,
        checks: CommitChecks | None = None,
        passes_over_lost: bool = False,
        max_bytes: int = 0,
    ) -> None:
        """Prepare the runner.

        Without ``residency`` every micro-batch has Spark jobs of its own; without ``failing``, failing records end the
        instance. ``functions`` are those of ``foreachBatch``. ``skipped_records`` is a directory on the process's host,
        of this stream thread only; None: no record may be skipped. ``passes_over_lost`` chooses a new batch if records
        were deleted (``on.data.loss=continue``). ``max_bytes`` is ``max.batch.bytes``; 0: unlimited.
        """
        self._jobs = jobs
        self._residency = residency
        self._transactions = transactions
        self._retries = retries
        self._global_tables = global_tables
        self._functions = functions
        # A name that no earlier process used.
        self._skipped_records = None if skipped_records is None else skipped_records / uuid.uuid4().hex[:12]
        self._failing = failing
        self._application_id = application_id
        self._checks = checks or CommitChecks(application_id)
        self._passes_over_lost = passes_over_lost
        self._max_bytes = max_bytes
        self._number = 0

    def prewarm(
        self, plans: PreparedLegs, over: Callable[[], bool], wanted: Callable[[], bool] = lambda: False
    ) -> None:
        """Run every leg without tasks, so that code is compiled and workers are up before they are needed.

        More than once: the second run takes a twentieth of the first one's time, and the fifth a third of the second's.
        It is cancelled once ``over()`` returns true on any thread, and not repeated if ``wanted()``: tasks wait. Raises
        SparkRelayError if it failed, or got no core for a while.
        """
        command = BatchCommand(((),) * self._jobs.spark_partitions, {})
        deadline = time.monotonic() + _LONGEST_PREWARM_SECONDS
        enough_at: float | None = None

        def due() -> bool:
            return over() or time.monotonic() >= deadline

        while waves := plans.all_waves():
            for wave in waves:
                if not due():
                    self._jobs.prewarm(wave.frame, command, due)
            enough_at = enough_at or time.monotonic() + _REPEATING_SECONDS
            if time.monotonic() >= enough_at or due() or wanted():
                return

    def run(
        self,
        plans: PreparedLegs,
        work: Work,
        partitions: Mapping[str, int],
        sources: Mapping[str, int] | None = None,
    ) -> BatchOutcome:
        """Run one batch, and commit or abort its transactions.

        ``partitions`` are the partition counts of written topics, ``sources`` those of source topics for whose keys the
        tasks have state. Errors that a retry cannot fix are raised after all transactions were aborted.
        """
        self._number += 1
        sources = sources or {}
        outcome = BatchOutcome()
        started, cpu_before = time.perf_counter(), time.thread_time()
        for task, ranges in work.values():
            task.batch_begun(ranges)
        work = self._intend(work, outcome)
        fault_points.reach("driver-before-job")
        failed: Exception | None = None
        broken: dict[TaskId, Exception] = {}
        keys: dict[TaskId, TransactionKey] = {}
        try:
            if work:
                self._checks.begin(sources)
                by_name = self._run_waves(plans, work, partitions, outcome, keys)
                self._checks.require([task for task, _ in work.values()], sources, by_name=by_name)
            if self._functions is not None and not any(report.error for report in outcome.reports):
                for task, _ in work.values():
                    task.batch_fixed()
                self._functions.call(plans, outcome.reports)
        except TaskFailed as error:
            broken[error.task] = error.cause
        except UnknownSchemaException as error:
            failed = _learned(plans, error)
        except SparkRelayError as error:
            failed = error
        outcome.seconds["job"] = time.perf_counter() - started
        broken |= {report.task: report.error for report in outcome.reports if report.error is not None}
        if any(isinstance(error, UnknownTopicException) for error in broken.values()):
            try:
                self._checks.require_changelogs([task for task, _ in work.values()])
            except SparkRelayError as error:
                failed, broken = error, {}
        if failed is not None or broken:
            self._abort(work, keys, outcome, failed, broken)
        elif work:
            fault_points.reach("driver-before-commit")
            self._commit(work, keys, outcome)
            fault_points.reach("driver-after-commit")
            self._show(plans, outcome)
        if self._functions is not None:
            self._functions.release(outcome.reports)
        outcome.seconds["total"] = time.perf_counter() - started
        outcome.cpu_seconds += time.thread_time() - cpu_before
        return outcome

    def rest(self) -> None:
        """Record that no micro-batch is due."""
        if self._residency is not None:
            self._residency.rest()

    def close(self) -> None:
        """Stop the resident job, if any. Nothing else outlives a micro-batch."""
        if self._residency is not None:
            self._residency.close()

    def _intend(self, work: Work, outcome: BatchOutcome) -> Work:
        """Commit the intents of batches whose rows must be the same in every attempt; return the remaining work.

        The offsets stay unchanged. Tasks whose commit fails are initialized again, and find out what was committed.
        """
        new = [task for task, _ in work.values() if task.shape.foreach_batch and not task.attempt.intended]
        if not new:
            return work
        clock_ms = int(time.time() * 1000)
        keys = {task.id: TransactionKey(task.id.subtopology, 0) for task in new}
        offsets: dict[TransactionKey, dict[TopicPartition, int]] = defaultdict(dict)
        notes: dict[TopicPartition, str] = {}
        for task in new:
            own = task.intent_notes(clock_ms)
            notes |= own
            stands = task.position.offsets
            offsets[keys[task.id]] |= {partition: stands[partition] for partition in (*own, *work[task.id][1])}
        self._transactions.lend(offsets)
        errors = self._transactions.commit(offsets, notes=notes)
        for task in new:
            if (error := errors[keys[task.id]]) is not None:
                self._not_committed(task, error, outcome)
            else:
                task.batch_intended()
        return {id_: some for id_, some in work.items() if id_ not in outcome.reinitialize}

    def _run_waves(
        self,
        plans: PreparedLegs,
        work: Work,
        partitions: Mapping[str, int],
        outcome: BatchOutcome,
        keys: dict[TaskId, TransactionKey],
    ) -> bool:
        """Run the jobs of a batch; ``keys`` gets the transaction of each task before it may be written in.

        Returns True if records are sent by topic name: old transactions have partitions added by request.
        """
        weights = {id_: count_records(ranges) for id_, (_, ranges) in work.items()}
        inputs = {id_: {partition.topic for partition in ranges} for id_, (_, ranges) in work.items()}
        topics = set().union(*inputs.values())
        residency = self._residency
        if plans.renew({id_.subtopology for id_ in work}, self._jobs.collect) and residency is not None:
            # The resident job's plan has the old rows.
            residency.close()
        waves = plans.waves({id_.subtopology for id_ in work}, topics)
        legs = {leg for wave in waves for leg in wave.legs}
        if self._failing is not None and self._failing.searching:
            # The resident job does not report exceptions.
            residency = None
        job = None if residency is None else residency.job_for(plans, legs, sum(weights.values()))
        outcome.resident = job is not None
        shares = share_out(weights, self._jobs.spark_partitions if job is None else 1)
        chosen = {id_: TransactionKey(id_.subtopology, number) for number, share in enumerate(shares) for id_ in share}
        lent = self._transactions.lend(set(chosen.values()))
        keys |= chosen
        sequences: dict[TransactionKey, dict[TopicPartition, int]] = defaultdict(dict)
        for wave in waves:
            max_bytes = self._max_bytes // max(_LEAST_READERS, _readers(wave, shares, inputs))
            commands = tuple(
                tuple(work[id_][0].command(lent[keys[id_]], sequences[keys[id_]]) for id_ in share) for share in shares
            )
            kept = None if self._functions is None else self._functions.directory(self._number)
            command = BatchCommand(commands, partitions, self._global_tables, kept, max_bytes=max_bytes)
            if self._skipped_records is not None:
                skipped = f"{self._skipped_records}-{self._number}"
                command = replace(command, skipped_records=skipped, skips_of=plans.skips_of(legs))
            description = f"batch {self._number} of {name_tasks(work)}"
            if job is None:
                if residency is not None:
                    description += f", in a job of its own: {residency.why_bulk}"
                reports = self._jobs.run_batch(wave.frame, command, description=description)
            else:
                assert residency is not None
                before = job.cpu_seconds
                with residency.watched():
                    reports = job.run(command, wave.legs, description=description)
                outcome.cpu_seconds += job.cpu_seconds - before
            outcome.reports += reports
            for report in reports:
                # Several tasks may have written to a partition; the last one has the highest.
                known = sequences[keys[report.task]]
                known.update({p: max(next_, known.get(p, 0)) for p, next_ in report.next_sequences.items()})
            if any(report.error is not None for report in reports):
                break
            _require_all(wave.reports(inputs), reports)
            fault_points.reach("driver-between-waves")
        return any(identity.joins_by_request for identity in lent.values())

    def _commit(
        self,
        work: Work,
        keys: Mapping[TaskId, TransactionKey],
        outcome: BatchOutcome,
    ) -> None:
        started = time.perf_counter()
        offsets: dict[TransactionKey, dict[TopicPartition, int]] = defaultdict(dict)
        reports = defaultdict(list)
        for report in outcome.reports:
            reports[report.task].append(report)
        notes: dict[TopicPartition, str] = {}
        for task, ranges in work.values():
            own = task.commit_notes(reports[task.id])
            stands = {partition: task.position.offsets[partition] for partition in own}
            offsets[keys[task.id]] |= stops_of(stands, ranges)
            notes |= own
        errors = self._transactions.commit(offsets, notes=notes)
        states = {id_: [one.state for one in some if one.state is not None] for id_, some in reports.items()}
        for id_, (task, _) in work.items():
            if (error := errors[keys[id_]]) is not None:
                self._not_committed(task, error, outcome)
                continue
            task.batch_committed(states.get(id_, ()))
            outcome.committed.append(id_)
        if self._failing is not None:
            taken = {id_: count_records(ranges) for id_, (_, ranges) in work.items()}
            self._failing.passed([work[id_][0] for id_ in outcome.committed], taken)
        outcome.seconds["commit"] = time.perf_counter() - started

    def _not_committed(self, task: Task, answer: Exception, outcome: BatchOutcome) -> None:
        """Initialize a task again, which shows whether the batch was committed; that is unknown here.

        Raises:
            SparkRelayError: the broker keeps refusing its commits for a lasting reason.
        """
        outcome.reinitialize[task.id] = answer
        lost = isinstance(answer, ProducerFencedException | CommitFailedException)
        if not (lost or _passes(answer)) and task.failed() > self._retries:
            raise answer

    def _show(self, plans: PreparedLegs, outcome: BatchOutcome) -> None:
        """Print the committed rows of ``show()``."""
        shown: dict[str, list[tuple[str | None, ...]]] = {}
        for report in outcome.reports:
            if report.shown and report.task in outcome.committed:
                shown.setdefault(report.leg, []).extend(report.shown)
        for leg, rows in shown.items():
            columns, most = plans.shows(leg)
            print_rows(f"{leg.partition(':')[2]}, batch {self._number}", columns, rows[:most])

    def _abort(
        self,
        work: Work,
        keys: Mapping[TaskId, TransactionKey],
        outcome: BatchOutcome,
        failed: Exception | None,
        broken: Mapping[TaskId, Exception],
    ) -> None:
        """Abort all transactions, then decide for each task: initialize again, run again, or give up."""
        errors = self._transactions.abort(sorted(set(keys.values())))
        # A fenced instance has not failed: others own some of its tasks by now, and initialization shows which.
        again: tuple[type[Exception], ...] = _NO_FAILURES
        if self._passes_over_lost and not any(task.attempt.intended for task, _ in work.values()):
            again += (OffsetOutOfRangeException,)
        mends = failed is None or isinstance(failed, (ProducerFencedException, *again)) or _worth_another_try(failed)
        bystander = AnotherTaskFailed("another task of the batch failed")
        if not mends and any(errors.values()):
            # A zombie's errors do not count either: repartition records are deleted once the new owner has read them.
            # An error of a task that is still ours comes again.
            names = name_tasks(work)
            log.warning("batch %d of %s failed; others may own some of them by now: %s", self._number, names, failed)
            failed, mends = bystander, True
        fatal = None if mends else failed
        for id_, (task, _) in work.items():
            reason = broken.get(id_) or failed or bystander
            if id_ in keys and (error := errors[keys[id_]]) is not None:
                outcome.reinitialize[id_] = error
                continue
            task.batch_aborted()
            if isinstance(reason, StoreCorruptedException):
                if not task.copy_corrupt():
                    fatal = _rebuilt_in_vain(self._application_id, task, reason)
                outcome.reinitialize[id_] = reason
            elif isinstance(reason, StoreFullException):
                fatal = reason
            elif isinstance(reason, StoreOutOfStepException | ProducerFencedException):
                outcome.reinitialize[id_] = reason
            elif reason is bystander or isinstance(reason, again) or _passes(reason):
                outcome.again[id_] = reason
            elif (
                (self._failing is not None and self._failing.expects(reason))
                or task.failed() > self._retries
                or not _worth_another_try(reason)
            ):
                fatal = reason
            elif isinstance(reason, StateStoreException):
                outcome.reinitialize[id_] = reason
            else:
                outcome.again[id_] = reason
        if fatal is not None:
            if not self._goes_on(fatal, work, outcome, broken):
                raise fatal
            outcome.again |= {
                id_: fatal for id_ in work if id_ not in outcome.reinitialize and id_ not in outcome.again
            }
        for reason in dict.fromkeys(outcome.again.values()):
            if isinstance(reason, BatchTooLarge):
                # Not a failure, and the next batch's size is logged.
                continue
            shared = [id_ for id_, its in outcome.again.items() if its is reason]
            log.warning("batch %d of %s failed and runs again: %s", self._number, name_tasks(shared), reason)

    def _goes_on(
        self,
        fatal: Exception,
        work: Work,
        outcome: BatchOutcome,
        broken: Mapping[TaskId, Exception],
    ) -> bool:
        """Return whether a permanently failed batch runs again, smaller or without a record."""
        if self._failing is None:
            return False
        blamed = {id_ for id_, error in broken.items() if error is fatal} or set(work)
        tasks = [work[id_][0] for id_ in blamed if id_ in work and id_ not in outcome.reinitialize]
        return self._failing.failed(fatal, tasks, resident=outcome.resident)


def _readers(wave: Wave, shares: Iterable[Collection[TaskId]], inputs: Mapping[TaskId, Collection[str]]) -> int:
    """Return how many Python workers read records at once in a wave: one for each leg and Spark partition."""
    return sum(len({leg for leg, _ in wave.reports({task: inputs[task] for task in share})}) for share in shares)


def _require_all(expected: set[tuple[str, TaskId]], reports: Sequence[LegReport]) -> None:
    """Raise JobFailed if a leg's report is missing: its records may be missing too."""
    if missing := expected - {(report.leg, report.task) for report in reports}:
        names = ", ".join(f"leg {leg} of task {task}" for leg, task in sorted(missing))
        raise JobFailed(f"the Spark job ended without a report from {names}")


def _rebuilt_in_vain(application: str, task: Task, reason: StoreCorruptedException) -> StreamsException:
    topics = ", ".join(sorted(partition.topic for partition in task.changelogs.values()))
    return StreamsException(
        f"task {task.id}: its state was rebuilt from {topics} and still cannot be used by the batch after "
        f"{task.position.committed}, so another rebuild cannot help: {reason}. If a newer release of SparkRelay wrote "
        "the changelog, install it on this instance. If something else wrote to it, or it is damaged, start the "
        f"application over: sparkrelay reset --application-id {application} ..."
    )


def _passes(error: Exception) -> bool:
    """Return whether the broker or registry failed temporarily: retried without limit."""
    return isinstance(error, KafkaException | SchemaRegistryException) and error.retriable


def _worth_another_try(error: Exception) -> bool:
    return _passes(error) or isinstance(error, JobFailed | StateStoreException | _SchemaFetched)


def _learned(plans: PreparedLegs, error: UnknownSchemaException) -> SparkRelayError:
    """Fetch the unknown schemas of a batch's records; return why the batch ends."""
    try:
        plans.learn([int(number) for number in error.schema_ids.split(",")])
    except SparkRelayError as refused:
        return refused
    return _SchemaFetched(f"{error}; they are there now")
