"""One micro-batch: commands out, one Spark job a wave, reports in, then commit or abort.

The driver is the one committer. Workers produce under lent producer ids; nothing they wrote is visible until the
driver, having all legs' reports, sends offsets and EndTxn. So a task's state, repartition records, outputs and
offsets become visible together or not at all. Refused: workers that commit, because a transaction may
end only once every leg that writes in it has reported, which none of them sees.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

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
from sparkrelay.runtime.batch.thread_transactions import TransactionKey
from sparkrelay.runtime.contract import fault_points
from sparkrelay.runtime.contract.commands import BatchCommand
from sparkrelay.runtime.contract.failure_marks import BatchTooLarge
from sparkrelay.runtime.spark.jobs import ClosedWorkerLent, JobCancelled, JobFailed, TaskFailed
from sparkrelay.runtime.tasks.ranges import name_tasks, share_out, stops_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from sparkrelay.client.transactions import ProducerIdentity
    from sparkrelay.runtime.batch.batch_functions import BatchFunctions
    from sparkrelay.runtime.batch.failing_records import FailingRecords
    from sparkrelay.runtime.batch.residency import Residency
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs, Wave
    from sparkrelay.runtime.contract.commands import LegReport
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["SKIPPED_RECORDS", "BatchOutcome", "BatchRunner"]

log = logging.getLogger(__name__)

Ranges = dict["TopicPartition", tuple[int, int]]

#: The directory of a slot in which skipped records wait to be written.
SKIPPED_RECORDS: Final = "skipped-records"
#: Who joins waits for it, and may not get a core. But a JVM that starts where others work takes 10 s, and to cancel it
#: ends its workers: then the first batch would start anew.
_LONGEST_PREWARM_SECONDS = 30.0
#: A single reader gets half of the bytes: with all of them, the worker of a store alone would have 1.5 GB.
_LEAST_READERS: Final = 2
_NO_SOURCES: Final[Mapping[str, int]] = MappingProxyType({})
#: After the first time it is repeated for so long: Spark's workers take turns, and its JVM is slow with young code.
_REPEATING_SECONDS = 0.6


class Transactions(Protocol):
    """Lends and ends transactions: :class:`ThreadTransactions`, or what there is where no broker is."""

    def lend(self, keys: Collection[TransactionKey], /) -> Mapping[TransactionKey, ProducerIdentity]:
        """Return what workers are to write under."""

    def commit(
        self, offsets: Mapping[TransactionKey, Mapping[TopicPartition, int]], /, *, notes: Mapping[TopicPartition, str]
    ) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Commit transactions with their offsets, and what is noted of partitions; return what went wrong."""

    def abort(self, keys: Collection[TransactionKey], /) -> Mapping[TransactionKey, SparkRelayError | None]:
        """Abort transactions; return what went wrong."""


class AnotherTaskFailed(StreamsException):
    """A task's own work was fine, but the batch it ran in was aborted."""


class _SchemaFetched(StreamsException):
    """The batch had records of schemas that were not known, and are now."""


#: What is no failure of a batch: its steps have not run, or run again with what is known now. None comes for ever.
_NO_FAILURES: Final = (BatchTooLarge, ClosedWorkerLent, JobCancelled, _SchemaFetched)


