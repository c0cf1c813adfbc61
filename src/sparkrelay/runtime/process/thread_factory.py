"""Assembly of a process's threads: stream threads and the global stream thread, with their clients, jobs and tasks."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from sparkrelay.client.application_admin import ApplicationAdmin
from sparkrelay.client.messages import ProduceRequest
from sparkrelay.client.messages.produce_request import BY_ID_VERSION
from sparkrelay.client.new_partitions import NewPartitions
from sparkrelay.client.transactions import TransactionCoordinator
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
from sparkrelay.runtime.thread.global_stream_thread import GlobalStreamThread
from sparkrelay.runtime.thread.membership import StreamsMembership
from sparkrelay.runtime.thread.stream_thread import StreamThread
from sparkrelay.runtime.thread.task_set import TaskSet
from sparkrelay.runtime.worker.restore import RestoreSpec
from sparkrelay.topology import ForeachBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.slot.cleaner import Cleaner
    from sparkrelay.runtime.slot.executor_slot import ProcessSlot
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.types import TaskId

#: Client ids of :class:`ThreadClients`, after the thread's name.
CLIENT_SUFFIXES = ("", "-restore", "-batch", "-transactions")


class ThreadClients(NamedTuple):
    """The connections of a stream thread, one for each thread that polls it."""

    own: KafkaClient
    restore: KafkaClient
    batch: KafkaClient
    transactions: KafkaClient


@dataclass(frozen=True, slots=True)
class ThreadFactory:
    """Makes the threads of one process; ``config`` includes the process's client tags."""

    context: RuntimeContext
    config: StreamsConfig
    target: ExecutorTarget
    slot: ProcessSlot
    cleaner: Cleaner

    def name(self, kind: str) -> str:
        """Return the name of a thread, in Kafka Streams' form."""
        return f"{self.config.application_id}-{str(self.slot.process_id)[:8]}-{kind}"

    def stream_thread(
        self,
        number: int,
        clients: ThreadClients,
        plans: PreparedLegs,
        *,
        runs_tasks: Callable[[], bool],
        active_elsewhere: Callable[[], set[TaskId]],
        global_tables: GlobalStreamThread | None,
        beside: bool,
    ) -> StreamThread:
        """Make a stream thread, not started.

        ``runs_tasks`` is True while any thread of the process runs a task; ``active_elsewhere`` are the active tasks of
        its other threads; ``beside`` is True if these run tasks already.
        """
        context, config, slot = self.context, self.config, self.slot
        name = self.name(f"StreamThread-{number + 1}")
        topics, restore_topics, batch_topics = map(context.topics, clients[:3])
        jobs = self._jobs(name, plans)
        membership = self._membership(number, name, topics)
        # Nothing may fail from here on: the progress log would keep an entry of a thread that does not exist.
        progress = context.progress.thread()
        state_updater = StateUpdater(
            jobs,
            RestoreSurroundings(
                restore_topics.changelog_ends,
                restore_topics.ids,
                restore_topics.interrupt,
                running=runs_tasks,
                active_elsewhere=active_elsewhere,
                on_slice=progress.restored,
                on_set_aside=progress.set_aside,
                notices=RestoreNotices(context.listeners),
            ),
            name=f"{name}-restore",
        )
        progress.copies = state_updater.copies
        in_service, stopping = InService(), threading.Event()
        owner, longest = Owner(f"{slot.process_id}-{number}", jobs.spark_partitions), longest_initialization(config)
        tasks = TaskSet(
            config=config,
            slot=slot,
            jobs=jobs,
            state_updater=state_updater,
            in_service=in_service,
            owner=owner,
            transactions=TransactionCoordinator(clients.own, timeout=longest),
            application=ApplicationAdmin(clients.own, config.application_id, timeout=longest),
            at_close=ApplicationAdmin(clients.transactions, config.application_id, timeout=longest),
            topics=topics,
            cleaner=self.cleaner,
            stopping=stopping,
        )
        transactions = ThreadTransactions(
            TransactionCoordinator(clients.transactions, timeout=config.default_api_timeout_ms / 1000),
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
                global_tables=None if global_tables is None else str(slot.path / GLOBAL_TABLES),
                functions=(
                    BatchFunctions(jobs, config.application_id, slot.path / KEPT_ROWS / str(number))
                    if any(isinstance(leg.action, ForeachBatch) for leg in context.topology.legs)
                    else None
                ),
                skipped_records=slot.path / SKIPPED_RECORDS / str(number) if config.skips_records else None,
                failing=FailingRecords.of(config),
                checks=CommitChecks(
                    config.application_id,
                    new_partitions=NewPartitions(clients.transactions),
                    topic_ids=batch_topics.ids,
                    writes_by_id=lambda: clients.transactions.supports(ProduceRequest, BY_ID_VERSION),
                ),
                max_bytes=config.max_batch_bytes,
                passes_over_lost=config.on_data_loss == "continue",
            ),
            plans=plans,
            topics=batch_topics,
            progress=progress,
            prewarm=context.prewarm,
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
            callbacks=context.callbacks,
            stopping=stopping,
            open_transactions=functools.partial(transactions.open, plans.subtopologies),
            global_tables=global_tables,
            beside=beside,
        )

    def global_thread(self, client: KafkaClient, plans: PreparedLegs) -> GlobalStreamThread:
        """Make the thread that keeps the global tables, not started."""
        context, name = self.context, self.name("GlobalStreamThread")
        topics = context.topics(client)
        tables = GlobalTables(
            config=self.config,
            legs=context.topology.global_tables,
            plans=plans,
            jobs=self._jobs(name, plans),
            home=self.slot.path / GLOBAL_TABLES,
            topics=topics,
        )
        return GlobalStreamThread(
            name=name, config=self.config, tables=tables, topics=topics, on_end=context.callbacks.on_change
        )

    def _jobs(self, name: str, plans: PreparedLegs) -> Jobs:
        config, spark_partitions = self.config, self.target.spark_partitions
        restore = RestoreSpec(
            spark_partitions,
            config.application_id,
            worker_settings(config, f"{name}-worker", run=self.context.run),
            config.store_max_bytes,
            plans.source_changelogs(),
            instance=self.context.id,
            # Larger pieces than a batch's: the store then writes each page less often.
            max_bytes=2 * config.max_batch_bytes // spark_partitions,
        )
        return Jobs(self.target, restore=restore, name=name)

    def _membership(self, number: int, name: str, topics: Topics) -> StreamsMembership:
        context = self.context
        return StreamsMembership(
            config=self.config,
            topology=context.topology,
            source_topics=set(context.names.sources(*context.topology.legs)),
            process_id=self.slot.process_id,
            topics=topics,
            assignor=context.assignor,
            load=context.load_assignor,
            settings=consumer_settings(self.config, name, self._instance_id(number)),
            story=AssignmentLog(name, context.progress.counters.rebalance, context.show, context.stories),
            page=context.page,
        )

    def _instance_id(self, number: int) -> str | None:
        """Return the ``group.instance.id`` of a thread, the same after a restart; None for a dynamic member."""
        if not self.config.group_instance_id:
            return None
        # Executors change; the slot and its process id stay.
        process = "" if self.target.executor is None else f"-{str(self.slot.process_id)[:8]}"
        return f"{self.config.group_instance_id}{process}-{number + 1}"
