"""The processes of an instance on a cluster: one for each executor, and a thread that watches Spark's executors.

The process of a lost executor leaves the group at once, and others take over its tasks. A new executor gets a process
that claims a slot on its host and joins. Without any executor the instance waits for one, up to
``executor.wait.timeout.ms``.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import KafkaException, StreamsException
from sparkrelay.runtime.process.process_threads import ProcessThreads, overdue, release
from sparkrelay.runtime.slot.executor_cleaner import ExecutorCleaner
from sparkrelay.runtime.slot.executor_slot import ExecutorSlot
from sparkrelay.runtime.spark.executor_target import ExecutorLost, ExecutorTarget
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.spark.spark_logs import quiet_executors
from sparkrelay.runtime.spark.start_workers import start_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from pyspark.sql import SparkSession

    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.spark.executors import Executor, Executors
    from sparkrelay.runtime.thread.stream_thread import StreamThread

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.2
_PAUSE_SECONDS: Final = 0.02
_FIRST_EXECUTOR_SECONDS: Final = 30.0
#: Pauses between attempts to make a process. Permanent errors of the only process end the instance after _MOST_TRIES.
_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_MOST_TRIES: Final = 5
#: How long a stop waits for processes that are being made, before it cancels their jobs.
_LEAVE_SECONDS: Final = 10.0


class _Failure(NamedTuple):
    """Failed attempts to make an executor's process; ``at`` is the last one's time (monotonic seconds)."""

    tries: int
    at: float
    reason: str

    @property
    def pause(self) -> float:
        """Seconds until the next attempt."""
        return Backoff(_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, jitter=0, failures=self.tries - 1).next()

    def waits(self, now: float, longest: float) -> bool:
        """Return whether it is too early for the next attempt; ``longest`` bounds the pause."""
        return now - self.at < min(self.pause, longest)


class ExecutorProcesses:
    """The processes on a cluster's executors, with the interface of :class:`DriverProcess`."""

    def __init__(
        self,
        spark: SparkSession,
        context: RuntimeContext,
        executors: Executors,
        *,
        on_change: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Prepare, without claiming anything.

        ``on_change`` is called when a process was added and when the watch ends, ``on_failure`` when no process is left
        and none can be made.
        """
        self._spark = spark
        self._context = context
        self._executors = executors
        self._on_change = on_change
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._tidying = threading.Lock()
        self._stopping = threading.Event()
        self._running = False
        self._processes: list[ProcessThreads] = []
        #: Executor id -> the target of a process in the making, and the thread that makes it.
        self._making: dict[str, tuple[ExecutorTarget, threading.Thread]] = {}
        #: By executor id.
        self._failed: dict[str, _Failure] = {}
        self._first_failure: Exception | None = None
        #: Failed jobs while making the only process.
        self._failed_alone = 0
        #: Since when no executor works for this instance (monotonic seconds); None while one does.
        self._idle_since: float | None = None
        self._watch = threading.Thread(target=self._run, name="sparkrelay-executors", daemon=True)
        self._watch_ended = False
        for executor in executors.describe(executors.ids()):
            start_workers(ExecutorTarget.on(spark, executor, executors))

    @property
    def all(self) -> list[ProcessThreads]:
        """The current processes."""
        with self._lock:
            return list(self._processes)

    @property
    def trouble(self) -> str:
        """Why executors have no process; empty if all have one."""
        with self._lock:
            if self._stopping.is_set():
                return ""
            return "; ".join(failure.reason for failure in self._failed.values())

    @property
    def blocked(self) -> str:
        """Why no work is done, no executor or a job that does not end; empty if all is well."""
        with self._lock:
            if self._stopping.is_set():
                return ""
            if self._making and not self._processes:
                return "an executor is being made ready"
            if not self._processes:
                return "no executor can be used" if self._failed else "Spark has no executor; waiting for one"
        return overdue(self._targets(), self._context.config)

    def build(self) -> None:
        """Wait for the first executor, and make a process on each.

        Raises:
            StateStoreException: ``state.dir`` cannot be used on an executor's host.
            SparkRelayError: a process cannot be made.
        """
        deadline = time.monotonic() + _FIRST_EXECUTOR_SECONDS
        while not self._stopping.is_set() and time.monotonic() < deadline:
            self._look()
            # An executor may die while its process is made.
            for thread in self._makers():
                thread.join(_LOOK_SECONDS)
            if not self._makers() and (self.all or self._first_failure is not None):
                break
            self._stopping.wait(_PAUSE_SECONDS)
        if self._first_failure is not None:
            raise self._first_failure
        if not self.all:
            log.warning("Spark has no executor yet; the instance joins its group once there is one")

    def start(self) -> None:
        """Start all threads and the watch over executors."""
        with self._lock:
            self._running = True
            for process in self._processes:
                process.start()
        self._watch.start()

    def stop(self) -> None:
        """Ask everything to end; returns at once."""
        self._stopping.set()
        for process in self.all:
            process.stop()

    def add_thread(self) -> NoReturn:
        """Refuse: the thread would belong to one executor, and later executors would have another number.

        Raises:
            StreamsException: always.
        """
        self._refuse(
            "add_stream_thread()",
            "add executors, start another instance of this application, which takes over its share of the tasks, or "
            "restart this one with a larger num.stream.threads",
        )

    def remove_thread(self) -> NoReturn:
        """Refuse, as :meth:`add_thread`.

        Raises:
            StreamsException: always.
        """
        self._refuse(
            "remove_stream_thread()",
            "give executors back, or restart the instance with a smaller num.stream.threads; pause() makes it start "
            "no further micro-batch",
        )

    def _refuse(self, call: str, remedy: str) -> NoReturn:
        threads = self._context.config.num_stream_threads
        raise StreamsException(
            f"{call} is for local sessions (spark.master=local[N]). On a cluster each executor has "
            f"num.stream.threads={threads} of them: {remedy}"
        )

    def lost(self, thread: StreamThread, error: Exception) -> bool:
        """Return whether a thread died because its executor is gone; the other threads of its process then end too."""
        for process in self.all:
            if thread in process.threads and (process.target.lost or isinstance(error, ExecutorLost)):
                process.lose()
                # Its members leave. The others would learn that from a heartbeat, up to heartbeat.interval.ms later.
                for other in self.all:
                    if other is not process:
                        other.expect_rebalance()
                return True
        return False

    def tidy(self) -> bool:
        """Release ended processes; return True once none is left and none can be added."""
        # One at a time: the user may stop the session once this returns True, so everything must be released.
        with self._tidying:
            for process in self.all:
                if process.ended:
                    # Watched until then: releasing the slot is a job on the executor.
                    release(process)
                    with self._lock:
                        self._processes.remove(process)
            with self._lock:
                return self._watch_ended and not self._processes

    def give_up_unstarted(self) -> None:
        """Release the threads that were never started."""
        for process in self.all:
            process.give_up_unstarted()
        if self._watch.ident is None:
            self._finish_making()
            with self._lock:
                self._watch_ended = True

    def discard(self) -> None:
        """Undo :meth:`build` without a start."""
        self._stopping.set()
        self._finish_making()
        with self._lock:
            processes, self._processes = self._processes, []
        for process in processes:
            process.discard()
        self._stopping.clear()
        self._failed.clear()
        self._first_failure = None
        self._idle_since = None

    # -- the watch ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_LOOK_SECONDS):
                self._look()
        except StreamsException as error:
            log.warning("the watch over Spark's executors ends: %s", error)
            self._on_failure(error)
        except Exception as error:
            log.exception("the watch over Spark's executors ends")
            self._on_failure(error)
        self._finish_making()
        for process in self.all:
            # It may have been added after stop() asked the others.
            process.stop()
        while self.all:
            # Leaving the group runs jobs on executors, which may die.
            try:
                self._lose_gone(self._executors.ids())
            except Exception as error:  # noqa: BLE001 - without Spark the processes end by themselves
                log.debug("cannot list executors any more: %s", error)
            time.sleep(_LOOK_SECONDS)
        self._watch_ended = True
        self._on_change()

    def _look(self) -> None:
        """Close the processes of lost executors, and make those of new ones."""
        ExecutorTarget(self._spark, spark_partitions=1).require()
        ids = self._executors.ids()
        known = {target.executor.id for target in self._targets() if target.executor is not None}
        with self._lock:
            self._failed = {id_: failure for id_, failure in self._failed.items() if id_ in ids}
            # Long pauses are for when another process works.
            longest = math.inf if self._processes or self._making else _RETRY_SECONDS
            now = time.monotonic()
            waiting = {id_ for id_, failure in self._failed.items() if failure.waits(now, longest)}
        self._lose_gone(ids)
        new = ids - known - waiting
        for executor in self._executors.describe(new) if new else ():
            self._make_process(executor)
        self._require_executor()

    def _require_executor(self) -> None:
        """Raise if no executor has worked for too long: a master that has dropped the application gives no more.

        A new session would get some.
        """
        longest = self._context.config.executor_wait_timeout_ms / 1000
        with self._lock:
            if any(not process.target.lost for process in self._processes):
                self._idle_since = None
                return
            now = time.monotonic()
            self._idle_since = self._idle_since or now
            if now - self._idle_since < longest:
                return
            why = "one exists, but does not become ready" if self._making or self._failed else "Spark has none"
        raise StreamsException(
            f"no executor has worked for this instance for {longest:g} s (executor.wait.timeout.ms): {why}. Check in "
            "the cluster manager's UI that the application still exists and gets the resources it asks for "
            "(spark.cores.max, spark.executor.instances), and have a supervisor restart this instance"
        )

    def _targets(self) -> list[ExecutorTarget]:
        """Return the targets of processes, also of those in the making."""
        with self._lock:
            return [process.target for process in self._processes] + [target for target, _ in self._making.values()]

    def _lose_gone(self, ids: Collection[str]) -> None:
        for target in self._targets():
            if target.executor is not None and target.executor.id not in ids and not target.lost:
                log.warning("%s is lost: its process leaves the group", target.description)
                target.lose()

    def _make_process(self, executor: Executor) -> None:
        target = ExecutorTarget.on(self._spark, executor, self._executors)
        make = functools.partial(self._make, target, executor)
        thread = threading.Thread(target=make, name=f"sparkrelay-{executor}", daemon=True)
        with self._lock:
            if self._stopping.is_set():
                return
            self._making[executor.id] = target, thread
        log.info("%s, %d Spark partitions: making a process", executor, executor.spark_partitions)
        # Each time: Spark does not apply it to later executors.
        quiet_executors(self._spark)
        thread.start()

    def _make(self, target: ExecutorTarget, executor: Executor) -> None:
        process = failure = None
        try:
            config = self._context.config
            slot = ExecutorSlot.claim(target, config.state_dir, config.application_id)
            cleaner = ExecutorCleaner(slot, delay_seconds=config.state_cleanup_delay_ms / 1000, now=time.time())
            process = ProcessThreads(self._context, target, slot, cleaner, slot.host_metadata)
        except ExecutorLost as error:
            log.warning("%s", error)
        except Exception as error:  # noqa: BLE001 - handled there
            self._making_failed(executor, error)
        with self._lock:
            del self._making[executor.id]
            welcome = process is not None and not self._stopping.is_set() and not target.lost
            if process is not None and welcome:
                self._failed.pop(executor.id, None)
                self._failed_alone = 0
                self._processes.append(process)
                if self._running:
                    failure = _try_start(process)
        if process is not None and not welcome:
            process.discard()
        if failure is not None:
            self._on_failure(failure)
        self._on_change()

    def _making_failed(self, executor: Executor, error: Exception) -> None:
        with self._lock:
            # One unusable host does not end the processes on others.
            others = any(not process.target.lost for process in self._processes) or self._making.keys() - {executor.id}
            tries = self._failed[executor.id].tries + 1 if executor.id in self._failed else 1
            self._failed[executor.id] = _Failure(tries, time.monotonic(), f"{executor} is not used: {error}")
            broker = isinstance(error, KafkaException) and error.retriable
            if broker:
                # Not the executor's fault; brokers are waited for without a bound.
                self._idle_since = None
            again = bool(others) or broker
            if not again and isinstance(error, JobFailed):
                self._failed_alone += 1
                again = self._failed_alone < _MOST_TRIES
            starting = not self._running
            if starting:
                self._first_failure = self._first_failure or error
        if starting or self._stopping.is_set():
            return
        if again:
            log.warning("%s: making a process failed, retrying: %s", executor, error)
        else:
            self._on_failure(error)

    def _makers(self) -> list[threading.Thread]:
        with self._lock:
            return [thread for _, thread in self._making.values()]

    def _finish_making(self) -> None:
        deadline = time.monotonic() + _LEAVE_SECONDS
        for thread in self._makers():
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            late = list(self._making.values())
        for target, thread in late:
            target.lose()
            thread.join()


def _try_start(process: ProcessThreads) -> Exception | None:
    """Start a process; if that fails, stop it and return the error."""
    try:
        process.start()
    except Exception as error:  # noqa: BLE001 - it ends the instance
        # Some threads may run already, and the process ends only once all have.
        process.stop()
        process.give_up_unstarted()
        return error
    return None
