"""The tasks of one stream thread, from their assignment to their release."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from sparkrelay.errors import KafkaException, SparkRelayError, StoreCorruptedException, StreamsException
from sparkrelay.protocol import LATEST_OFFSET
from sparkrelay.runtime.contract.commands import RestoreCommand
from sparkrelay.runtime.spark.cancelling import cancel_until, cancelled_when
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.tasks.restore_work import slice_of
from sparkrelay.runtime.tasks.task import Task
from sparkrelay.runtime.tasks.task_initializer import TaskInitializer, longest_initialization
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.topics.layout import require_same_width
from sparkrelay.state.home.obsolete import ABANDONED_SECONDS

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection

    from sparkrelay.client.application_admin import ApplicationAdmin
    from sparkrelay.client.group_requests import GroupMetadata
    from sparkrelay.client.transactions import TransactionCoordinator
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.batch_thread import BatchThread
    from sparkrelay.runtime.contract.owners import Owner
    from sparkrelay.runtime.slot.cleaner import Cleaner
    from sparkrelay.runtime.slot.executor_slot import ProcessSlot
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.tasks.state_updater import StateUpdater
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.types import TaskId, TopicPartition

log = logging.getLogger(__name__)

#: Shares of max.poll.interval.ms, the bound on a rebalance, for a running batch to end and for a cancelled one.
_WAITED_FOR = 0.5
_WAITED_FOR_CANCELLED = 0.25
#: Bounds on closing stores, the second as a share of it: the job may queue for a core.
_LONGEST_LEAVE_SECONDS = 10.0
_SHARE_FOR_LEAVING = 0.1
#: How soon a stopped session or a deleted directory is noticed; asking the JVM takes a while.
_TARGET_SECONDS = 0.5


class TaskSet:
    """For the stream thread only; ``InService`` is what it shares with the batch thread."""

    def __init__(
        self,
        *,
        config: StreamsConfig,
        slot: ProcessSlot,
        jobs: Jobs,
        state_updater: StateUpdater,
        in_service: InService,
        owner: Owner,
        transactions: TransactionCoordinator,
        application: ApplicationAdmin,
        at_close: ApplicationAdmin,
        topics: Topics,
        cleaner: Cleaner,
        stopping: threading.Event,
    ) -> None:
        self._config = config
        self._slot = slot
        self._jobs = jobs
        #: Uses the batch thread's client, once that thread has ended: the stream thread's is interrupted by then.
        self._at_close = at_close
        self._state_updater = state_updater
        self._in_service = in_service
        self._topics = topics
        self._cleaner = cleaner
        self._stopping = stopping
        self._initializer = TaskInitializer(
            config=config,
            owner=owner,
            transactions=transactions,
            application=application,
            topics=topics,
            state_updater=state_updater,
            in_service=in_service,
        )
        #: As of the newest assignment; None before the first. Thread-safe.
        self.layout: TaskLayout | None = None
        self._tasks: dict[TaskId, Task] = {}
        #: When to check Spark's session and the slot again.
        self._target_due = 0.0
        #: Unused local copies: task -> sum of changelog offsets.
        self._leftovers: dict[TaskId, int] = {}

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Inspect the state directory, and start restoring."""
        self._state_updater.start()
        # Other threads of the process may own tasks already.
        held = self._cleaner.held()
        self._leftovers = self._inspect_local_state([id_ for id_ in self._slot.task_ids() if id_ not in held])

    def close(self, *, clean: bool, batches: BatchThread) -> None:
        """End the batch and restoring; if ``clean``, drop the journals of committed batches and close the stores.

        Raises:
            StreamsException: a batch neither ends nor can be cancelled; its tasks' stores stay as they are.
        """
        tasks, self._tasks = list(self._tasks.values()), {}
        self._cleaner.gone(self)
        batches.ask_to_end()
        try:
            # A batch of lost tasks must end as well.
            self._wait_for_batches(self._in_service.under_way.union(task.id for task in tasks))
        finally:
            self._state_updater.stop()
        batches.stop()
        if clean:
            self._release(tasks, self._at_close)
            self._drop_journals(tasks)
        for task in tasks:
            task.withdrawn()

    def drop(self) -> None:
        """Drop all tasks without closing their stores: their executor is gone."""
        self._in_service.withdraw(self._tasks, timeout=0.0)
        for task in self._tasks.values():
            task.withdrawn()
        self._tasks = {}

    # -- what the group says ----------------------------------------------------------------------------------------

    def joined(self, member: GroupMetadata) -> None:
        """Record the thread's membership."""
        self._in_service.joined(member)

    def follow(self, active: Collection[TaskId], standby: Collection[TaskId]) -> None:
        """Follow a new assignment."""
        layout = self._update_layout()
        self._note_restore_progress()
        unknown = (set(active) | set(standby)) - set(layout.tasks)
        if unknown:
            raise StreamsException(f"the leader assigned tasks that this topology does not have: {sorted(unknown)}")
        gone = [
            task
            for id_, task in self._tasks.items()
            # If a source topic grew, tasks that now read more partitions are recreated.
            if (id_ not in active and id_ not in standby) or task.inputs != layout.tasks[id_].inputs
        ]
        self._let_go(gone)
        demoted = [task for id_, task in self._tasks.items() if id_ in standby and task.state is not TaskState.STANDBY]
        self._demote(demoted)
        self._wait_for_batches({*active, *standby} - self._tasks.keys())
        # Together: one slice may hold them all.
        standing_by = {id_ for id_, task in self._tasks.items() if task.state is TaskState.STANDBY}
        self._state_updater.release(sorted(standing_by.intersection(active)))
        for id_ in active:
            self._activate(id_)
        self._stand_by([self._new(id_) for id_ in standby if id_ not in self._tasks])
        self._cleaner.assigned(self, self._tasks)

    def clean_up(self) -> None:
        """Remove copies unused for ``state.cleanup.delay.ms``, if a check is due."""
        self._cleaner.turn(self, self._tasks, time.time())

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Release the tasks of revoked partitions that :meth:`follow` has not released yet."""
        self._let_go(self._running_on(partitions))

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the tasks of lost partitions. Others may run them already, so their stores stay as they are."""
        # From here on no running batch commits offsets, whichever generation is next.
        self._in_service.expelled()
        lost = self._running_on(partitions)
        for task in lost:
            log.warning("task %s is lost: this member was expelled from the group", task.id)
        self._note_restore_progress()
        self._state_updater.release([task.id for task in lost])
        # Without waiting for their batch: it is fenced if they have a new owner.
        self._in_service.withdraw([task.id for task in lost], timeout=0.0)
        for task in lost:
            task.withdrawn()
            del self._tasks[task.id]
            self._leave_behind(task)

    def offset_sums(self) -> dict[TaskId, int]:
        """Return the offset sums of a subscription: LATEST_OFFSET for running tasks, else the sum of changelog offsets.

        Reported copies are not cleaned up until the assignment is followed.
        """
        self._cleaner.reported(self)
        self._note_restore_progress()
        # Other threads of the process report their own tasks.
        held = self._cleaner.held()
        sums = {
            id_: total
            for id_, total in self._leftovers.items()
            if self._slot.holds(id_) and (id_ in self._tasks or id_ not in held)
        }
        for id_, task in self._tasks.items():
            if task.stateful:
                # Unknown until the first slice is restored.
                known = task.offset_sum or sums.get(id_, 0)
                sums[id_] = LATEST_OFFSET if task.state is TaskState.RUNNING else known
        return sums

    # -- bringing tasks up ------------------------------------------------------------------------------------------

    def require_target(self) -> None:
        """Check that jobs can run and stores be opened; an idle instance would not notice otherwise.

        Raises:
            StreamsException: the Spark session is gone, or the executor.
            StateStoreException: the slot's directory is gone.
        """
        if time.monotonic() < self._target_due:
            return
        self._jobs.require_session()
        self._slot.require_in_place()
        self._target_due = time.monotonic() + _TARGET_SECONDS

    def bring_up(self) -> None:
        """Take restored tasks into service and initialize created ones; raises as :meth:`require_target` does.

        Raises:
            KafkaException: some could not be initialized. After a retriable error a later call does it.
        """
        self.require_target()
        # Listed before serve(): tasks that fail there may have been fenced, which the next turn checks first.
        created = [task for task in self._tasks.values() if task.state is TaskState.CREATED]
        restored = {
            task.id: (task, report)
            for id_, report in self._state_updater.take_restored().items()
            if (task := self._tasks.get(id_))
            and task.state is TaskState.RESTORING
            and task.task_epoch == report.task_epoch
        }
        for task, report in restored.values():
            # The state updater reports it only once, and subscriptions need it even if the task cannot be served yet.
            task.restore_progressed(report.changelog_next)
            task.copy.disk_bytes = report.disk_bytes
        # Restored tasks first: trouble with initializing others must not keep them from service.
        try:
            self._in_turn(
                [task for task, _ in restored.values()],
                lambda tasks: self._initializer.serve([restored[task.id] for task in tasks]),
            )
        finally:
            # Tasks that were not served: their reports are consumed.
            self._initializer.start_over([task for task, _ in restored.values()])
        self._in_turn(created, self._initializer.initialize)

    def _in_turn(self, tasks: list[Task], do: Callable[[list[Task]], None]) -> None:
        """Call ``do`` with all tasks at once; after a KafkaException one by one, those with the fewest errors first.

        So a task whose partition has no leader delays the others only once. The thread must also serve its group, so
        one call is bounded in time; later calls do the rest.
        """
        if not tasks:
            return
        apart = any(task.hindered for task in self._tasks.values())
        one_by_one = ([task] for task in sorted(tasks, key=lambda task: task.hindered))
        deadline = time.monotonic() + longest_initialization(self._config)
        for some in one_by_one if apart else [tasks]:
            if time.monotonic() > deadline:
                return
            try:
                do(some)
            except KafkaException:
                for task in some:
                    task.hindered += 1
                raise
            for task in some:
                if task.state is TaskState.RUNNING:
                    task.hindered = 0

    def reinitialize(self, task: Task, reason: Exception) -> None:
        """Initialize a task again that was fenced, has a batch of unknown outcome, or a store out of step."""
        if task.copy.wipe:
            how = "starts empty, without a changelog" if task.unlogged else "is rebuilt from the changelog"
            log.error("task %s: local state is unusable and %s: %s", task.id, how, reason)
            self._leftovers.pop(task.id, None)
        else:
            log.warning("task %s is initialized again: %s", task.id, reason)
        task.fell_out()

    def running(self) -> list[Task]:
        """Return the tasks in service."""
        return [task for task in self._tasks.values() if task.state is TaskState.RUNNING]

    @property
    def active(self) -> set[TaskId]:
        """Active tasks, in service or not."""
        return {id_ for id_, task in self._tasks.items() if task.state is not TaskState.STANDBY}

    def all(self) -> list[Task]:
        """Return all tasks."""
        return list(self._tasks.values())

    @property
    def all_up(self) -> bool:
        """True if every active task is in service."""
        return {task.state for task in self._tasks.values()} <= {TaskState.RUNNING, TaskState.STANDBY}

    @property
    def internal_topics(self) -> Collection[str]:
        """Names of the application's internal topics."""
        return () if self.layout is None else self.layout.internal_topics.keys()

    def standby_lags(self) -> dict[TaskId, int]:
        """Return the known lags of standbys, in changelog offsets."""
        self._note_restore_progress()
        return {
            id_: task.lag for id_, task in self._tasks.items() if task.state is TaskState.STANDBY and task.copy.ends
        }

    # -- inside -----------------------------------------------------------------------------------------------------

    def _new(self, id_: TaskId) -> Task:
        assert self.layout is not None
        shape = self.layout.tasks[id_]
        directory = str(self._slot.task_dir(id_)) if shape.stores or shape.changelogs else None
        task = Task.of(id_, shape, directory, self._config)
        self._tasks[id_] = task
        return task

    def _activate(self, id_: TaskId) -> None:
        task = self._tasks.get(id_)
        if task is None:
            self._new(id_)
        elif task.state is TaskState.STANDBY:
            task.assigned_active()

    def _stand_by(self, tasks: list[Task]) -> None:
        works = [task.assigned_standby() for task in tasks]
        self._state_updater.assign([work for work in works if work is not None])

    def _demote(self, tasks: list[Task]) -> None:
        ids = [task.id for task in tasks]
        self._wait_for_batches(ids)
        self._state_updater.release(ids)
        self._release(tasks)
        self._drop_journals([task for task in tasks if task.state is TaskState.RUNNING], close=False)
        self._stand_by(tasks)

    def _let_go(self, tasks: list[Task]) -> None:
        if not tasks:
            return
        ids = [task.id for task in tasks]
        self._wait_for_batches(ids)
        self._note_restore_progress()
        self._state_updater.release(ids)
        self._release(tasks)
        self._drop_journals(tasks)
        for task in tasks:
            task.withdrawn()
            self._tasks.pop(task.id, None)
            self._leave_behind(task)

    def _leave_behind(self, task: Task) -> None:
        """Remember how far the copy of a released task has come, if known."""
        if task.stateful and task.offset_sum:
            self._leftovers[task.id] = task.offset_sum

    def _release(self, tasks: Collection[Task], application: ApplicationAdmin | None = None) -> None:
        self._initializer.release([task for task in tasks if task.state is TaskState.RUNNING], application)

    def _wait_for_batches(self, ids: Collection[TaskId]) -> None:
        """Take tasks out of service and wait for their batch, no longer than a rebalance may take.

        A batch that takes longer is cancelled: it aborts its transactions, and whoever opens the stores next undoes its
        changes by their journals.

        Raises:
            StreamsException: it cannot be cancelled either. The next owner fences it.
        """
        if not (left := self._in_service.withdraw(ids, timeout=0.0)):
            return
        names = ", ".join(map(str, sorted(left)))
        log.info("waiting for the micro-batch of tasks %s", names)
        bound = self._config.max_poll_interval_ms / 1000
        if not (left := self._in_service.withdraw(ids, timeout=bound * _WAITED_FOR)):
            return
        waited = f"{bound * _WAITED_FOR:g} s, {_WAITED_FOR:.0%} of max.poll.interval.ms"
        log.warning(
            "the micro-batch of tasks %s has not ended within %s: cancelling and undoing it. Lower max.batch.records "
            "if batches take so long",
            names,
            waited,
        )
        under_way = left
        ended = cancel_until(
            lambda seconds: not self._in_service.withdraw(ids, timeout=seconds),
            lambda: self._in_service.while_under_way(under_way, self._jobs.cancel_batch),
            bound * _WAITED_FOR_CANCELLED,
        )
        if not ended:
            raise StreamsException(
                f"the micro-batch of tasks {names} did not end within {waited}, and Spark could not cancel it. Check "
                "its job in Spark's UI"
            )

    def _update_layout(self) -> TaskLayout:
        layout = self._topics.layout()
        if self.layout is not None:
            require_same_width(self._config.application_id, self.layout, layout)
        self.layout = layout
        self._initializer.see(layout)
        self._in_service.source_partitions = layout.source_partitions
        self._in_service.sink_partitions = layout.sink_partitions
        self._in_service.writers = layout.writers
        return layout

    def _drop_journals(self, tasks: list[Task], *, close: bool = True) -> None:
        """Drop the journals of committed batches and sync, so that the next owner can use the copy as it is."""
        commands = [command for task in tasks if (command := task.close_command(close=close)) is not None]
        if not commands:
            return
        try:
            longest = min(_LONGEST_LEAVE_SECONDS, self._config.max_poll_interval_ms / 1000 * _SHARE_FOR_LEAVING)
            reports = self._jobs.drop_journals(
                slice_of(commands, self._jobs.spark_partitions),
                description=f"closing {len(commands)} tasks",
                seconds=longest,
            )
        except SparkRelayError as error:
            # Nothing is lost: the next owner undoes and restores a little more.
            log.warning("stores could not be closed cleanly: %s", error)
            return
        by_id = {task.id: task for task in tasks}
        for report in reports:
            if report.error is not None:
                log.warning("task %s: its store could not be closed cleanly: %s", report.task, report.error)
            if isinstance(report.error, StoreCorruptedException):
                # It must be rebuilt: the group must not count on it.
                by_id[report.task].copy_lost()
                self._leftovers.pop(report.task, None)

    def _inspect_local_state(self, ids: Collection[TaskId]) -> dict[TaskId, int]:
        if not ids:
            return {}
        unused_before = time.time() - ABANDONED_SECONDS
        commands = [
            # Without undoing anything: another thread of the process may have initialized the task.
            RestoreCommand(id_, str(self._slot.task_dir(id_)), unused_before=unused_before, close=True)
            for id_ in ids
        ]
        try:
            # The job may queue for a core, without which joining the group is no use; a stop cancels it.
            with cancelled_when(self._stopping.is_set, self._jobs.cancel_restore):
                slice_ = slice_of(commands, self._jobs.spark_partitions)
                reports = self._jobs.restore(slice_, description=f"inspecting the local state of {len(commands)} tasks")
        except JobFailed as error:
            # The copies are still used once their tasks are assigned here; only the group does not know of them.
            level = logging.DEBUG if self._stopping.is_set() else logging.WARNING
            log.log(level, "local state could not be inspected: %s", error)
            return {}
        sums = {}
        for report in reports:
            if report.error is None:
                sums[report.task] = sum(report.changelog_next.values())
            else:
                log.warning("local copy of task %s is unusable: %s", report.task, report.error)
        return sums

    def _running_on(self, partitions: Collection[TopicPartition]) -> list[Task]:
        wanted = set(partitions)
        return [t for t in self._tasks.values() if t.state is not TaskState.STANDBY and wanted.intersection(t.inputs)]

    def _note_restore_progress(self) -> None:
        for id_, copy in self._state_updater.copies().items():
            task = self._tasks.get(id_)
            if task is None or copy.offsets is None or task.state not in {TaskState.STANDBY, TaskState.RESTORING}:
                continue
            task.restore_progressed(copy.offsets, copy.ends if task.state is TaskState.STANDBY else None)
            task.copy.disk_bytes = copy.disk_bytes
            self._leftovers.pop(id_, None)