@dataclass(slots=True)
class BatchOutcome:
    """What became of a micro-batch.

    Attributes:
        committed: tasks whose batch is in.
        reinitialize: tasks to initialize again (unknown outcome, fenced, store out of step), with the reason.
        again: tasks whose batch was aborted and runs again with the same ranges, with the reason.
        reports: what each leg did.
        resident: True if it passed through a job that stays.
        seconds: phase -> seconds.
        cpu_seconds: of this thread and, if it was resident, of the Python workers.
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

        Args:
            jobs: runs what is run here.
            transactions: lends and ends those that the tasks are written for in.
            application_id: the application's.
            retries: how often a batch that fails by something of its own is tried again.
            residency: without it every micro-batch has Spark jobs of its own.
            global_tables: the directory of the process's global tables, which its legs look into.
            functions: calls those of ``foreachBatch``, where the pipeline has any.
            skipped_records: a directory of the process's host, of this stream thread alone, for records that are
                skipped; None where none may be.
            failing: finds records that make batches fail; None where such a batch ends the instance.
            checks: of what must hold before a batch is committed; None where nothing can change.
            max_bytes: ``max.batch.bytes``; 0 for any number.
            passes_over_lost: True if a batch whose records are gone is to be chosen anew (``on.data.loss=continue``).
        """
        self._jobs = jobs
        self._residency = residency
        self._transactions = transactions
        self._retries = retries
        self._global_tables = global_tables
        self._functions = functions
        # No former process had a directory of this name.
        self._skipped_records = None if skipped_records is None else skipped_records / uuid.uuid4().hex[:12]
        self._failing = failing
        self._checks = checks or CommitChecks(application_id)
        self._passes_over_lost = passes_over_lost
        self._max_bytes = max_bytes
        self._number = 0

    def prewarm(
        self, plans: PreparedLegs, over: Callable[[], bool], wanted: Callable[[], bool] = lambda: False
    ) -> None:
        """Run every leg without a task, so that code is compiled and workers are up before anybody waits for them.

        Not only once: the second run takes a twentieth of the first one's time, and the fifth a third of the second's.

        Args:
            plans: the prepared legs.
            over: says, on any thread, whether nobody needs it any more: then it is broken off.
            wanted: says whether there are tasks that wait for it: then it is not repeated.

        Raises:
            SparkRelayError: it failed, or did not get a core for a while.
        """
        command = BatchCommand(((),) * self._jobs.spark_partitions, {})
        deadline = time.monotonic() + _LONGEST_PREWARM_SECONDS

        def due() -> bool:
            return over() or time.monotonic() >= deadline

        def ran() -> bool:
            waves = plans.all_waves()
            for wave in waves:
                if not due():
                    self._jobs.prewarm(wave.frame, command, due)
            return bool(waves)

        some = ran()
        enough_at = time.monotonic() + _REPEATING_SECONDS
        while some and time.monotonic() < enough_at and not (due() or wanted()):
            ran()

    def run(
        self,
        plans: PreparedLegs,
        work: Mapping[TaskId, tuple[Task, Ranges]],
        partitions: Mapping[str, int],
        sources: Mapping[str, int] = _NO_SOURCES,
    ) -> BatchOutcome:
        """Run one batch for the given tasks and ranges, and end its transactions.

        Args:
            plans: the prepared legs.
            work: the tasks, and what each takes.
            partitions: partition count of each topic that is written.
            sources: partition count of each source topic whose keys the tasks have state of.

        Raises:
            SparkRelayError: an error that running again cannot mend, such as a record that does not decode; all
                transactions are aborted first.
        """
        self._number += 1
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
        """Note that there is nothing to run just now."""
        if self._residency is not None:
            self._residency.rest()

    def close(self) -> None:
        """End the job that stays, if there is one. Nothing else outlasts a micro-batch."""
        if self._residency is not None:
            self._residency.close()

    def _intend(
        self, work: Mapping[TaskId, tuple[Task, Ranges]], outcome: BatchOutcome
    ) -> Mapping[TaskId, tuple[Task, Ranges]]:
        """Commit what the batches take whose rows must be the same in every try; return the work that is left.

        The offsets stay as they are. Who cannot commit that is initialized again, and finds out what is there.
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
        work: Mapping[TaskId, tuple[Task, Ranges]],
        partitions: Mapping[str, int],
        outcome: BatchOutcome,
        keys: dict[TaskId, TransactionKey],
    ) -> bool:
        """Run the jobs of a batch; ``keys`` gets the transaction of each task, as soon as it may be written in.

        Returns:
            True if records go to topics by their names: old transactions have partitions added by request.
        """
        weights = {id_: sum(end - start for start, end in ranges.values()) for id_, (_, ranges) in work.items()}
        inputs = {id_: {partition.topic for partition in ranges} for id_, (_, ranges) in work.items()}
        topics = set().union(*inputs.values())
        residency = self._residency
        if plans.renew({id_.subtopology for id_ in work}, self._jobs.collect) and residency is not None:
            # The job that stays has the rows in its plan that they were before.
            residency.close()
        waves = plans.waves({id_.subtopology for id_ in work}, topics)
        legs = {leg for wave in waves for leg in wave.legs}
        if self._failing is not None and self._failing.searching:
            # A job that stays does not say what was raised in it.
            residency = None
        job = None if residency is None else residency.job_for(plans, legs, sum(weights.values()))
        outcome.resident = job is not None
        shares = share_out(weights, self._jobs.spark_partitions if job is None else 1)
        places = {id_: TransactionKey(id_.subtopology, number) for number, share in enumerate(shares) for id_ in share}
        lent = self._transactions.lend(set(places.values()))
        keys |= places
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
                # Of what several tasks have written to, the last one's is the highest.
                known = sequences[keys[report.task]]
                known.update({p: max(next_, known.get(p, 0)) for p, next_ in report.next_sequences.items()})
            if any(report.error is not None for report in reports):
                break
            _require_all(wave.reports(inputs), reports)
            fault_points.reach("driver-between-waves")
        return any(identity.joins_by_request for identity in lent.values())

    def _commit(
        self,
        work: Mapping[TaskId, tuple[Task, Ranges]],
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
            taken = {id_: sum(stop - start for start, stop in ranges.values()) for id_, (_, ranges) in work.items()}
            self._failing.passed([work[id_][0] for id_ in outcome.committed], taken)
        outcome.seconds["commit"] = time.perf_counter() - started

    def _not_committed(self, task: Task, answer: Exception, outcome: BatchOutcome) -> None:
        """Have a task initialized again; what it finds says whether it was committed, which is unknown.

        Raises:
            SparkRelayError: the broker refuses its commits again and again, for a reason that does not pass.
        """
        outcome.reinitialize[task.id] = answer
        lost = isinstance(answer, ProducerFencedException | CommitFailedException)
        if not (lost or _passes(answer)) and task.failed() > self._retries:
            raise answer

    def _show(self, plans: PreparedLegs, outcome: BatchOutcome) -> None:
        """Print what the pipeline shows of what is committed."""
        shown: dict[str, list[tuple[str | None, ...]]] = {}
        for report in outcome.reports:
            if report.shown and report.task in outcome.committed:
                shown.setdefault(report.leg, []).extend(report.shown)
        for leg, rows in shown.items():
            columns, most = plans.shows(leg)
            print_rows(f"{leg.partition(':')[2]}, batch {self._number}", columns, rows[:most])

    def _abort(
        self,
        work: Mapping[TaskId, tuple[Task, Ranges]],
        keys: Mapping[TaskId, TransactionKey],
        outcome: BatchOutcome,
        failed: Exception | None,
        broken: Mapping[TaskId, Exception],
    ) -> None:
        """Abort every transaction of the batch, then decide for each task: initialize again, run again, or give up.

        Tasks without one have written nothing yet.
        """
        errors = self._transactions.abort(sorted(set(keys.values())))
        # Fenced is no failure of the instance: it slept, say, and others have its tasks. What comes next shows which.
        again: tuple[type[Exception], ...] = _NO_FAILURES
        if self._passes_over_lost and not _any_intended(work):
            again += (OffsetOutOfRangeException,)
        mends = failed is None or isinstance(failed, (ProducerFencedException, *again)) or _worth_another_try(failed)
        bystander = AnotherTaskFailed("another task of the batch failed")
        if not mends and any(errors.values()):
            # Nor is what a zombie meets: repartition records, say, are deleted once the new owner is done with them.
            # If it is about those that are still ours, it comes again.
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
                    fatal = _rebuilt_in_vain(task, reason)
                outcome.reinitialize[id_] = reason
            elif isinstance(reason, StoreFullException):
                fatal = reason
            elif isinstance(reason, StoreOutOfStepException | ProducerFencedException):
                outcome.reinitialize[id_] = reason
            elif reason is bystander or isinstance(reason, again) or _passes(reason):
                outcome.again[id_] = reason
            elif self._expects(reason) or task.failed() > self._retries or not _worth_another_try(reason):
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
                # That is no failure, and the next batch's size is logged.
                continue
            shared = [id_ for id_, its in outcome.again.items() if its is reason]
            log.warning("batch %d of %s failed and runs again: %s", self._number, name_tasks(shared), reason)

    def _expects(self, reason: Exception) -> bool:
        return self._failing is not None and self._failing.expects(reason)

    def _goes_on(
        self,
        fatal: Exception,
        work: Mapping[TaskId, tuple[Task, Ranges]],
        outcome: BatchOutcome,
        broken: Mapping[TaskId, Exception],
    ) -> bool:
        """Return whether a batch that has failed for good runs again, smaller or without a record."""
        if self._failing is None:
            return False
        blamed = {id_ for id_, error in broken.items() if error is fatal} or set(work)
        tasks = [work[id_][0] for id_ in blamed if id_ in work and id_ not in outcome.reinitialize]
        return self._failing.failed(fatal, tasks, resident=outcome.resident)


def _any_intended(work: Mapping[TaskId, tuple[Task, Ranges]]) -> bool:
    """Return whether a batch must take the same records in every try."""
    return any(task.attempt.intended for task, _ in work.values())


def _readers(wave: Wave, shares: Iterable[Collection[TaskId]], inputs: Mapping[TaskId, Collection[str]]) -> int:
    """Return how many Python workers a wave has read records at the same time: one for each leg and Spark partition."""
    return sum(len({leg for leg, _ in wave.reports({task: inputs[task] for task in share})}) for share in shares)


def _require_all(expected: set[tuple[str, TaskId]], reports: Sequence[LegReport]) -> None:
    """Refuse to take a job for done of which some leg has not said that it did its part for a task.

    Raises:
        JobFailed: a report is missing: what should have been written may not be there.
    """
    if missing := expected - {(report.leg, report.task) for report in reports}:
        names = ", ".join(f"leg {leg} of task {task}" for leg, task in sorted(missing))
        raise JobFailed(f"the Spark job ended without a report from {names}")


def _rebuilt_in_vain(task: Task, reason: StoreCorruptedException) -> StreamsException:
    topics = ", ".join(sorted(partition.topic for partition in task.changelogs.values()))
    return StreamsException(
        f"task {task.id}: its state was rebuilt from {topics} and still cannot be used by the batch after "
        f"{task.position.committed}, so building it once more cannot help: {reason}. If a newer release of SparkRelay "
        "wrote the changelog, install that one on this instance. If something else wrote to it, or it is damaged, "
        "start the application over: sparkrelay reset"
    )


def _passes(error: Exception) -> bool:
    """Return whether broker or registry are to blame: these are waited out, however often the batch is tried."""
    return isinstance(error, KafkaException | SchemaRegistryException) and error.retriable


def _worth_another_try(error: Exception) -> bool:
    return _passes(error) or isinstance(error, JobFailed | StateStoreException | _SchemaFetched)


def _learned(plans: PreparedLegs, error: UnknownSchemaException) -> SparkRelayError:
    """Have the schemas fetched that a batch's records were written by; return why the batch ends."""
    try:
        plans.learn([int(number) for number in error.schema_ids.split(",")])
    except SparkRelayError as refused:
        return refused
    return _SchemaFetched(f"{error}; they are there now")
