"""What all processes of an instance share: settings, topology, callbacks, and how clients are made."""

from __future__ import annotations

import contextlib
import math
import uuid
from collections import Counter
from dataclasses import dataclass, field
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

_BROKER_SECONDS: Final = 30.0
#: Instances made by this driver so far, by application id.
_runs: Counter[str] = Counter()


class Breakable(Protocol):
    """A start that can be interrupted."""

    def breakable(self, interrupt: Callable[[], object], /) -> AbstractContextManager[None]:
        """Call ``interrupt``, on any thread, if the start is interrupted within this block."""


@dataclass(kw_only=True, eq=False)
class RuntimeContext:
    """Shared by the processes of one instance."""

    config: StreamsConfig
    topology: Topology
    assignor: TaskAssignor
    load_assignor: Callable[[str], TaskAssignor]
    progress: ProgressLog
    callbacks: ThreadCallbacks
    show: Callable[[logging.Logger, str], None]
    #: False where the first micro-batch may be slow: each prewarm costs a second, and tests start many instances.
    prewarm: bool = True
    #: True while no micro-batch may start, also in processes added later.
    paused: bool = False
    #: The last rebalances, for the page.
    stories: RebalanceStories = field(default_factory=RebalanceStories)
    #: ``host:port`` of this instance's page; empty if it has none.
    page: str = ""
    listeners: RestoreListeners = field(default_factory=RestoreListeners)
    #: The legs built to check the topology, once they are.
    checked: PreparedLegs | None = None
    #: The instance's start while it is in progress.
    beginning: Breakable | None = None

    def __post_init__(self) -> None:
        self.names = TopicNames(self.config.application_id)
        _runs[self.config.application_id] += 1
        self.run = _runs[self.config.application_id]
        #: Unique among all instances ever.
        self.id = uuid.uuid4().hex
        self._frames = CollectedFrames()

    def plans(self, target: ExecutorTarget) -> PreparedLegs:
        """Build every leg for a target; Catalyst checks every column. The first call collects DataFrames.

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
        """Return an unconnected client, for use by one thread."""
        return KafkaClient(ClientConfig.from_dict(admin_settings(self.config, client_id)))

    def connect(self, client: KafkaClient, *, refused_timeout: float = math.inf) -> None:
        """Connect a client; ``refused_timeout`` is in seconds, for when every address refuses connections.

        Raises:
            KafkaException: no broker answers, or access is denied.
            WakeupException: the client or the instance's start was interrupted.
        """
        timeout = min(_BROKER_SECONDS, self.config.default_api_timeout_ms / 1000)
        beginning = self.beginning
        with contextlib.nullcontext() if beginning is None else beginning.breakable(client.interrupt):
            client.bootstrap(timeout, refused_timeout=refused_timeout)

    def topics(self, client: KafkaClient) -> Topics:
        """Return a view of the topics through a client."""
        return Topics(Admin(client), self.topology, self.names, self.config)
