"""What all processes of an instance share: settings, topology, callbacks, and how clients are made."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

from sparkrelay.client.admin import Admin
from sparkrelay.client.config import ClientConfig
from sparkrelay.client.kafka_client import KafkaClient
from sparkrelay.observe.rebalance_stories import RebalanceStories
from sparkrelay.runtime.compile.legs import LegCompiler
from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
from sparkrelay.runtime.contract.client_settings import admin_settings, worker_settings
from sparkrelay.runtime.spark.collected_frames import CollectedFrames
from sparkrelay.runtime.tasks.restore_listeners import RestoreListeners
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.runtime.topics.topics import Topics

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from sparkrelay.assignment import TaskAssignor
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.progress import ProgressLog
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.thread.stream_thread import ThreadCallbacks
    from sparkrelay.topology import Topology

__all__ = ["RuntimeContext"]

_BROKER_SECONDS: Final = 30.0
#: Instances of each application that this driver has made so far.
_runs: Counter[str] = Counter()


class Breakable(Protocol):
    """What can be broken off while it waits."""

    def breakable(self, interrupt: Callable[[], object], /) -> AbstractContextManager[None]:
        """Have ``interrupt`` called, on any thread, if it is broken off within this block."""


class RuntimeContext:
    """What the processes of one instance are made with."""

    def __init__(
        self,
        *,
        config: StreamsConfig,
        topology: Topology,
        assignor: TaskAssignor,
        load_assignor: Callable[[str], TaskAssignor],
        progress: ProgressLog,
        callbacks: ThreadCallbacks,
        show: Callable[[logging.Logger, str], None],
    ) -> None:
        self.config = config
        self.topology = topology
        self.names = TopicNames(config.application_id)
        self.assignor = assignor
        self.load_assignor = load_assignor
        self.progress = progress
        self.callbacks = callbacks
        _runs[config.application_id] += 1
        self.run = _runs[config.application_id]
        #: Of no other instance, whenever it ran.
        self.id = uuid.uuid4().hex
        self.show = show
        self._frames = CollectedFrames()
        #: False where the first micro-batch may be slow: tests start many instances, and each prewarm costs a second.
        self.prewarm = True
        #: True while no micro-batch is to begin, here or in a process to come.
        self.paused = False
        #: What the last rebalances were about.
        self.stories = RebalanceStories()
        #: ``host:port`` at which the group's other instances find this one's page; empty if it has none.
        self.page = ""
        #: Notified of what is restored.
        self.listeners = RestoreListeners()
        #: The legs as they were built to check the topology, once they are.
        self.checked: PreparedLegs | None = None
        #: The instance's start while it is under way: whoever waits meanwhile can be interrupted.
        self.beginning: Breakable | None = None

    def plans(self, target: ExecutorTarget) -> PreparedLegs:
        """Build every leg for a target; Catalyst checks every column. The first time, DataFrames are collected.

        Raises:
            TopologyException: a column does not exist or a step is not possible.
        """
        return PreparedLegs(self._compiler(target), self.topology.upstream_first)

    def global_plans(self, target: ExecutorTarget) -> PreparedLegs:
        """Build the legs of global tables for a target; raises as :meth:`plans` does."""
        return PreparedLegs(self._compiler(target), self.topology.global_tables)

    def _compiler(self, target: ExecutorTarget) -> LegCompiler:
        legs = (*self.topology.upstream_first, *self.topology.global_tables)
        client = worker_settings(self.config, "worker", run=self.run)
        return LegCompiler(target, self.config, legs, names=self.names, client=client, frames=self._frames)

    def client(self, client_id: str) -> KafkaClient:
        """Make a client that is not connected yet; it belongs to the thread that polls it."""
        return KafkaClient(ClientConfig.from_dict(admin_settings(self.config, client_id)))

    def connect(self, client: KafkaClient, *, refused_timeout: float = math.inf) -> None:
        """Have a client find the cluster.

        Args:
            client: not connected yet.
            refused_timeout: seconds to wait if every address refuses connections.

        Raises:
            KafkaException: no broker answers, or they refuse us.
            WakeupException: it was interrupted, or the start was.
        """
        timeout = min(_BROKER_SECONDS, self.config.default_api_timeout_ms / 1000)
        beginning = self.beginning
        with contextlib.nullcontext() if beginning is None else beginning.breakable(client.interrupt):
            client.bootstrap(timeout, refused_timeout=refused_timeout)

    def topics(self, client: KafkaClient) -> Topics:
        """Return a view of the topics through a client."""
        return Topics(Admin(client), self.topology, self.names, self.config)
