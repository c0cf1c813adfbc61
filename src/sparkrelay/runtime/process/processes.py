"""The processes of an instance: one on the driver (``local[N]``), or one for each executor of a cluster.

Both kinds answer to the same few words, so that ``KafkaStreams`` knows nothing of the difference. On a cluster a
thread watches Spark's executors. One that is gone takes its process out of the group at once, and what it had is taken
over; one that comes - a replacement, or by dynamic allocation - gets a process that claims a slot on its host and
joins. With no executor left the instance waits for the next, no longer than ``executor.wait.timeout.ms``.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import KafkaException, StreamsException
from sparkrelay.runtime.contract.host_metadata import HostMetadata
from sparkrelay.runtime.process.process_threads import ProcessThreads
from sparkrelay.runtime.slot.cleaner import Cleaner
from sparkrelay.runtime.slot.executor_cleaner import ExecutorCleaner
from sparkrelay.runtime.slot.executor_slot import ExecutorSlot
from sparkrelay.runtime.spark.executor_target import ExecutorLost, ExecutorTarget
from sparkrelay.runtime.spark.jobs import JobFailed
from sparkrelay.runtime.spark.spark_logs import quiet_executors
from sparkrelay.runtime.spark.start_workers import start_workers
from sparkrelay.state import Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from pyspark.sql import SparkSession

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.spark.executors import Executor, Executors
    from sparkrelay.runtime.thread.stream_thread import StreamThread

__all__ = ["DriverProcess", "ExecutorProcesses"]

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 0.2
_PAUSE_SECONDS: Final = 0.02
_FIRST_EXECUTOR_SECONDS: Final = 30.0
#: A process that could not be made is tried again after this long, twice as long each time; where there is no other
#: one, what does not pass of itself is given up after so many tries.
_RETRY_SECONDS: Final = 2.0
_LONGEST_RETRY_SECONDS: Final = 60.0
_MOST_TRIES: Final = 5
#: Who stops waits this long for processes that are being made, then cancels their jobs.
_LEAVE_SECONDS: Final = 10.0


class _Failure(NamedTuple):
    """How often making an executor's process failed, when it last did (monotonic seconds), and why."""

    tries: int
    at: float
    reason: str

    @property
    def pause(self) -> float:
        """Seconds until it is tried again."""
        return Backoff(_RETRY_SECONDS, _LONGEST_RETRY_SECONDS, jitter=0, failures=self.tries - 1).next()

    def waits(self, now: float, longest: float) -> bool:
        """Return whether it is too early to try again, where nobody waits longer than ``longest``."""
        return now - self.at < min(self.pause, longest)


