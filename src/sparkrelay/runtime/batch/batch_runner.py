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
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.batch.micro_batch import BatchFailure, BatchOutcome, MicroBatch
from sparkrelay.runtime.batch.shown_rows import print_rows
from sparkrelay.runtime.batch.thread_transactions import TransactionKey, Transactions
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.spark.jobs import ClosedWorkerLent, JobCancelled, JobFailed, TaskFailed
from sparkrelay.runtime.tasks.ranges import name_tasks, stops_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from sparkrelay.runtime.batch.batch_functions import BatchFunctions
    from sparkrelay.runtime.batch.residency import Residency
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs, Wave
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
        self.failing = failing or FailingRecords()
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
        outcome = BatchOutcome()
        started, cpu_before = time.perf_counter(), time.thread_time()
        for task, ranges in work.values():
            task.batch_begun(ranges)
        batch = MicroBatch(self._number, plans, self._intend(work, outcome), outcome)
        fault_points.reach("driver-before-job")
        failure = self._attempt(batch, partitions, sources or {})
        outcome.seconds["job"] = time.perf_counter() - started
        if failure is not None:
            self._abort(batch, self._explained(batch, failure))
        elif batch.work:
            fault_points.reach("driver-before-commit")
            self._commit(batch)
            fault_points.reach("driver-after-commit")
            self._show(batch)
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

    def _attempt(
        self, batch: MicroBatch, partitions: Mapping[str, int], sources: Mapping[str, int]
    ) -> BatchFailure | None:
        """Run the jobs of a batch, check its topics, and call the functions; return why it failed, if it did."""
        error: Exception | None = None
        of_tasks: dict[TaskId, Exception] = {}
        reports = batch.outcome.reports
        try:
            if batch.work:
                self._checks.begin(sources)
                self._run_waves(batch, partitions)
                self._checks.require(batch.tasks, sources, by_name=batch.joins_by_request)
            if self._functions is not None and not any(report.error for report in reports):
                for task in batch.tasks:
                    task.batch_fixed()
                self._functions.call(batch.plans, reports)
        except TaskFailed as failed:
            of_tasks[failed.task] = failed.cause
        except UnknownSchemaException as unknown:
            error = _learned(batch.plans, unknown)
        except SparkRelayError as failed:
            error = failed
        of_tasks |= {report.task: report.error for report in reports if report.error is not None}
        return BatchFailure(error, of_tasks) if error is not None or of_tasks else None

    def _run_waves(self, batch: MicroBatch, partitions: Mapping[str, int]) -> None:
        residency, plans = self._residency, batch.plans
        if plans.renew(batch.subtopologies, self._jobs.collect) and residency is not None:
            # The resident job's plan has the old rows.
            residency.close()
        waves = plans.waves(batch.subtopologies, set().union(*batch.inputs.values()))
        legs = {leg for wave in waves for leg in wave.legs}
        if self.failing.searching:
            # The resident job does not report exceptions.
            residency = None
        job = None if residency is None else residency.job_for(plans, legs, sum(batch.records.values()))
        batch.outcome.resident = job is not None
        batch.lend(self._jobs.spark_partitions if job is None else 1, self._transactions)
        description = f"batch {batch.number} of {name_tasks(batch.work)}"
        for wave in waves:
            command = self._command(batch, wave, partitions, legs)
            if job is not None and residency is not None:
                before = job.cpu_seconds
                with residency.watched():
                    reports = job.run(command, wave.legs, description=description)
                batch.outcome.cpu_seconds += job.cpu_seconds - before
            else:
                why = "" if residency is None else f", in a job of its own: {residency.why_bulk}"
                reports = self._jobs.run_batch(wave.frame, command, description=description + why)
            if not batch.reported(wave, reports):
                return
            fault_points.reach("driver-between-waves")

    def _command(
        self, batch: MicroBatch, wave: Wave, partitions: Mapping[str, int], legs: Collection[str]
    ) -> BatchCommand:
        """Return the command for a wave of a batch with these legs."""
        skips = self._skipped_records is not None
        return BatchCommand(
            batch.commands(),
            partitions,
            self._global_tables,
            kept_rows=None if self._functions is None else self._functions.directory(batch.number),
            skipped_records=f"{self._skipped_records}-{batch.number}" if skips else None,
            skips_of=batch.plans.skips_of(legs) if skips else frozenset(),
            max_bytes=self._max_bytes // max(_LEAST_READERS, batch.readers(wave)),
        )

    def _commit(self, batch: MicroBatch) -> None:
        started = time.perf_counter()
        offsets: dict[TransactionKey, dict[TopicPartition, int]] = defaultdict(dict)
        reports = defaultdict(list)
        for report in batch.outcome.reports:
            reports[report.task].append(report)
        notes: dict[TopicPartition, str] = {}
        for task, ranges in batch.work.values():
            own = task.commit_notes(reports[task.id])
            stands = {partition: task.position.offsets[partition] for partition in own}
            offsets[batch.keys[task.id]] |= stops_of(stands, ranges)
            notes |= own
        errors = self._transactions.commit(offsets, notes=notes)
        for task in batch.tasks:
            if (error := errors[batch.keys[task.id]]) is not None:
                self._not_committed(task, error, batch.outcome)
                continue
            task.batch_committed([report.state for report in reports[task.id] if report.state is not None])
            batch.outcome.committed.append(task.id)
        self.failing.passed([batch.work[id_][0] for id_ in batch.outcome.committed], batch.records)
        batch.outcome.seconds["commit"] = time.perf_counter() - started

    def _not_committed(self, task: Task, answer: Exception, outcome: BatchOutcome) -> None:
        """Initialize a task again, which shows whether the batch was committed; that is unknown here.

        Raises:
            SparkRelayError: the broker keeps refusing its commits for a lasting reason.
        """
        outcome.reinitialize[task.id] = answer
        lost = isinstance(answer, ProducerFencedException | CommitFailedException)
        if not (lost or _passes(answer)) and task.failed() > self._retries:
            raise answer

    def _show(self, batch: MicroBatch) -> None:
        """Print the committed rows of ``show()``."""
        shown: dict[str, list[tuple[str | None, ...]]] = {}
        for report in batch.outcome.reports:
            if report.shown and report.task in batch.outcome.committed:
                shown.setdefault(report.leg, []).extend(report.shown)
        for leg, rows in shown.items():
            columns, most = batch.plans.shows(leg)
            print_rows(f"{leg.partition(':')[2]}, batch {batch.number}", columns, rows[:most])

    def _explained(self, batch: MicroBatch, failure: BatchFailure) -> BatchFailure:
        """Return the failure, or the error of a replaced changelog if that is why a topic is unknown."""
        if any(isinstance(error, UnknownTopicException) for error in (failure.error, *failure.of_tasks.values())):
            try:
                self._checks.require_changelogs(batch.tasks)
            except SparkRelayError as error:
                return BatchFailure(error, {})
        return failure

    def _abort(self, batch: MicroBatch, failure: BatchFailure) -> None:
        """Abort all transactions, then decide for each task: initialize again, run again, or give up."""
        outcome, error = batch.outcome, failure.error
        unknown = self._transactions.abort(sorted(set(batch.keys.values())))
        # A fenced instance has not failed: others own some of its tasks by now, and initialization shows which.
        again: tuple[type[Exception], ...] = _NO_FAILURES
        if self._passes_over_lost and not any(task.attempt.intended for task in batch.tasks):
            again += (OffsetOutOfRangeException,)
        bystander = AnotherTaskFailed("another task of the batch failed")
        fatal: Exception | None = None
        if not (error is None or isinstance(error, (ProducerFencedException, *again)) or _worth_another_try(error)):
            fatal = error
            if any(unknown.values()):
                # A zombie's errors do not count either: repartition records are deleted once the new owner has read
                # them. An error of a task that is still ours comes again.
                names = name_tasks(batch.work)
                log.warning("batch %d of %s failed; others may own some of them by now: %s", batch.number, names, error)
                error, fatal = bystander, None
        for id_, (task, _) in batch.work.items():
            if id_ in batch.keys and (ended := unknown[batch.keys[id_]]) is not None:
                outcome.reinitialize[id_] = ended
                continue
            task.batch_aborted()
            reason = failure.of_tasks.get(id_) or error or bystander
            if isinstance(reason, StoreCorruptedException) and not task.copy_corrupt():
                fatal = _rebuilt_in_vain(self._application_id, task, reason)
            if isinstance(reason, StoreCorruptedException | StoreOutOfStepException | ProducerFencedException):
                outcome.reinitialize[id_] = reason
            elif reason is bystander or isinstance(reason, again) or _passes(reason):
                outcome.again[id_] = reason
            elif self._lasts(task, reason):
                fatal = reason
            elif isinstance(reason, StateStoreException):
                outcome.reinitialize[id_] = reason
            else:
                outcome.again[id_] = reason
        if fatal is not None:
            self._narrow_or_raise(batch, failure, fatal)
        _warn_of_repeats(batch)

    def _narrow_or_raise(self, batch: MicroBatch, failure: BatchFailure, fatal: Exception) -> None:
        """Have a permanently failed batch run again, smaller or without a record; raise if that cannot help."""
        outcome = batch.outcome
        blamed = {id_ for id_, error in failure.of_tasks.items() if error is fatal} or set(batch.work)
        tasks = [task for task in batch.tasks if task.id in blamed and task.id not in outcome.reinitialize]
        if not self.failing.failed(fatal, tasks, resident=outcome.resident):
            raise fatal
        rest = (id_ for id_ in batch.work if id_ not in outcome.reinitialize and id_ not in outcome.again)
        outcome.again |= dict.fromkeys(rest, fatal)

    def _lasts(self, task: Task, reason: Exception) -> bool:
        """Count a task's failure; return whether a retry cannot fix it, or has not."""
        return (
            isinstance(reason, StoreFullException)
            or self.failing.expects(reason)
            or task.failed() > self._retries
            or not _worth_another_try(reason)
        )


def _warn_of_repeats(batch: MicroBatch) -> None:
    again = batch.outcome.again
    for reason in dict.fromkeys(again.values()):
        # Too many bytes are not a failure, and the next batch's size is logged.
        if not isinstance(reason, BatchTooLarge):
            shared = name_tasks(id_ for id_, its in again.items() if its is reason)
            log.warning("batch %d of %s failed and runs again: %s", batch.number, shared, reason)


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
