"""KafkaStreams: one instance of a pipeline, from start to stop."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.assignment import load_assignor
from sparkrelay.client.admin import Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import StreamsException
from sparkrelay.runtime.batch import BatchRunner
from sparkrelay.runtime.client_settings import (
    admin_settings,
    check_client_settings,
    consumer_settings,
    worker_settings,
)
from sparkrelay.runtime.layout import TopicNames
from sparkrelay.runtime.legs import LegCompiler
from sparkrelay.runtime.membership import Membership
from sparkrelay.runtime.plans import Plans
from sparkrelay.runtime.process import Process
from sparkrelay.runtime.progress import ProgressLog
from sparkrelay.runtime.replayer import Replayer
from sparkrelay.runtime.session import check_session
from sparkrelay.runtime.stream_thread import StreamThread
from sparkrelay.runtime.task_set import TaskSet
from sparkrelay.runtime.topics import Topics
from sparkrelay.runtime.warm_up import warm_up
from sparkrelay.runtime.worker.replay import ReplaySpec
from sparkrelay.state import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from sparkrelay.topology import Topology

__all__ = ["KafkaStreams", "State"]

log = logging.getLogger(__name__)

#: The states of an instance, and which may follow which. See Kafka Streams' KafkaStreams.State.
CREATED: Final = "CREATED"
REBALANCING: Final = "REBALANCING"
RUNNING: Final = "RUNNING"
PENDING_SHUTDOWN: Final = "PENDING_SHUTDOWN"
NOT_RUNNING: Final = "NOT_RUNNING"
PENDING_ERROR: Final = "PENDING_ERROR"
ERROR: Final = "ERROR"
State = str

_NEXT: Final[Mapping[State, frozenset[State]]] = {
    CREATED: frozenset({REBALANCING, PENDING_SHUTDOWN}),
    REBALANCING: frozenset({RUNNING, PENDING_SHUTDOWN, PENDING_ERROR}),
    RUNNING: frozenset({REBALANCING, PENDING_SHUTDOWN, PENDING_ERROR}),
    PENDING_SHUTDOWN: frozenset({NOT_RUNNING}),
    PENDING_ERROR: frozenset({ERROR}),
    NOT_RUNNING: frozenset(),
    ERROR: frozenset(),
}
_BROKER_SECONDS: Final = 30.0
#: Spark's local mode has no place to keep replay jobs apart from batches but time.
_LOCAL_SLICE_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """One task of this instance, for the operator.

    Attributes:
        task_id: such as ``0_3``.
        state: created, restoring, running or standby.
        positions: input partition -> next offset.
        lag: changelog offsets still to replay; None while that is not known.
    """

    task_id: str
    state: str
    positions: Mapping[str, int]
    lag: int | None


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """One stream thread of this instance, for the operator."""

    name: str
    process_id: str
    active_tasks: tuple[TaskMetadata, ...]
    standby_tasks: tuple[TaskMetadata, ...]


class KafkaStreams:
    """One instance of a pipeline: joins the group of its ``application.id``, takes its share of the tasks, runs them.

    Several instances with the same topology and ``application.id``, on any hosts, share the work; when one dies the
    others take its tasks over.

    Args:
        topology: what to run, from ``StreamsBuilder.build()``.
        config: settings with dotted keys; see ``sparkrelay.config``.
        spark: the session whose executors do the work.

    Raises:
        ConfigException: a setting is unknown, missing or out of range.
        TopologyException: a column does not exist or a step is not possible; names the line that wrote it.
        StreamsException: Java or Spark is too old.
    """

    def __init__(self, topology: Topology, config: Mapping[str, Any], *, spark: SparkSession) -> None:
        self._config = StreamsConfig.from_dict(config)
        check_client_settings(self._config)
        self._assignor = load_assignor(self._config.task_assignor_class, config)
        check_session(spark)
        self._spark = spark
        self._topology = topology
        self._names = TopicNames(self._config.application_id)
        self._slots = max(1, spark.sparkContext.defaultParallelism)
        self._progress = ProgressLog(self._config.application_id)
        self._changed = threading.Condition()
        self._state: State = CREATED
        self._exception: Exception | None = None
        self._state_listener: Callable[[State, State], None] | None = None
        self._exception_handler: Callable[[Exception], None] | None = None
        self._threads: list[StreamThread] = []
        self._task_sets: list[TaskSet] = []
        self._clients: list[KafkaClient] = []
        self._slot: Slot | None = None
        warm_up(spark, self._slots)
        # Building every leg once makes Catalyst check every column before anything starts.
        self._checked_plans = self._plans()

    # -- life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Join the group and begin; returns once the broker and the topics are found to be in order.

        Raises:
            TimeoutException: no broker answers.
            UnknownTopicException: a source or sink topic does not exist.
            UnsupportedVersionException: the broker's transactions are too old.
            StateStoreException: ``state.dir`` cannot be used.
            StreamsException: the instance was started before.
        """
        with self._changed:
            if self._state != CREATED:
                raise StreamsException(f"start() needs a new instance; this one is {self._state}")
        try:
            self._build()
        except BaseException:
            self._release()
            raise
        self._move_to(REBALANCING)
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the current batch, hand the tasks over, leave the group.

        Args:
            timeout: seconds to wait for the end; None waits for ever.

        Returns:
            True if the instance has ended within the timeout.
        """
        with self._changed:
            if self._state == CREATED:
                self._move_to(PENDING_SHUTDOWN)
                self._move_to(NOT_RUNNING)
                return True
            if self._state in {REBALANCING, RUNNING}:
                self._move_to(PENDING_SHUTDOWN)
        for thread in self._threads:
            thread.stop()
        return self._wait_for_end(timeout)

    close = stop

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802 - PySpark's name
        """Wait until the instance has ended, as StreamingQuery's method does.

        Args:
            timeout: seconds; None waits for ever.

        Returns:
            True if it has ended.

        Raises:
            Exception: what ended it, if it failed.
        """
        ended = self._wait_for_end(timeout)
        if ended and self._exception is not None:
            raise self._exception
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what users may ask -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, PENDING_ERROR or ERROR."""
        with self._changed:
            return self._state

    @property
    def isActive(self) -> bool:  # noqa: N802 - PySpark's name
        """True while the instance is part of its group."""
        return self.state in {REBALANCING, RUNNING}

    def exception(self) -> Exception | None:
        """Return what ended the instance, or None."""
        with self._changed:
            return self._exception

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - PySpark's name
        """The newest micro-batch, with the keys of Spark's StreamingQuery progress."""
        return self._progress.last

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's name
        """The newest micro-batches, oldest first."""
        return self._progress.recent

    @property
    def status(self) -> str:
        """The state, and what hinders the work right now, if anything does."""
        trouble = self._progress.status
        return f"{self.state}: {trouble}" if trouble else self.state

    @property
    def input_lags(self) -> dict[str, int]:
        """Records not yet processed, by input partition of the tasks in service here."""
        return self._progress.input_lags

    def metadata_for_local_threads(self) -> tuple[ThreadMetadata, ...]:
        """Return each stream thread with its tasks and where they stand."""
        process_id = "" if self._slot is None else str(self._slot.process_id)
        threads = []
        for thread, tasks in zip(self._threads, self._task_sets, strict=True):
            active: list[TaskMetadata] = []
            standby: list[TaskMetadata] = []
            for task in tasks.all():
                described = TaskMetadata(
                    str(task.id), task.state.value, {str(p): o for p, o in task.positions.items()}, task.known_lag
                )
                (standby if task.state.value == "standby" else active).append(described)
            threads.append(ThreadMetadata(thread.name, process_id, tuple(active), tuple(standby)))
        return tuple(threads)

    def set_state_listener(self, listener: Callable[[State, State], None] | None) -> None:
        """Call ``listener(new, old)`` at each change of state, on the thread that changes it."""
        self._state_listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[Exception], None] | None) -> None:
        """Call ``handler(error)`` when a stream thread dies; the instance goes to ERROR afterwards."""
        self._exception_handler = handler

    # -- inside -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        topics = Topics(Admin(self._client("admin")), self._topology, self._names, self._config)
        topics.check_broker()
        topics.layout()
        self._slot = slot = Slot.claim(Path(self._config.state_dir), self._config.application_id)
        for number in range(1, self._config.num_stream_threads + 1):
            self._add_thread(number, slot)

    def _add_thread(self, number: int, slot: Slot) -> None:
        name = f"{self._config.application_id}-{str(slot.process_id)[:8]}-StreamThread-{number}"
        config = self._config
        # Each thread asks for itself: a client belongs to the thread that polls it.
        topics = Topics(Admin(self._client(name)), self._topology, self._names, config)
        replay_topics = Topics(Admin(self._client(f"{name}-replay")), self._topology, self._names, config)
        process = Process(
            self._spark,
            slots=self._slots,
            replay=ReplaySpec(self._slots, worker_settings(config, f"{name}-worker"), config.store_max_bytes),
            name=name,
        )
        replayer = Replayer(
            process, replay_topics.end_offsets, name=f"{name}-replay", slice_seconds=_LOCAL_SLICE_SECONDS
        )
        transactions = TransactionCoordinator(
            self._client(f"{name}-transactions"), timeout=config.default_api_timeout_ms / 1000
        )
        tasks = TaskSet(
            config=config, slot=slot, process=process, replayer=replayer, transactions=transactions, topics=topics
        )
        membership = Membership(
            config=config,
            topology=self._topology,
            source_topics={
                self._names(topic, leg.source.internal)
                for subtopology in self._topology.subtopologies
                for leg in subtopology.legs
                for topic in leg.source.topics
            },
            process_id=slot.process_id,
            topics=topics,
            assignor=self._assignor,
            settings=consumer_settings(config, name),
        )
        self._task_sets.append(tasks)
        self._threads.append(
            StreamThread(
                name=name,
                config=config,
                membership=membership,
                tasks=tasks,
                batches=BatchRunner(process, transactions, config.application_id, retries=config.max_batch_retries),
                plans=self._checked_plans if number == 1 else self._plans(),
                progress=self._progress,
                on_change=self._thread_changed,
                on_failure=self._thread_failed,
            )
        )

    def _plans(self) -> Plans:
        legs = [leg for subtopology in self._topology.subtopologies for leg in subtopology.legs]
        compiler = LegCompiler(
            self._spark,
            self._config,
            legs,
            slots=self._slots,
            names=self._names,
            client=worker_settings(self._config, "worker"),
        )
        return Plans(compiler, legs, union=Process.union)

    def _client(self, client_id: str) -> KafkaClient:
        client = KafkaClient(ClientConfig.from_dict(admin_settings(self._config, client_id)))
        self._clients.append(client)
        client.bootstrap(min(_BROKER_SECONDS, self._config.default_api_timeout_ms / 1000))
        return client

    def _thread_changed(self, thread: StreamThread) -> None:
        del thread
        with self._changed:
            alive = [t for t in self._threads if not t.ended]
            if not alive:
                self._finish()
            elif self._state == REBALANCING and all(t.settled for t in alive):
                self._move_to(RUNNING)
            elif self._state == RUNNING and not all(t.settled for t in alive):
                self._move_to(REBALANCING)

    def _thread_failed(self, thread: StreamThread, error: Exception) -> None:
        """A thread that dies takes the instance with it, with the cause."""
        with self._changed:
            self._exception = self._exception or error
            if self._state in {REBALANCING, RUNNING}:
                self._move_to(PENDING_ERROR)
        for other in self._threads:
            if other is not thread:
                other.stop()
        if self._exception_handler is not None:
            try:
                self._exception_handler(error)
            except Exception:
                log.exception("the uncaught-exception handler failed itself")

    def _finish(self) -> None:
        self._release()
        self._move_to(ERROR if self._state == PENDING_ERROR else NOT_RUNNING)

    def _release(self) -> None:
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()
        if self._slot is not None:
            self._slot.release()

    def _move_to(self, state: State) -> None:
        with self._changed:
            old = self._state
            if state == old:
                return
            assert state in _NEXT[old], f"no way from {old} to {state}"
            self._state = state
            self._changed.notify_all()
        log.info("%s: %s -> %s", self._config.application_id, old, state)
        if self._state_listener is not None:
            try:
                self._state_listener(state, old)
            except Exception:
                log.exception("the state listener failed")

    def _wait_for_end(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        for thread in self._threads:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not thread.join(left):
                return False
        with self._changed:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            return self._changed.wait_for(lambda: self._state in {NOT_RUNNING, ERROR}, left)