class DriverProcess:
    """The one process of a ``local[N]`` session. Has what :class:`ExecutorProcesses` has."""

    def __init__(self, context: RuntimeContext, target: ExecutorTarget) -> None:
        self._context = context
        self._target = target
        self._process: ProcessThreads | None = None
        self._tidying = threading.Lock()
        start_workers(target)

    @property
    def all(self) -> list[ProcessThreads]:
        """The processes there are now."""
        return [] if self._process is None else [self._process]

    @property
    def trouble(self) -> str:
        """What hinders the processes as such."""
        return ""

    @property
    def blocked(self) -> str:
        """Why no work is done, and none will be by itself."""
        return _overdue([self._target], self._context.config)

    def build(self) -> None:
        """Claim the slot and make the threads.

        Raises:
            StateStoreException: ``state.dir`` cannot be used.
            KafkaException: the broker does not answer.
        """
        config = self._context.config
        slot = Slot.claim(config.state_dir, config.application_id)
        cleaner = Cleaner(slot.path, delay_seconds=config.state_cleanup_delay_ms / 1000, now=time.time())
        self._process = ProcessThreads(
            self._context, self._target, slot, cleaner, HostMetadata.here(), plans=self._context.checked
        )

    def start(self) -> None:
        """Start the threads."""
        for process in self.all:
            process.start()

    def stop(self) -> None:
        """Ask all threads to end; returns at once."""
        for process in self.all:
            process.stop()

    def add_thread(self) -> str | None:
        """Add a stream thread to the process, as :meth:`ProcessThreads.add_thread` does."""
        return next((process.add_thread() for process in self.all), None)

    def remove_thread(self) -> StreamThread | None:
        """Have a stream thread leave, as :meth:`ProcessThreads.remove_thread` does."""
        return next((process.remove_thread() for process in self.all), None)

    def lost(self, thread: StreamThread, error: Exception) -> bool:  # noqa: ARG002 - the other kind looks
        """Return whether a thread died because its executor is gone; the driver's cannot."""
        return False

    def tidy(self) -> bool:
        """Release what has ended; return True once nothing is left that runs."""
        # One at a time: who is notified that all is over may start anew, so everything must be released.
        with self._tidying:
            for process in self.all:
                process.take_out_removed()
            ended = all(process.ended for process in self.all)
            if ended:
                for process in self.all:
                    _release(process)
            return ended

    def give_up_unstarted(self) -> None:
        """Release the threads that :meth:`start` could not start."""
        for process in self.all:
            process.give_up_unstarted()

    def discard(self) -> None:
        """Undo a build that is not going to be started."""
        process, self._process = self._process, None
        if process is not None:
            process.discard()


