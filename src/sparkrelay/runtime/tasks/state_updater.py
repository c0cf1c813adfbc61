"""The state updater: a thread that restores tasks and keeps standbys warm, in slices, while micro-batches run.

Spark's FAIR pools do not preempt, so slices limit how long a batch may wait for one. A slice covers all tasks with
something to restore; if there are none, no job runs.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from typing import TYPE_CHECKING

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import (
    KafkaException,
    SchemaRegistryException,
    SparkRelayError,
    StateStoreException,
    StoreCorruptedException,
    StoreOutOfStepException,
    StreamsException,
    UnknownSchemaException,
    WakeupException,
)
from sparkrelay.runtime.spark.cancelling import cancel_until
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.tasks.restore_progress import describe_slice
from sparkrelay.runtime.tasks.restore_surroundings import RestorePace
from sparkrelay.runtime.tasks.restore_work import slice_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.contract.commands import RestoreCommand, RestoreReport
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.restore_surroundings import RestoreSurroundings
    from sparkrelay.runtime.tasks.restore_work import Ends, RestoreWork
    from sparkrelay.types import TaskId

log = logging.getLogger(__name__)

_LONGEST_RETRY = 30.0
#: The trouble of a worker that dies for more than a minute is not temporary.
_JOB_TRIES = 8
#: If a copy is damaged more often, the disk is faulty.
_REBUILDS = 3


class StateUpdater:
    """Restores on its own thread. The stream thread assigns work and collects restored tasks."""

    def __init__(self, jobs: Jobs, around: RestoreSurroundings, *, name: str, pace: RestorePace | None = None) -> None:
        """Prepare the thread; ``jobs`` runs the slices."""
        self._jobs = jobs
        self._around = around
        self._pace = pace or RestorePace()
        self._wake = threading.Condition()
        self._work: dict[TaskId, RestoreWork] = {}
        #: Progress of each copy; complete ones stay until they are taken. Replaced as a whole, never changed, and read
        #: without the lock: the listeners of two threads that read all copies would wait for each other.
        self._copies: Mapping[TaskId, RestoreProgress] = {}
        self._restored: dict[TaskId, RestoreReport] = {}
        #: Tasks whose stores the running Spark job may touch, and whether it was cancelled.
        self._touched: frozenset[TaskId] = frozenset()
        self._cancelled = False
        self._stopping = False
        self._slices = 0
        #: ``active_elsewhere`` as of this turn.
        self._theirs: Collection[TaskId] = ()
        self._retries = Backoff.for_brokers()
        #: Only for Spark jobs: earlier failures of brokers do not count.
        self._job_retries = Backoff(self._pace.retry, _LONGEST_RETRY, jitter=0)
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; cancel a slice that takes long. Raises StreamsException if Spark does not cancel it."""
        with self._wake:
            self._stopping = True
            self._wake.notify_all()
        self._around.interrupt()
        with self._wake:
            self._leave(self._touched)
        if self._thread.ident is not None:
            self._thread.join()

    def assign(self, works: list[RestoreWork]) -> None:
        """Add or replace work."""
        with self._wake:
            for work in works:
                self._work[work.task] = work
                self._restored.pop(work.task, None)
            self._copies = {**self._copies, **{work.task: work.progress({}) for work in works}}
            self._wake.notify_all()

    def release(self, tasks: list[TaskId]) -> None:
        """Remove tasks; return once no slice touches them. Raises StreamsException if Spark does not cancel it.

        Only the current slice is waited for, and only if they are in it. It may itself wait for a core during a long
        batch of other tasks: then it is cancelled, and other tasks restore in the next one.
        """
        with self._wake:
            for task in tasks:
                self._work.pop(task, None)
                self._restored.pop(task, None)
            self._forget_copies(tasks)
            self._leave(tasks)
            if self._around.notices is not None:
                self._around.notices.left(tasks)

    def _leave(self, tasks: Collection[TaskId]) -> None:
        """Wait until the current slice ends if it contains those tasks; cancel it if that takes long."""
        if self._wake.wait_for(lambda: not self._touched.intersection(tasks), self._pace.longest_wait):
            return
        log.info("a restore slice has not ended within %g s and is cancelled", self._pace.longest_wait)

        def cancel() -> None:
            self._cancelled = True
            # Under the lock, so that the next slice cannot begin.
            self._jobs.cancel_restore()

        if cancel_until(lambda s: self._wake.wait_for(lambda: not self._touched.intersection(tasks), s), cancel):
            return
        names = ", ".join(map(str, sorted(tasks)))
        raise StreamsException(
            f"Spark neither finished nor cancelled the restore of tasks {names}: look in its UI for what the job does"
        )

    def take_restored(self) -> dict[TaskId, RestoreReport]:
        """Return the tasks restored since the last call; raise the error that ended the thread, if any."""
        with self._wake:
            if self._failure is not None:
                raise self._failure
            restored, self._restored = self._restored, {}
            self._forget_copies(restored)
            return restored

    def copies(self) -> Mapping[TaskId, RestoreProgress]:
        """Return the progress of all copies being restored. Thread-safe."""
        return self._copies

    def _forget_copies(self, tasks: Collection[TaskId]) -> None:
        self._copies = {task: copy for task, copy in self._copies.items() if task not in tasks}

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001 - the stream thread rethrows it
            # SystemExit would end this thread silently.
            failure = error if isinstance(error, Exception) else StreamsException(f"{self._thread.name}: {error!r}")
            with self._wake:
                self._failure = failure
                self._wake.notify_all()

    def _turn(self) -> bool:
        with self._wake:
            if self._stopping:
                return False
            known = list(self._work.values())
            if not known:
                self._wake.wait()
                return True
        # An assignment may turn one thread's standby into another's task, with the same copy. If the other thread takes
        # it over first, this one must leave it, or both would undo each other's work.
        self._theirs = self._around.active_elsewhere()
        with self._wake:
            works = self._ours()
            # Active tasks are waited for; standbys can wait.
            works = [work for work in works if work.ends is not None] or works
            # Setting a copy aside needs no take-over, so it must not wait for what might block on a late worker.
            works = [work for work in works if work.wipe] or works
        pause = 0.0
        try:
            if not self._slice(works):
                pause = self._rest()
            self._retries.reset()
            self._job_retries.reset()
        except WakeupException:
            return False
        except SparkRelayError as error:
            pause = self._backoff(error)
        if pause:
            with self._wake:
                if not self._stopping and list(self._work.values()) == known:
                    self._wake.wait(pause)
        return True

    def _rest(self) -> float:
        """Return how long to pause when there is nothing to restore.

        Starting a job costs more than the records that a busy owner writes meanwhile. An urgent task is assigned, which
        ends the pause.
        """
        now = time.monotonic()
        with self._wake:
            settled = all(
                work.task not in self._theirs
                and work.complete_since is not None
                and now - work.complete_since >= self._pace.settled_after
                for work in self._work.values()
            )
        return self._pace.settled_idle if settled else self._pace.idle

    def _backoff(self, error: SparkRelayError) -> float:
        """Return the pause before a failed slice is retried; raise errors that a retry cannot fix."""
        with self._wake:
            cancelled, self._cancelled = self._cancelled, False
        if cancelled and isinstance(error, JobFailed):
            return 0.0
        of_job = isinstance(error, JobFailed)
        passing = error.retriable if isinstance(error, KafkaException) else of_job
        if not passing or (of_job and self._job_retries.failures + 1 >= _JOB_TRIES):
            raise error
        pause = (self._job_retries if of_job else self._retries).next()
        log.warning("a restore slice failed and is tried again in %.1f s: %s", pause, error)
        return pause

    def _slice(self, works: list[RestoreWork]) -> bool:
        """Restore one slice of everything that lags; return False if there is nothing left to do for now.

        A standby of a busy owner always lags a little: without a pause after it catches up, small jobs would keep a
        core busy.
        """
        partitions = [p for work in works if work.ends is None for p in work.changelogs.values()]
        ends = self._around.list_ends(partitions) if partitions else {}
        new = {p.topic for work in works if not work.taken_over for p in work.changelogs.values()}
        ids = self._around.topic_ids(new) if new else {}
        commands: dict[TaskId, RestoreCommand] = {}
        weights: dict[TaskId, int] = {}
        for work in works:
            # A wiped copy is filled in the next slice: if this one is retried, nothing restored is lost.
            stores = () if work.wipe else work.missing(work.goal(ends))
            if stores or not work.taken_over:
                commands[work.task] = work.command(stores, ids)
                known = work.changelog_next or {}
                weights[work.task] = 1 + sum(store.end - known.get(store.changelog, 0) for store in stores)
        with self._wake:
            # Tasks released meanwhile must not be touched.
            works = [work for work in works if work.task in commands and self._work.get(work.task) is work]
            if not works or self._stopping:
                return False
            self._touched = frozenset(work.task for work in works)
            self._cancelled = False
        return self._restore_slice(works, commands, weights, ends)

    def _restore_slice(
        self,
        works: list[RestoreWork],
        commands: Mapping[TaskId, RestoreCommand],
        weights: Mapping[TaskId, int],
        ends: Ends,
    ) -> bool:
        """Run a slice; return False if there is nothing left to do for now."""
        # A slice may not have time for all records: those that waited longest go first.
        in_turn = sorted(works, key=lambda work: (work.turn, -weights[work.task]))
        # Standbys get short slices: one may become active at any moment, and then waits for its slice.
        alone = all(work.ends is not None for work in works) and not self._around.running()
        seconds = self._pace.restore if alone else self._pace.slice
        slice_ = slice_of(
            (commands[work.task] for work in in_turn), self._jobs.spark_partitions, weights, seconds=seconds
        )
        before = [work.progress(ends) for work in works]
        began = time.monotonic()
        try:
            reports = self._jobs.restore(slice_, description=describe_slice(before))
        finally:
            with self._wake:
                self._touched = frozenset()
                self._wake.notify_all()
        if ends and time.monotonic() - began > self._pace.stale:
            # It waited for a core or for Python workers: with the old ends, copies would look too complete.
            try:
                ends = self._around.list_ends(list(ends))
            except KafkaException as error:
                if not error.retriable:
                    raise
        for report in reports:
            # Not under the lock, as the registry may be slow.
            if isinstance(report.error, UnknownSchemaException):
                self._learn(report.task, report.error)
        by_task = {work.task: work for work in works}
        self._slices += 1
        with self._wake:
            for report in reports:
                if report.records or report.error is not None:
                    by_task[report.task].turn = self._slices
                current = self._work.get(report.task)
                if current is not None and current is by_task[report.task]:
                    self._take(current, report, current.goal(ends))
                    self._copies = {**self._copies, report.task: current.progress(ends)}
            copies = [copy for task, copy in self._copies.items() if task in self._work]
            if self._around.notices is not None:
                # Under the lock, so that tasks released meanwhile are notified after this.
                moved = [self._copies[report.task] for report in reports if report.task in self._copies]
                self._around.notices.moved(moved, frozenset(self._restored))
        self._around.on_slice(copies, sum(report.records for report in reports))
        if any(report.error is not None for report in reports):
            return False
        with self._wake:
            return any(not work.taken_over or work.missing(work.goal(ends)) for work in self._ours())

    def _learn(self, task: TaskId, error: UnknownSchemaException) -> None:
        """Fetch the schemas of the records; wait for a registry that does not answer."""
        try:
            self._jobs.learn_schemas([int(number) for number in error.schema_ids.split(",")])
        except SchemaRegistryException as unanswered:
            if not unanswered.retriable:
                raise
            log.warning("task %s: its restore waits for the schema registry: %s", task, unanswered)
        else:
            log.info("task %s: %s; they are there now", task, error)

    def _ours(self) -> list[RestoreWork]:
        return [work for work in self._work.values() if work.ends is not None or work.task not in self._theirs]

    def _take(self, work: RestoreWork, report: RestoreReport, ends: Ends) -> None:
        if report.error is not None:
            self._recover(work, report.error)
            return
        if work.wipe:
            self._around.on_set_aside()
        work.wipe = False
        if not report.read_through:
            log.debug("task %s: its state was not closed, and is still compared with what was written", work.task)
            return
        work.taken_over = True
        work.changelog_next = dict(report.changelog_next)
        work.disk_bytes = report.disk_bytes
        if work.started_at is None:
            work.started_at = dict(report.started_at)
        if work.first_lag is None:
            work.first_lag = report.records + (work.progress(ends).lag or 0)
        if not work.missing(ends):
            work.wiped = 0
            if work.complete_since is None:
                work.complete_since = time.monotonic()
        if work.ends is not None:
            work.require_changelogs()
            if not work.missing(work.ends):
                self._restored[work.task] = dataclasses.replace(report, task_epoch=work.task_epoch)
                del self._work[work.task]

    def _recover(self, work: RestoreWork, error: Exception) -> None:
        """Rebuild the store, retry, or raise the error of a failed slice."""
        if isinstance(error, StoreCorruptedException):
            work.wiped += 1
            if work.wiped > _REBUILDS:
                raise StateStoreException(
                    f"task {work.task}: its local state was rebuilt {_REBUILDS} times and cannot be used again: "
                    f"{error}. Look at the disk below {work.directory}, or move state.dir to another one"
                ) from error
            log.error(
                "task %s: its local state cannot be used. It is set aside as %s.corrupt-<n> and %s: %s",
                work.task,
                work.directory,
                "rebuilt from the changelog" if work.changelogs else "begins empty, having no changelog",
                error,
            )
            # Known to be empty, not unknown: the group must not rely on the old copy.
            work.wipe, work.taken_over, work.changelog_next, work.first_lag = True, False, {}, None
            work.complete_since = None
        elif isinstance(error, StoreOutOfStepException):
            # A cancelled batch may have reached the store late: it is undone, and refused from now on.
            log.warning("task %s: its store is out of step and is taken over again: %s", work.task, error)
            work.taken_over, work.changelog_next = False, None
        elif isinstance(error, KafkaException) and error.retriable:
            log.warning("task %s: a slice of its restore failed and is tried again: %s", work.task, error)
        elif not isinstance(error, UnknownSchemaException):
            raise error
