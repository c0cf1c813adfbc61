"""KafkaStreams: one instance of a pipeline, from start to stop."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from sparkrelay.assignment import load_assignor
from sparkrelay.client.admin import Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.client.transactions import TransactionCoordinator
from sparkrelay.config import StreamsConfig
from sparkrelay.errors import TopologyException
from sparkrelay.observe.snapshot import InstanceSnapshot
from sparkrelay.runtime.batch import BatchRunner
from sparkrelay.runtime.batch_thread import BatchThread
from sparkrelay.runtime.client_settings import (
    admin_settings,
    check_client_settings,
    consumer_settings,
    worker_settings,
)
from sparkrelay.runtime.in_service import InService
from sparkrelay.runtime.layout import TopicNames
from sparkrelay.runtime.legs import LegCompiler
from sparkrelay.runtime.life import ALIVE, Life, State
from sparkrelay.runtime.membership import Membership
from sparkrelay.runtime.metadata import describe_thread
from sparkrelay.runtime.plans import Plans
from sparkrelay.runtime.process import Process
from sparkrelay.runtime.progress import ProgressLog
from sparkrelay.runtime.rebalance_story import RebalanceStory
from sparkrelay.runtime.replayer import Replayer
from sparkrelay.runtime.session import check_session
from sparkrelay.runtime.stream_thread import StreamThread
from sparkrelay.runtime.task_set import TaskSet
from sparkrelay.runtime.topics import Topics
from sparkrelay.runtime.warm_up import warm_up
from sparkrelay.runtime.worker.replay import ReplaySpec
from sparkrelay.state import Slot
from sparkrelay.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from sparkrelay.observe.endpoint import Endpoint
    from sparkrelay.runtime.metadata import ThreadMetadata

__all__ = ["KafkaStreams", "State"]

log = logging.getLogger(__name__)

_BROKER_SECONDS: Final = 30.0
#: Spark's local mode has no place to keep replay jobs apart from batches but time.
_LOCAL_SLICE_SECONDS: Final = 0.1


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
        if not isinstance(topology, Topology):
            raise TopologyException(
                f"KafkaStreams runs a Topology, not a {type(topology).__name__}: pass builder.build()"
            )
        self._config = StreamsConfig.from_dict(config)
        check_client_settings(self._config)
        self._load_assignor = functools.partial(load_assignor, configs=config)
        self._assignor = self._load_assignor(self._config.task_assignor_class)
        check_session(spark)
        self._spark = spark
        self._topology = topology
        self._names = TopicNames(self._config.application_id)
        self._slots = max(1, spark.sparkContext.defaultParallelism)
        self._life = Life(self._config.application_id)
        self._progress = ProgressLog(self._config.application_id, state=lambda: self._life.state)
        self._exception_handler: Callable[[Exception], None] | None = None
        self._threads: list[StreamThread] = []
        self._clients: list[KafkaClient] = []
        self._slot: Slot | None = None
        self._endpoint: Endpoint | None = None
        self._stop_asked = False
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
            ConfigException: ``metrics.port`` is in use.
            StreamsException: the instance was started before.
        """
        self._life.begin()
        try:
            self._build()
        except BaseException:
            self._discard()
            self._life.not_begun()
            raise
        if not self._life.begun():
            # stop() was called meanwhile.
            self._discard()
            self._life.end()
            return
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float | None = None) -> bool:
        """Finish the current batch, hand the tasks over, leave the group.

        Args:
            timeout: seconds to wait for the end; None waits for ever. In a callback of the instance nobody waits.

        Returns:
            True if the instance has ended within the timeout.
        """
        self._stop_asked = True
        self._life.ask_to_end()
        for thread in self._threads:
            thread.stop()
        ended = self._wait_for_end(timeout)
        if ended:
            self._close_endpoint()
        return ended

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
        cause = self._life.cause
        if ended and cause is not None:
            raise cause
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what users may ask -----------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, PENDING_ERROR or ERROR."""
        return self._life.state

    @property
    def isActive(self) -> bool:  # noqa: N802 - PySpark's name
        """True while the instance is part of its group."""
        return self._life.alive

    def exception(self) -> Exception | None:
        """Return what ended the instance, or None."""
        return self._life.cause

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
        slot = self._slot
        process_id = "" if slot is None else str(slot.process_id)
        return tuple(describe_thread(thread, process_id, self._config) for thread in tuple(self._threads))

    def snapshot(self) -> InstanceSnapshot:
        """Return everything that is published of the instance, as a copy."""
        state, cause = self._life.state, self._life.cause
        return InstanceSnapshot(
            application_id=self._config.application_id,
            state=state,
            alive=state in ALIVE,
            trouble=self._progress.status if cause is None else f"{type(cause).__name__}: {cause}",
            threads=self.metadata_for_local_threads(),
            totals=self._progress.counters.totals(),
        )

    def set_state_listener(self, listener: Callable[[State, State], None] | None) -> None:
        """Call ``listener(new, old)`` at each change of state, in order, on a thread of the instance or of a caller."""
        self._life.listener = listener

    def set_uncaught_exception_handler(self, handler: Callable[[Exception], None] | None) -> None:
        """Call ``handler(error)`` when a stream thread dies; the instance goes to ERROR afterwards."""
        self._exception_handler = handler

    # -- inside -----------------------------------------------------------------------------------------------------

    def _build(self) -> None:
        self._open_endpoint()
        topics = Topics(Admin(self._client("admin")), self._topology, self._names, self._config)
        topics.check_broker()
        topics.layout()
        self._slot = slot = Slot.claim(Path(self._config.state_dir), self._config.application_id)
        for number in range(1, self._config.num_stream_threads + 1):
            self._add_thread(number, slot)

    def _add_thread(self, number: int, slot: Slot) -> None:
        plans = self._checked_plans if number == 1 else self._plans()
        name = f"{self._config.application_id}-{str(slot.process_id)[:8]}-StreamThread-{number}"
        config = self._config
        # Each thread asks for itself: a client belongs to the thread that polls it.
        own = self._client(name)
        topics = Topics(Admin(own), self._topology, self._names, config)
        replay_topics = Topics(Admin(self._client(f"{name}-replay")), self._topology, self._names, config)
        process = Process(
            self._spark,
            slots=self._slots,
            replay=ReplaySpec(
                self._slots, config.application_id, worker_settings(config, f"{name}-worker"), config.store_max_bytes
            ),
            name=name,
        )
        progress = self._progress.thread()
        replayer = Replayer(
            process,
            replay_topics.end_offsets,
            name=f"{name}-replay",
            slice_seconds=_LOCAL_SLICE_SECONDS,
            on_slice=progress.replayed,
        )
        progress.copies = replayer.copies
        batch_topics = Topics(Admin(self._client(f"{name}-batch")), self._topology, self._names, config)
        patience = config.default_api_timeout_ms / 1000
        in_service = InService()
        tasks = TaskSet(
            config=config,
            slot=slot,
            process=process,
            replayer=replayer,
            in_service=in_service,
            transactions=TransactionCoordinator(own, timeout=patience),
            topics=topics,
        )
        transactions = TransactionCoordinator(self._client(f"{name}-transactions"), timeout=patience)
        membership = Membership(
            config=config,
            topology=self._topology,
            source_topics={
                self._names(topic, leg.source.internal) for leg in self._topology.legs for topic in leg.source.topics
            },
            process_id=slot.process_id,
            topics=topics,
            assignor=self._assignor,
            load=self._load_assignor,
            settings=consumer_settings(config, name),
            story=RebalanceStory(name, self._progress.counters.rebalance),
        )
        self._threads.append(
            StreamThread(
                name=name,
                config=config,
                membership=membership,
                tasks=tasks,
                in_service=in_service,
                batches=BatchThread(
                    name=name,
                    config=config,
                    in_service=in_service,
                    batches=BatchRunner(process, transactions, config.application_id, retries=config.max_batch_retries),
                    plans=plans,
                    topics=batch_topics,
                    progress=progress,
                ),
                progress=progress,
                on_change=self._thread_changed,
                on_failure=self._thread_failed,
            )
        )

    def _plans(self) -> Plans:
        legs = self._topology.legs
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
        alive = [t for t in self._threads if not t.ended]
        if alive:
            self._life.settle(lambda: all(t.settled for t in alive))
        else:
            self._release()
            self._life.end()

    def _thread_failed(self, thread: StreamThread, error: Exception) -> None:
        """A thread that dies takes the instance with it, with the cause."""
        self._progress.counters.error("thread")
        self._life.fail(error)
        for other in self._threads:
            if other is not thread:
                other.stop()
        if self._exception_handler is not None:
            try:
                self._exception_handler(error)
            except Exception:
                log.exception("the uncaught-exception handler failed itself")

    def _discard(self) -> None:
        """Undo a build that is not going to be started."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.discard()
        self._release()

    def _open_endpoint(self) -> None:
        if self._config.metrics_port:
            # Importing it takes a tenth of a second, which only those pay who want it.
            from sparkrelay.observe.endpoint import serve  # noqa: PLC0415

            self._endpoint = serve(self.snapshot, port=self._config.metrics_port, host=self._config.metrics_host)

    def _close_endpoint(self) -> None:
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.close()

    def _release(self) -> None:
        if self._life.cause is None or self._stop_asked:
            # What failed by itself says why until somebody stops it.
            self._close_endpoint()
        clients, self._clients = self._clients, []
        for client in clients:
            client.close()
        if self._slot is not None:
            self._slot.release()

    def _wait_for_end(self, timeout: float | None) -> bool:
        if any(thread.is_current for thread in self._threads):
            # The thread would wait for itself.
            return self._life.ended
        return self._life.wait_for_end(timeout)
