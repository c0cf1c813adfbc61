"""The tasks of one stream thread: which it has, how they are initialized, restore, run, stand by and leave."""

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
    from sparkrelay.client.transaction_calls import GroupMember
    from sparkrelay.client.transactions import TransactionCoordinator
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.batch_thread import BatchThread
    from sparkrelay.runtime.contract.owners import Owner
    from sparkrelay.runtime.slot.cleaner import Cleaner
    from sparkrelay.runtime.slot.process_slot import ProcessSlot
    from sparkrelay.runtime.spark.jobs import Jobs
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.tasks.state_updater import StateUpdater
    from sparkrelay.runtime.topics.layout import TaskLayout
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["TaskSet"]

log = logging.getLogger(__name__)

#: Shares of max.poll.interval.ms, the bound on a rebalance: for a batch to end, and for a cancelled one.
_WAITED_FOR = 0.5
_WAITED_FOR_CANCELLED = 0.25
#: The longest that closing stores may take, also as a share of it: they may wait for a core behind others' batches.
_LONGEST_LEAVE_SECONDS = 10.0
_SHARE_FOR_LEAVING = 0.1
#: A session that was stopped, or a directory that is gone, is noticed within this: to ask the JVM takes a while.
_TARGET_SECONDS = 0.5


class TaskSet:
    """Only the stream thread calls it; what the batch thread shares is in ``InService``."""

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
        #: Over the batch thread's client, once that has ended: the thread's own is interrupted by then.
        self._at_close = at_close
        self._state_updater = state_updater
        self._in_service = in_service
        self._topics = topics
        self._cleaner = cleaner
        #: Set once the thread is to end.
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
        self._layout: TaskLayout | None = None
        self._tasks: dict[TaskId, Task] = {}
        #: When Spark's session and the slot are to be looked at again.
        self._target_due = 0.0
        #: Local copies as of when their task was last elsewhere: task -> sum of changelog offsets.
        self._leftovers: dict[TaskId, int] = {}

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Look at what former runs left in the state directory, and start restoring."""
        self._state_updater.start()
        # Another thread of the process may be at work already, on tasks that are none of our business.
        held = self._cleaner.held()
        self._leftovers = self._inspect_local_state([id_ for id_ in self._slot.task_ids() if id_ not in held])

    def close(self, *, clean: bool, batches: BatchThread) -> None:
        """End the batch and restoring; if ``clean``, drop the journals of committed batches and close the stores.

        Raises:
            StreamsException: a batch neither ends nor can be cancelled; its tasks' stores are left as they are.
        """
        tasks, self._tasks = list(self._tasks.values()), {}
        self._cleaner.gone(self)
        batches.ask_to_end()
        try:
            # A batch of tasks that were lost meanwhile must end as well.
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
        """Have no tasks any more, without closing their stores: the executor that they lived on is gone."""
        self._in_service.withdraw(self._tasks, timeout=0.0)
        for task in self._tasks.values():
            task.withdrawn()
        self._tasks = {}

    # -- what the group says ----------------------------------------------------------------------------------------

    def joined(self, member: GroupMember) -> None:
        """Note as whom the thread is in the group from now on."""
        self._in_service.joined(member)

    def follow(self, active: Collection[TaskId], standby: Collection[TaskId]) -> None:
        """Take a new assignment."""
        self._see(self._topics.layout())
        assert self._layout is not None
        self._note_restore_progress()
        unknown = (set(active) | set(standby)) - set(self._layout.tasks)
        if unknown:
            raise StreamsException(f"the leader assigned tasks that this topology does not have: {sorted(unknown)}")
        gone = [
            task
            for id_, task in self._tasks.items()
            # A source topic may have got partitions that a task which stays is to read: it begins anew, with them.
            if (id_ not in active and id_ not in standby) or task.inputs != self._layout.tasks[id_].inputs
        ]
        self._let_go(gone)
        demoted = [task for id_, task in self._tasks.items() if id_ in standby and task.state is not TaskState.STANDBY]
        self._demote(demoted)
        self._wait_for_batches({*active, *standby} - self._tasks.keys())
        # One slice may hold them all: it is waited for once.
        standing_by = {id_ for id_, task in self._tasks.items() if task.state is TaskState.STANDBY}
        self._state_updater.release(sorted(standing_by.intersection(active)))
        for id_ in active:
            self._activate(id_)
        fresh = [self._new(id_) for id_ in standby if id_ not in self._tasks]
        self._stand_by(fresh)
        self._cleaner.assigned(self, self._tasks)

    def clean_up(self) -> None:
        """Remove copies that nobody has needed here for ``state.cleanup.delay.ms``, if it is time to look for them."""
        self._cleaner.turn(self, self._tasks, time.time())

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Give up the tasks of revoked partitions, unless the assignment that revoked them did so already."""
        self._let_go(self._running_on(partitions))

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Drop the tasks of lost partitions: others may run them already, so their stores are left as they are."""
        # No offsets of a batch that has begun are committed from here on, whichever generation comes next.
        self._in_service.expelled()
        lost = self._running_on(partitions)
        for task in lost:
            log.warning("task %s is lost: this member was expired from the group", task.id)
        self._note_restore_progress()
        self._state_updater.release([task.id for task in lost])
        # Nobody waits for their batch, which is refused if they have a new owner, unless they come back here.
        self._in_service.withdraw([task.id for task in lost], timeout=0.0)
        for task in lost:
            task.withdrawn()
            del self._tasks[task.id]
            self._leave_behind(task)

    def offset_sums(self) -> dict[TaskId, int]:
        """Return what a subscription reports: LATEST_OFFSET for running tasks, else the sum of changelog offsets.

        Until its assignment is followed, what is reported stays.
        """
        self._cleaner.reported(self)
        self._note_restore_progress()
        # What another thread of the process has, it reports itself.
        held = self._cleaner.held()
        sums = {
            id_: total
            for id_, total in self._leftovers.items()
            if self._slot.holds(id_) and (id_ in self._tasks or id_ not in held)
        }
        for id_, task in self._tasks.items():
            if task.stateful:
                # Until the first slice is restored, what was known of the copy holds.
                known = task.offset_sum or sums.get(id_, 0)
                sums[id_] = LATEST_OFFSET if task.state is TaskState.RUNNING else known
        return sums

    # -- bringing tasks up ------------------------------------------------------------------------------------------

    def require_target(self) -> None:
        """Make sure that jobs can run and stores be opened here, which an idle instance would not notice otherwise.

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
            KafkaException: some could not be initialized. After a retriable error, one of the next calls does it.
        """
        self.require_target()
        # As of now: who cannot be served below may have been fenced, which the next turn looks at first.
        created = [task for task in self._tasks.values() if task.state is TaskState.CREATED]
        restored = {
            task.id: (task, report)
            for id_, report in self._state_updater.take_restored().items()
            if (task := self._tasks.get(id_))
            and task.state is TaskState.RESTORING
            and task.task_epoch == report.task_epoch
        }
        for task, report in restored.values():
            # The state updater reports no more of it, and the subscription must, also if the task cannot be served yet.
            task.restore_progressed(report.changelog_next)
            task.copy.disk_bytes = report.disk_bytes
        # First those that need nothing more: what keeps others from being initialized must not keep them from service.
        try:
            self._in_turn(
                [task for task, _ in restored.values()],
                lambda tasks: self._initializer.serve([restored[task.id] for task in tasks]),
            )
        finally:
            # Who was not served: their reports are taken and would not come again.
            self._initializer.start_over([task for task, _ in restored.values()])
        self._in_turn(created, self._initializer.initialize)

    def _in_turn(self, tasks: list[Task], do: Callable[[list[Task]], None]) -> None:
        """Do it for all tasks at once; if the broker's silence hindered that, one by one, the least hindered first.

        So a task whose partition has no leader, say, holds up the others but once. The thread must serve its group
        between: where one by one takes long, the rest is left for the next time.
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
        """Initialize a task again that fell out of service: fenced, or of unknown outcome, or its store lost step."""
        if task.copy.wipe:
            how = "begins empty, having no changelog" if task.unlogged else "is rebuilt from the changelog"
            log.error("task %s: its local state cannot be used and %s: %s", task.id, how, reason)
            self._leftovers.pop(task.id, None)
        else:
            log.warning("task %s is initialized again: %s", task.id, reason)
        task.fell_out()

    def running(self) -> list[Task]:
        """Return the tasks in service."""
        return [task for task in self._tasks.values() if task.state is TaskState.RUNNING]

    @property
    def active(self) -> set[TaskId]:
        """The tasks that are to run here, in service or on their way."""
        return {id_ for id_, task in self._tasks.items() if task.state is not TaskState.STANDBY}

    def all(self) -> list[Task]:
        """Return every task of the stream thread."""
        return list(self._tasks.values())

    @property
    def layout(self) -> TaskLayout | None:
        """Every task of the application, as of the newest assignment; None before the first. Any thread may ask."""
        return self._layout

    @property
    def all_up(self) -> bool:
        """True if every active task is in service."""
        return {task.state for task in self._tasks.values()} <= {TaskState.RUNNING, TaskState.STANDBY}

    @property
    def internal_topics(self) -> Collection[str]:
        """Names of the application's own topics."""
        return () if self._layout is None else self._layout.internal_topics.keys()

    def standby_lags(self) -> dict[TaskId, int]:
        """Return each standby's lag in changelog offsets, where it is known."""
        self._note_restore_progress()
        return {
            id_: task.lag for id_, task in self._tasks.items() if task.state is TaskState.STANDBY and task.copy.ends
        }

    # -- inside -----------------------------------------------------------------------------------------------------

    def _new(self, id_: TaskId) -> Task:
        assert self._layout is not None
        shape = self._layout.tasks[id_]
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
        """Remember what the copy of a task has that is no longer ours; until it was restored, what it had before."""
        if task.stateful and task.offset_sum:
            self._leftovers[task.id] = task.offset_sum

    def _release(self, tasks: Collection[Task], application: ApplicationAdmin | None = None) -> None:
        self._initializer.release([task for task in tasks if task.state is TaskState.RUNNING], application)

    def _wait_for_batches(self, ids: Collection[TaskId]) -> None:
        """Take tasks out of service and wait for the batch that they are in, no longer than a rebalance may take.

        A batch that takes longer is cancelled: it aborts its transactions, and whoever opens the stores next takes its
        changes back by their journals.

        Raises:
            StreamsException: it cannot be cancelled either. The next owner fences it.
        """
        if not (left := self._in_service.withdraw(ids, timeout=0.0)):
            return
        names = ", ".join(map(str, sorted(left)))
        log.info("waiting until the micro-batch of tasks %s has ended", names)
        bound = self._config.max_poll_interval_ms / 1000
        if not (left := self._in_service.withdraw(ids, timeout=bound * _WAITED_FOR)):
            return
        waited = f"{bound * _WAITED_FOR:g} s, {_WAITED_FOR:.0%} of max.poll.interval.ms"
        log.warning(
            "the micro-batch of tasks %s has not ended within %s: it is cancelled and undone. Lower max.batch.records "
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
                f"the micro-batch of tasks {names} neither ended within {waited}, nor could Spark cancel it. Look in "
                "Spark's UI for what its job does"
            )

    def _see(self, layout: TaskLayout) -> None:
        if self._layout is not None:
            require_same_width(self._config.application_id, self._layout, layout)
        self._layout = layout
        self._initializer.see(layout)
        self._in_service.source_partitions = layout.source_partitions
        self._in_service.sink_partitions = layout.sink_partitions
        self._in_service.writers = layout.writers

    def _drop_journals(self, tasks: list[Task], *, close: bool = True) -> None:
        """Drop the journals of committed batches and sync, so that the copy can be taken up where it stands."""
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
            # Nothing is lost: whoever opens the copy next undoes and restores a little more.
            log.warning("stores could not be closed cleanly: %s", error)
            return
        by_id = {task.id: task for task in tasks}
        for report in reports:
            if report.error is not None:
                # The same, for one of them.
                log.warning("task %s: its store could not be closed cleanly: %s", report.task, report.error)
            if isinstance(report.error, StoreCorruptedException):
                # It will be built anew: the group must not count on it.
                by_id[report.task].copy_lost()
                self._leftovers.pop(report.task, None)

    def _inspect_local_state(self, ids: Collection[TaskId]) -> dict[TaskId, int]:
        if not ids:
            return {}
        unused_before = time.time() - ABANDONED_SECONDS
        commands = [
            # Nothing is undone: another thread of the process may have initialized the task meanwhile.
            RestoreCommand(id_, str(self._slot.task_dir(id_)), unused_before=unused_before, close=True)
            for id_ in ids
        ]
        try:
            # It may wait for a core behind others' jobs. Without one the thread has no business in the group, but it
            # can be stopped.
            with cancelled_when(self._stopping.is_set, self._jobs.cancel_restore):
                slice_ = slice_of(commands, self._jobs.spark_partitions)
                reports = self._jobs.restore(slice_, description=f"inspecting the local state of {len(commands)} tasks")
        except JobFailed as error:
            # The copies are used all the same once their tasks are ours; the group only does not know of them.
            # Where the thread is to end it was cancelled on purpose.
            level = logging.DEBUG if self._stopping.is_set() else logging.WARNING
            log.log(level, "local copies could not be looked at: %s", error)
            return {}
        stock = {}
        for report in reports:
            if report.error is None:
                stock[report.task] = sum(report.changelog_next.values())
            else:
                log.warning("local copy of task %s cannot be used: %s", report.task, report.error)
        return stock

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
            # From here on that is what it has, and be it nothing.
            self._leftovers.pop(id_, None)
