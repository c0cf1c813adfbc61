"""One process and its stream threads, made, started, lost and released as one.

What all processes of an instance share stands in the ``RuntimeContext``; what a process has of its own are its target
(where its jobs run), its slot (identity and state), its threads and their connections.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.client.backoff import Backoff
from sparkrelay.client.messages import ProduceRequest
from sparkrelay.client.new_partitions import NewPartitions
from sparkrelay.client.produce_request import BY_ID_VERSION
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.errors import KafkaException, StreamsException, WakeupException
from sparkrelay.runtime.batch.batch_functions import KEPT_ROWS, BatchFunctions
from sparkrelay.runtime.batch.batch_runner import SKIPPED_RECORDS, BatchRunner
from sparkrelay.runtime.batch.batch_thread import BatchThread
from sparkrelay.runtime.batch.commit_checks import CommitChecks
from sparkrelay.runtime.batch.failing_records import FailingRecords
from sparkrelay.runtime.batch.global_tables import GLOBAL_TABLES, GlobalTables
from sparkrelay.runtime.batch.residency import Residency
from sparkrelay.runtime.batch.thread_transactions import ThreadTransactions
from sparkrelay.runtime.contract.client_settings import consumer_settings, worker_settings
from sparkrelay.runtime.contract.owners import Owner
from sparkrelay.runtime.group.assignment_log import AssignmentLog
from sparkrelay.runtime.spark.jobs import Jobs
from sparkrelay.runtime.tasks.in_service import InService
from sparkrelay.runtime.tasks.restore_listeners import RestoreNotices
from sparkrelay.runtime.tasks.restore_surroundings import RestoreSurroundings
from sparkrelay.runtime.tasks.state_updater import StateUpdater
from sparkrelay.runtime.tasks.task_initializer import longest_initialization
from sparkrelay.runtime.tasks.task_state import TaskState
from sparkrelay.runtime.thread.global_stream_thread import GlobalStreamThread
from sparkrelay.runtime.thread.membership import StreamsMembership
from sparkrelay.runtime.thread.stream_thread import StreamThread
from sparkrelay.runtime.thread.task_set import TaskSet
from sparkrelay.runtime.worker.restore import RestoreSpec
from sparkrelay.topology import ForeachBatch

if TYPE_CHECKING:
    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.runtime.batch.progress import ThreadProgress
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.contract.host_metadata import HostMetadata
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.slot.cleaner import Cleaner
    from sparkrelay.runtime.slot.process_slot import ProcessSlot
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.types import TaskId

__all__ = ["ProcessThreads"]

log = logging.getLogger(__name__)

#: The pause before a dead thread is replaced: the first, and the longest.
_FIRST_REPLACEMENT: Final = 0.5
_LONGEST_REPLACEMENT: Final = 30.0
_LOOK_SECONDS: Final = 0.2
#: Among the numbers of stream threads: whose connections are those of the global tables.
_GLOBAL: Final = -1


class ProcessThreads:
    """One process of the instance."""

    def __init__(
        self,
        context: RuntimeContext,
        target: ExecutorTarget,
        slot: ProcessSlot,
        cleaner: Cleaner,
        host_metadata: HostMetadata,
        *,
        plans: PreparedLegs | None = None,
    ) -> None:
        """Make the threads; they do not run yet.

        Args:
            context: what the processes share.
            target: where jobs run.
            slot: the claimed slot; it is released with the process, or here if the threads cannot be made.
            cleaner: the slot's; it is closed with the process.
            host_metadata: the process's host, rack and tags.
            plans: the prepared legs of this target, if they exist already.

        Raises:
            ConfigException: the tags of this process do not go with the settings.
            KafkaException: the broker does not answer.
        """
        self.target = target
        self.slot = slot
        self._context = context
        #: Stream thread's number -> connections.
        self._clients: dict[int, list[KafkaClient]] = defaultdict(list)
        self._cleaner = cleaner
        self._released = False
        self._stopping = threading.Event()
        #: Held to look at ``_stopping``, or which thread is to leave, and act on it: nothing is begun once it is set.
        self._lock = threading.Lock()
        #: Held while a thread is added, one at a time.
        self._adding = threading.Lock()
        self._reviving = threading.Lock()
        #: Connections that a stop need not wait for.
        self._connecting: set[KafkaClient] = set()
        #: Stream thread's number -> how many of them have died in a row without having committed a batch.
        self._deaths: Counter[int] = Counter()
        #: Stream thread's number -> its legs.
        self._plans: dict[int, PreparedLegs] = {}
        #: In the order of their numbers, which have gaps where threads were removed. Replaced as a whole.
        self.threads: tuple[StreamThread, ...] = ()
        self._global: GlobalStreamThread | None = None
        self._global_plans: PreparedLegs | None = None
        try:
            self._config = host_metadata.applied_to(context.config)
            if context.topology.global_tables:
                self._global_plans = context.global_plans(target)
                self._global = self._global_thread()
            for number in range(context.config.num_stream_threads):
                self._plans[number] = (plans if number == 0 else None) or context.plans(target)
                self.threads = (*self.threads, self._thread(number))
        except BaseException:
            self.discard()
            raise

    @property
    def process_id(self) -> str:
        """The identity that the slot carries."""
        return str(self.slot.process_id)

    @property
    def global_tasks(self) -> list[Task]:
        """The tasks that keep the global tables, once these are complete."""
        return [] if self._global is None else self._global.tasks

    @property
    def global_plans(self) -> PreparedLegs | None:
        """The prepared legs of global tables, if there are some."""
        return self._global_plans

    @property
    def ended(self) -> bool:
        """True once every thread has done everything, and none is added: a process may be without any for a while."""
        if not (self._stopping.is_set() or self.target.lost) or self._adding.locked():
            return False
        return all(thread.ended for thread in self.threads) and (self._global is None or self._global.ended)

    @property
    def usable(self) -> bool:
        """True if a thread can work here: Spark, and the executor, are there."""
        try:
            self.target.require()
        except StreamsException:
            return False
        return True

    def start(self) -> None:
        """Start the threads; each joins the group."""
        if self._global is not None:
            self._global.start()
        # From here on threads may be added, which begin by themselves.
        with self._lock:
            for thread in self.threads:
                if not thread.started:
                    self._begin(thread)

    def pause(self) -> None:
        """Begin no further micro-batch."""
        for thread in self.threads:
            thread.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        for thread in self.threads:
            thread.resume()

    def expect_rebalance(self) -> None:
        """Announce to the members that a rebalance is about to begin; returns at once."""
        for thread in self.threads:
            thread.expect_rebalance()

    def add_thread(self) -> str | None:
        """Make one more stream thread, of the lowest free number, and start it: it joins once its legs are compiled.

        See KIP-663. Those that work go on meanwhile.

        Returns:
            Its name; None if the process is to end.

        Raises:
            SparkRelayError: it cannot be made.
        """
        try:
            with self._adding:
                return self._add_thread()
        finally:
            if self._stopping.is_set():
                # All else may have ended in the meantime.
                self._context.callbacks.on_change()

    def _add_thread(self) -> str | None:
        taken = {thread.number for thread in self.threads}
        number = next(number for number in itertools.count() if number not in taken)
        try:
            self._plans[number] = self._context.plans(self.target)
            thread = self._thread(number, beside=self._runs_tasks())
            if self._put(thread):
                log.info("%s is added", thread.name)
                return thread.name
        except WakeupException:
            pass  # stop() calls
        except BaseException:
            self._forget(number)
            raise
        self._forget(number)
        return None

    def remove_thread(self) -> StreamThread | None:
        """Ask one stream thread to leave for good; return it, or None if there is none, or the process is to end.

        It is the one of the highest number, so that those stay that a restart would make, and the one that calls only
        if it is alone.
        """
        with self._lock:
            there = [thread for thread in self.threads if thread.started and not (thread.removed or thread.ended)]
            if self._stopping.is_set() or not there:
                return None
            thread = max(there, key=lambda thread: (not thread.is_current, thread.number))
            thread.remove()
            # It may have died, and wait for its successor.
            for client in self._connecting.intersection(self._clients.get(thread.number, ())):
                client.interrupt()
        return thread

    def take_out_removed(self) -> None:
        """Let threads go that have left for good, and have the others look for the rebalance that follows."""
        with self._lock:
            gone = [thread for thread in self.threads if thread.removed and thread.ended]
            if self._stopping.is_set() or not gone:
                return  # all are released together
        for thread in gone:
            log.info("%s has left for good", thread.name)
            # Its number is taken until then: a new thread of that number would lose its legs and connections.
            self._forget(thread.number)
        with self._lock:
            self.threads = tuple(thread for thread in self.threads if thread not in gone)
        self.expect_rebalance()

    def replace(self, thread: StreamThread) -> None:
        """Put a new stream thread in the place of one that has left the group, and start it.

        Not at once: an error that does not pass would else have thread follow thread as fast as they can die. The pause
        doubles until one of them has committed a batch. A broker that does not answer is waited for. Once the process
        is asked to stop, or the thread to leave it, or its executor is gone, there is no successor.

        Raises:
            SparkRelayError: a thread cannot be made.
        """
        number = thread.number
        deaths = 1 if thread.progress.committed else self._deaths[number] + 1
        self._deaths[number] = deaths
        backoff = Backoff(_FIRST_REPLACEMENT, _LONGEST_REPLACEMENT, jitter=0, failures=deaths - 1)
        while self._rest(number, backoff.next()):
            self._disconnect(number)
            try:
                self._revive_global_tables()
                successor = self._thread(number)
            except WakeupException:
                return  # stop() calls, or remove_thread()
            except KafkaException as error:
                if not error.retriable:
                    raise
                log.warning("%s: its successor cannot be made yet: %s", thread.name, error)
                thread.progress.trouble(str(error))
                continue
            self._put(successor)
            return

    def _put(self, thread: StreamThread) -> bool:
        """Have a thread in its place and start it; return False if it is discarded, because nobody wants it any more.

        Raises:
            RuntimeError: this computer has no thread left; it is discarded, too.
        """
        begun = False
        try:
            with self._lock:
                before = self.threads
                if not self._unwanted(thread.number):
                    others = (other for other in before if other.number != thread.number)
                    self.threads = tuple(sorted((*others, thread), key=lambda thread: thread.number))
                    try:
                        self._begin(thread)
                        begun = True
                    finally:
                        if not begun:
                            self.threads = before
        finally:
            if not begun:
                _discard(thread)
        return begun

    def _unwanted(self, number: int) -> bool:
        """Return whether a thread of that number is not to be any more."""
        return self._stopping.is_set() or any(one.removed for one in self.threads if one.number == number)

    def _revive_global_tables(self) -> None:
        """Put a new thread in the place of a dead one that kept the global tables."""
        # One at a time: all stream threads have died of it.
        with self._reviving:
            if self._global is None or not self._global.failed:
                return
            self._disconnect(_GLOBAL)
            successor = self._global_thread()
            with self._lock:
                if self._stopping.is_set():
                    successor.give_up_unstarted()
                else:
                    successor.start()
                self._global = successor

    def _rest(self, number: int, seconds: float) -> bool:
        """Wait; return False if the process, or its thread of that number, is to end meanwhile."""
        deadline = time.monotonic() + seconds
        while not (self._unwanted(number) or self.target.lost):
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            self._stopping.wait(min(left, _LOOK_SECONDS))
        return False

    def stop(self) -> None:
        """Ask the threads to hand over and leave; returns at once."""
        with self._lock:
            self._stopping.set()
            for client in self._connecting:
                client.interrupt()
        for thread in self.threads:
            thread.stop()
        if self._global is not None:
            self._global.stop()
        if not (self.threads or self._released):
            # Nobody else is there to say that all has ended; and a signal may have interrupted who calls.
            threading.Thread(target=self._context.callbacks.on_change, daemon=True).start()

    def lose(self) -> None:
        """Say that the executor is gone: the threads leave the group at once, without touching their stores."""
        self.target.lose()
        if self._global is not None:
            self._global.stop()

    def give_up_unstarted(self) -> None:
        """Release the threads that could not be started."""
        for thread in self.threads:
            if not thread.started:
                _discard(thread)
        if self._global is not None:
            self._global.give_up_unstarted()

    def discard(self) -> None:
        """Undo what was made and is not going to be started."""
        for thread in self.threads:
            _discard(thread)
        if self._global is not None:
            self._global.give_up_unstarted()
        self.release()

    def release(self) -> None:
        """Close the connections and give the slot back, once."""
        if self._released:
            return
        self._released = True
        for number in list(self._clients):
            self._disconnect(number)
        self._cleaner.close()
        self.slot.release()

    def _begin(self, thread: StreamThread) -> None:
        if self._context.paused:
            thread.pause()
        thread.start()
        if not self._context.paused:
            # Somebody may have resumed between the look and the pause.
            thread.resume()

    def _forget(self, number: int) -> None:
        """Let go of what a thread had that has left, or never was."""
        self._disconnect(number)
        self._plans.pop(number, None)
        self._deaths.pop(number, None)

    def _disconnect(self, number: int) -> None:
        for client in self._clients.pop(number, []):
            client.close()

    def _connect(self, number: int, client_id: str) -> KafkaClient:
        """Connect a client for a stream thread; who stops or removes it breaks that off with WakeupException."""
        client = self._context.client(client_id)
        with self._lock:
            self._clients[number].append(client)
            self._connecting.add(client)
            if self._unwanted(number):
                client.interrupt()
        try:
            self._context.connect(client)
        finally:
            with self._lock:
                self._connecting.discard(client)
        return client

    def _runs_tasks(self) -> bool:
        return any(task.state is TaskState.RUNNING for thread in self.threads for task in thread.tasks.all())

    def _active_beside(self, number: int) -> set[TaskId]:
        """Return the tasks that the process's threads, but for this one, open or run."""
        return {
            task.id
            for thread in self.threads
            if thread.number != number
            for task in thread.tasks.all()
            if task.state is not TaskState.STANDBY
        }

    def _thread(self, number: int, *, beside: bool = False) -> StreamThread:
        shared, config = self._context, self._config
        name = f"{config.application_id}-{self.process_id[:8]}-StreamThread-{number + 1}"
        # Each thread asks for itself: a client belongs to the thread that polls it.
        own, for_restore, for_batches, for_transactions = (
            self._connect(number, name + suffix) for suffix in ("", "-restore", "-batch", "-transactions")
        )
        topics, restore_topics, batch_topics = map(shared.topics, (own, for_restore, for_batches))
        jobs = self._jobs(name, self._plans[number])
        membership = self._membership(number, name, topics)
        # Nothing fails from here on: the log would keep the part of a thread that never was.
        progress = shared.progress.thread()
        state_updater = self._state_updater(number, name, jobs, restore_topics, progress)
        progress.copies = state_updater.copies
        in_service, stopping = InService(), threading.Event()
        owner, longest = Owner(f"{self.process_id}-{number}", jobs.spark_partitions), longest_initialization(config)
        tasks = TaskSet(
            config=config,
            slot=self.slot,
            jobs=jobs,
            state_updater=state_updater,
            in_service=in_service,
            owner=owner,
            transactions=TransactionCoordinator(own, timeout=longest),
            application=ApplicationAdmin(own, config.application_id, timeout=longest),
            at_close=ApplicationAdmin(for_transactions, config.application_id, timeout=longest),
            topics=topics,
            cleaner=self._cleaner,
            stopping=stopping,
        )
        failing = FailingRecords.of(config)
        transactions = ThreadTransactions(
            TransactionCoordinator(for_transactions, timeout=config.default_api_timeout_ms / 1000),
            config.application_id,
            owner,
            in_service,
            timeout_ms=config.transaction_timeout_ms,
        )
        batches = BatchThread(
            name=name,
            config=config,
            in_service=in_service,
            batches=BatchRunner(
                jobs,
                transactions,
                config.application_id,
                retries=config.max_batch_retries,
                residency=Residency(jobs, over=lambda: in_service.ended),
                global_tables=None if self._global is None else str(self.slot.path / GLOBAL_TABLES),
                functions=(
                    BatchFunctions(jobs, config.application_id, self.slot.path / KEPT_ROWS / str(number))
                    if any(isinstance(leg.action, ForeachBatch) for leg in shared.topology.legs)
                    else None
                ),
                skipped_records=self.slot.path / SKIPPED_RECORDS / str(number) if config.skips_records else None,
                failing=failing,
                checks=CommitChecks(
                    config.application_id,
                    new_partitions=NewPartitions(for_transactions),
                    topic_ids=batch_topics.ids,
                    writes_by_id=lambda: for_transactions.supports(ProduceRequest, BY_ID_VERSION),
                ),
                max_bytes=config.max_batch_bytes,
                passes_over_lost=config.on_data_loss == "continue",
            ),
            plans=self._plans[number],
            topics=batch_topics,
            progress=progress,
            prewarm=shared.prewarm,
            failing=failing,
        )
        return StreamThread(
            number=number,
            name=name,
            config=config,
            membership=membership,
            tasks=tasks,
            in_service=in_service,
            batches=batches,
            progress=progress,
            callbacks=shared.callbacks,
            stopping=stopping,
            open_transactions=functools.partial(transactions.open, self._plans[number].subtopologies),
            global_tables=self._global,
            beside=beside,
        )

    def _global_thread(self) -> GlobalStreamThread:
        shared, config, plans = self._context, self._config, self._global_plans
        assert plans is not None, "a pipeline with global tables has legs that keep them"
        name = f"{config.application_id}-{self.process_id[:8]}-GlobalStreamThread"
        topics = shared.topics(self._connect(_GLOBAL, name))
        tables = GlobalTables(
            config=config,
            legs=shared.topology.global_tables,
            plans=plans,
            jobs=self._jobs(name, plans),
            home=self.slot.path / GLOBAL_TABLES,
            topics=topics,
        )
        return GlobalStreamThread(
            name=name, config=config, tables=tables, topics=topics, on_end=shared.callbacks.on_change
        )

    def _jobs(self, name: str, plans: PreparedLegs) -> Jobs:
        config = self._config
        worker = worker_settings(config, f"{name}-worker", run=self._context.run)
        restore = RestoreSpec(
            self.target.spark_partitions,
            config.application_id,
            worker,
            config.store_max_bytes,
            plans.source_changelogs(),
            instance=self._context.id,
            # A store that is restored writes each page less often the more it gets at once.
            max_bytes=2 * config.max_batch_bytes // self.target.spark_partitions,
        )
        return Jobs(self.target, restore=restore, name=name)

    def _membership(self, number: int, name: str, topics: Topics) -> StreamsMembership:
        shared = self._context
        return StreamsMembership(
            config=self._config,
            topology=shared.topology,
            source_topics={
                shared.names(topic, leg.source.internal) for leg in shared.topology.legs for topic in leg.source.topics
            },
            process_id=self.slot.process_id,
            topics=topics,
            assignor=shared.assignor,
            load=shared.load_assignor,
            settings=consumer_settings(self._config, name, self._instance_id(number)),
            story=AssignmentLog(name, shared.progress.counters.rebalance, shared.show, shared.stories),
            page=shared.page,
        )

    def _state_updater(
        self, number: int, name: str, jobs: Jobs, topics: Topics, progress: ThreadProgress
    ) -> StateUpdater:
        around = RestoreSurroundings(
            topics.changelog_ends,
            topics.ids,
            topics.interrupt,
            running=self._runs_tasks,
            active_elsewhere=functools.partial(self._active_beside, number),
            on_slice=progress.restored,
            on_set_aside=progress.set_aside,
            notices=RestoreNotices(self._context.listeners),
        )
        return StateUpdater(jobs, around, name=f"{name}-restore")

    def _instance_id(self, number: int) -> str | None:
        """Return the thread's static name in the group, which its restart has again; None if it is to have none."""
        given = self._context.config.group_instance_id
        if not given:
            return None
        # Executors come and go; what stays is the slot, and its identity.
        target = "" if self.target.executor is None else f"-{self.process_id[:8]}"
        return f"{given}{target}-{number + 1}"


def _discard(thread: StreamThread) -> None:
    """Release what a thread holds that is never going to be started."""
    thread.discard()
    thread.progress.end()
