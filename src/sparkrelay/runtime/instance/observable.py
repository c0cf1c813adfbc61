"""The methods of ``KafkaStreams`` that report its state and progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparkrelay.observe.named_metrics import named_metrics
from sparkrelay.observe.snapshot import InstanceSnapshot
from sparkrelay.runtime.instance.lifecycle import ALIVE, RUNNING
from sparkrelay.runtime.instance.plain_errors import plain_errors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.config import StreamsConfig
    from sparkrelay.observe.details import InstanceDetails
    from sparkrelay.runtime.batch.progress import ProgressLog
    from sparkrelay.runtime.instance.lifecycle import Life, State
    from sparkrelay.runtime.instance.metadata import ThreadMetadata
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.process.driver_process import DriverProcess
    from sparkrelay.runtime.process.processes import ExecutorProcesses


class Observable:
    """An instance that can be observed from any thread."""

    _config: StreamsConfig
    _context: RuntimeContext
    _life: Life
    _processes: DriverProcess | ExecutorProcesses
    _progress: ProgressLog

    def __repr__(self) -> str:
        now = self.snapshot()
        active = sum(len(thread.active_tasks) for thread in now.threads)
        standby = sum(len(thread.standby_tasks) for thread in now.threads)
        return (
            f"<KafkaStreams {now.application_id!r} {now.state}: "
            f"stream threads {len(now.threads)}, active tasks {active}, standby tasks {standby}>"
        )

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
        """The newest of :attr:`recentProgress`, or None."""
        return self._progress.last

    @property
    def recentProgress(self) -> list[dict[str, Any]]:  # noqa: N802 - PySpark's name
        """The newest reports, oldest first, with the keys of Spark's StreamingQuery progress.

        Each micro-batch has one; others report restoring copies.
        """
        return self._progress.recent

    @property
    def status(self) -> str:
        """The state, with the current problem, if any."""
        trouble = self._trouble
        return f"{self.state}: {trouble}" if trouble else self.state

    @property
    def _trouble(self) -> str | None:
        said = (self._processes.blocked, self._processes.trouble, self._progress.status)
        return "; ".join(filter(None, said)) or None

    @property
    def input_lags(self) -> dict[str, int]:
        """Unprocessed records, by input partition of the tasks in service here."""
        return self._progress.input_lags

    @plain_errors
    def describe(self) -> str:
        """Return ``Topology.describe()``, and how each leg runs its small micro-batches.

        A leg uses a resident Spark job, or one Spark job per micro-batch, which costs tens of milliseconds; then the
        reason is given.
        """
        assert self._context.checked is not None, "the constructor builds every leg"
        return f"{self._context.topology.describe()}\n{self._context.checked.describe()}\n"

    def metadata_for_local_threads(self) -> tuple[ThreadMetadata, ...]:
        """Return each stream thread with its tasks and their positions."""
        from sparkrelay.runtime.instance.parts import describe_thread  # noqa: PLC0415 - see __init__

        return tuple(
            describe_thread(thread, process, self._config)
            for process in self._processes.all
            for thread in process.threads
        )

    def snapshot(self) -> InstanceSnapshot:
        """Return a copy of everything that the instance publishes."""
        state, cause = self._life.state, self._life.cause
        alive = state in ALIVE and not self._processes.blocked
        return InstanceSnapshot(
            application_id=self._config.application_id,
            state=state,
            alive=alive,
            ready=alive and state == RUNNING,
            trouble=self._trouble if cause is None else f"{type(cause).__name__}: {cause}",
            threads=self.metadata_for_local_threads(),
            totals=self._progress.counters.totals(),
        )

    def details(self) -> InstanceDetails:
        """Return what the live page shows besides :meth:`snapshot`: settings without secrets, topology, rebalances."""
        from sparkrelay.runtime.instance.parts import page_details  # noqa: PLC0415 - see __init__

        return page_details(self._context, self._processes.all)

    def metrics(self) -> Mapping[str, float]:
        """Return metrics that mean the same as in Kafka Streams, under its names.

        For example ``process-total``, ``commit-latency-avg`` (milliseconds), ``records-lag``.
        """
        return named_metrics(self.snapshot())