class ExecutorProcesses:
    """The processes on a cluster's executors, and the thread that watches them."""

    def __init__(
        self,
        spark: SparkSession,
        context: RuntimeContext,
        executors: Executors,
        *,
        on_change: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        """Prepare; nothing is claimed yet.

        Args:
            spark: the session.
            context: what processes are made with.
            executors: knows which there are.
            on_change: called when a process was added, and when the watch ends.
            on_failure: called when no process is left and none can be made.
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
        #: Executor id -> the target being made into a process, and the thread that does.
        self._making: dict[str, tuple[ExecutorTarget, threading.Thread]] = {}
        #: Executor id -> why it has no process.
        self._failed: dict[str, _Failure] = {}
        self._first_failure: Exception | None = None
        #: How often a job for the only process failed.
        self._failed_alone = 0
        #: Since when no executor has done anything for us (monotonic seconds); None while one does.
        self._idle_since: float | None = None
        self._watch = threading.Thread(target=self._run, name="sparkrelay-executors", daemon=True)
        self._watch_ended = False
        for executor in executors.describe(executors.ids()):
            start_workers(ExecutorTarget.on(spark, executor, executors))

    @property
    def all(self) -> list[ProcessThreads]:
        """The processes there are now."""
        with self._lock:
            return list(self._processes)

    @property
    def trouble(self) -> str:
        """What hinders the processes as such."""
        with self._lock:
            if self._stopping.is_set():
                return ""
            return "; ".join(failure.reason for failure in self._failed.values())

    @property
    def blocked(self) -> str:
        """Why no work is done: no executor to do it, or a job that does not end."""
        with self._lock:
            if self._stopping.is_set():
                return ""
            if self._making and not self._processes:
                return "an executor is being made ready"
            if not self._processes:
                return "no executor can be used" if self._failed else "Spark has no executor; waiting for one"
        return _overdue(self._targets(), self._context.config)

    def build(self) -> None:
        """Wait for the first executor, and make a process on each one there is.

        Raises:
            StateStoreException: ``state.dir`` cannot be used on an executor's host.
            SparkRelayError: a process cannot be made.
        """
        deadline = time.monotonic() + _FIRST_EXECUTOR_SECONDS
        while not self._stopping.is_set() and time.monotonic() < deadline:
            self._look()
            # An executor that dies while its process is made is only seen by looking again.
            for thread in self._makers():
                thread.join(_LOOK_SECONDS)
            if not self._makers() and (self.all or self._first_failure is not None):
                break
            self._stopping.wait(_PAUSE_SECONDS)
        if self._first_failure is not None:
            raise self._first_failure
        if not self.all:
            log.warning("Spark has no executor yet; the instance joins its group as soon as there is one")

    def start(self) -> None:
        """Start all threads, and watch the executors from now on."""
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
        """Refuse: which executor's would it be, and how many would those get that come later.

        Raises:
            StreamsException: always; says what to do instead.
        """
        raise StreamsException(
            "add_stream_thread() is for local sessions (spark.master=local[N]). On a cluster each executor has "
            f"num.stream.threads={self._context.config.num_stream_threads} of them: add executors, start another "
            "instance of this application, which takes over its share of the tasks, or make this one anew with a "
            "larger num.stream.threads"
        )

    def remove_thread(self) -> NoReturn:
        """Refuse, as :meth:`add_thread`.

        Raises:
            StreamsException: always; says what to do instead.
        """
        raise StreamsException(
            "remove_stream_thread() is for local sessions (spark.master=local[N]). On a cluster each executor has "
            f"num.stream.threads={self._context.config.num_stream_threads} of them: give executors back, or make the "
            "instance anew with a smaller num.stream.threads; pause() has it begin no further micro-batch"
        )

    def lost(self, thread: StreamThread, error: Exception) -> bool:
        """Return whether a thread died because its executor is gone; the threads beside it then end as well."""
        for process in self.all:
            if thread in process.threads and (process.target.lost or isinstance(error, ExecutorLost)):
                process.lose()
                # Its members leave, which a heartbeat's answer says to the others up to heartbeat.interval.ms later.
                for other in self.all:
                    if other is not process:
                        other.expect_rebalance()
                return True
        return False

    def tidy(self) -> bool:
        """Release what has ended; return True once nothing is left that runs or may be added."""
        # One at a time: who is notified that all is over may take the session down, so everything must be released.
        with self._tidying:
            for process in self.all:
                if process.ended:
                    # Watched until then: giving the slot back is a job on the executor.
                    _release(process)
                    with self._lock:
                        self._processes.remove(process)
            with self._lock:
                return self._watch_ended and not self._processes

    def give_up_unstarted(self) -> None:
        """Release the threads that :meth:`start` could not start."""
        for process in self.all:
            process.give_up_unstarted()
        if self._watch.ident is None:
            self._finish_making()
            with self._lock:
                self._watch_ended = True

    def discard(self) -> None:
        """Undo a build that is not going to be started."""
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
            # One that was added while the others were asked to stop.
            process.stop()
        while self.all:
            # Leaving runs jobs on executors, which may die meanwhile.
            try:
                self._lose_gone(self._executors.ids())
            except Exception as error:  # noqa: BLE001 - with Spark gone they end by themselves
                log.debug("executors cannot be looked at any more: %s", error)
            time.sleep(_LOOK_SECONDS)
        self._watch_ended = True
        self._on_change()

    def _look(self) -> None:
        """Compare the executors with the processes; close what is gone, make what is new."""
        ExecutorTarget(self._spark, spark_partitions=1).require()
        ids = self._executors.ids()
        known = {target.executor.id for target in self._targets() if target.executor is not None}
        with self._lock:
            self._failed = {id_: failure for id_, failure in self._failed.items() if id_ in ids}
            # Nobody waits out a pause while nothing runs.
            longest = math.inf if self._processes or self._making else _RETRY_SECONDS
            now = time.monotonic()
            waiting = {id_ for id_, failure in self._failed.items() if failure.waits(now, longest)}
        self._lose_gone(ids)
        new = ids - known - waiting
        for executor in self._executors.describe(new) if new else ():
            self._make_process(executor)
        self._require_executor()

    def _require_executor(self) -> None:
        """End the wait for an executor, or for one to become a process, that lasts too long: Spark may have none left.

        A master that has dropped the application, say, never gives it another one; a new session would get some.
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
            why = "one is there, but does not become ready" if self._making or self._failed else "Spark has none"
        raise StreamsException(
            f"no executor has worked for this instance for {longest:g} s (executor.wait.timeout.ms): {why}. Look in "
            "the cluster manager's UI whether the application is still there and gets what it asks for "
            "(spark.cores.max, spark.executor.instances), and have a supervisor start this instance again"
        )

    def _targets(self) -> list[ExecutorTarget]:
        """Return where processes are, or are being made."""
        with self._lock:
            return [process.target for process in self._processes] + [target for target, _ in self._making.values()]

    def _lose_gone(self, ids: Collection[str]) -> None:
        for target in self._targets():
            if target.executor is not None and target.executor.id not in ids and not target.lost:
                log.warning("%s is gone: its process leaves the group", target.description)
                target.lose()

    def _make_process(self, executor: Executor) -> None:
        target = ExecutorTarget.on(self._spark, executor, self._executors)
        thread = threading.Thread(
            target=self._make, args=(target, executor), name=f"sparkrelay-{executor}", daemon=True
        )
        with self._lock:
            if self._stopping.is_set():
                return
            self._making[executor.id] = target, thread
        log.info("%s, %d Spark partitions: making a process", executor, executor.spark_partitions)
        # Each time: Spark does not show it those that come later.
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
        except Exception as error:  # noqa: BLE001 - decided on below
            self._making_failed(executor, error)
        with self._lock:
            del self._making[executor.id]
            welcome = process is not None and not self._stopping.is_set() and not target.lost
            if process is not None and welcome:
                self._failed.pop(executor.id, None)
                self._failed_alone = 0
                self._processes.append(process)
                if self._running:
                    failure = _started(process)
        if process is not None and not welcome:
            process.discard()
        if failure is not None:
            self._on_failure(failure)
        self._on_change()

    def _making_failed(self, executor: Executor, error: Exception) -> None:
        with self._lock:
            # A host that cannot be used is no reason to end processes on others, and another one may be on its way.
            others = any(not process.target.lost for process in self._processes) or self._making.keys() - {executor.id}
            tries = self._failed[executor.id].tries + 1 if executor.id in self._failed else 1
            self._failed[executor.id] = _Failure(tries, time.monotonic(), f"{executor} is not used: {error}")
            broker = isinstance(error, KafkaException) and error.retriable
            if broker:
                # The executor has done its part; brokers are waited for as long as it takes.
                self._idle_since = None
            again = bool(others) or broker
            if not again and isinstance(error, JobFailed):
                self._failed_alone += 1
                again = self._failed_alone < _MOST_TRIES
            starting = not self._running
            if starting and self._first_failure is None:
                self._first_failure = error
        if starting or self._stopping.is_set():
            return
        if again:
            log.warning("%s: making a process failed; it is tried again: %s", executor, error)
            return
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


def _started(process: ProcessThreads) -> Exception | None:
    """Start a process; return what has kept it from that, once what had begun is asked to end."""
    try:
        process.start()
    except Exception as error:  # noqa: BLE001 - it ends the instance
        # Some of its threads may run: without the others it would never be over.
        process.stop()
        process.give_up_unstarted()
        return error
    return None


def _release(process: ProcessThreads) -> None:
    """Release a process; what fails of it keeps nobody from ending."""
    try:
        process.release()
    except Exception:
        log.exception("%s could not be released", process.target.description)


def _overdue(targets: Iterable[ExecutorTarget], config: StreamsConfig) -> str:
    """Say which jobs have lasted longer than the bound on everything else in a group."""
    seconds = config.max_poll_interval_ms / 1000
    late = "; ".join(filter(None, (target.overdue(seconds) for target in targets)))
    return f"{late} (max.poll.interval.ms={config.max_poll_interval_ms})" if late else ""
