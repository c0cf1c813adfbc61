"""One process of an instance: its target (where its jobs run), slot (identity and state), threads and connections."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import KafkaException, StreamsException, WakeupException
from sparkrelay.runtime.process.thread_factory import CLIENT_SUFFIXES, ThreadClients, ThreadFactory
from sparkrelay.runtime.tasks.task_state import TaskState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkrelay.client.kafka_client import KafkaClient
    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.contract.host_metadata import HostMetadata
    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.slot.cleaner import Cleaner
    from sparkrelay.runtime.slot.executor_slot import ProcessSlot
    from sparkrelay.runtime.spark.executor_target import ExecutorTarget
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.thread.global_stream_thread import GlobalStreamThread
    from sparkrelay.runtime.thread.stream_thread import StreamThread
    from sparkrelay.types import TaskId

log = logging.getLogger(__name__)

#: Seconds before a dead thread is replaced.
_FIRST_REPLACEMENT: Final = 0.5
_LONGEST_REPLACEMENT: Final = 30.0
_LOOK_SECONDS: Final = 0.2
#: The thread number of the global stream thread's connections.
_GLOBAL: Final = -1


class ProcessThreads:
    """One process of the instance. Its threads start, stop and are released together."""

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
        """Make the threads without starting them.

        The process releases its claimed ``slot``, also if the threads cannot be made, and closes the ``cleaner``.
        ``plans`` are the prepared legs of this target, if they exist already.

        Raises:
            ConfigException: the tags of this process contradict the settings.
            KafkaException: the broker does not answer.
        """
        self.target = target
        self.slot = slot
        self._context = context
        #: Connections by thread number.
        self._clients: dict[int, list[KafkaClient]] = defaultdict(list)
        self._cleaner = cleaner
        self._released = False
        self._stopping = threading.Event()
        #: Guards ``_stopping`` and the removal of threads: nothing starts after either.
        self._lock = threading.Lock()
        #: Serializes the addition of threads.
        self._adding = threading.Lock()
        self._reviving = threading.Lock()
        #: Connections that a stop interrupts.
        self._connecting: set[KafkaClient] = set()
        #: Consecutive deaths without a committed batch, by thread number.
        self._deaths: Counter[int] = Counter()
        #: Legs by thread number.
        self._plans: dict[int, PreparedLegs] = {}
        #: By number, with gaps where threads were removed. Always replaced as a whole.
        self.threads: tuple[StreamThread, ...] = ()
        self._global: GlobalStreamThread | None = None
        #: The prepared legs of global tables, if any.
        self.global_plans: PreparedLegs | None = None
        try:
            self._factory = ThreadFactory(context, host_metadata.applied_to(context.config), target, slot, cleaner)
            if context.topology.global_tables:
                self.global_plans = context.global_plans(target)
                self._global = self._global_thread()
            for number in range(context.config.num_stream_threads):
                self._plans[number] = (plans if number == 0 else None) or context.plans(target)
                self.threads = (*self.threads, self._thread(number))
        except BaseException:
            self.discard()
            raise

    @property
    def process_id(self) -> str:
        """The process id, as stored in the slot."""
        return str(self.slot.process_id)

    @property
    def global_tasks(self) -> list[Task]:
        """The tasks of the global tables, once these are complete."""
        return [] if self._global is None else self._global.tasks

    @property
    def ended(self) -> bool:
        """True once every thread of a stopped or lost process has ended and none is being added."""
        if not (self._stopping.is_set() or self.target.lost) or self._adding.locked():
            return False
        return all(thread.ended for thread in self.threads) and (self._global is None or self._global.ended)

    @property
    def usable(self) -> bool:
        """True while Spark and the executor are available."""
        try:
            self.target.require()
        except StreamsException:
            return False
        return True

    def start(self) -> None:
        """Start the threads; each joins the group."""
        if self._global is not None:
            self._global.start()
        # Threads added from here on start by themselves.
        with self._lock:
            for thread in self.threads:
                if not thread.started:
                    self._begin(thread)

    def pause(self) -> None:
        """Start no further micro-batch."""
        for thread in self.threads:
            thread.pause()

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        for thread in self.threads:
            thread.resume()

    def expect_rebalance(self) -> None:
        """Notify the members of an imminent rebalance; returns at once."""
        for thread in self.threads:
            thread.expect_rebalance()

    def add_thread(self) -> str | None:
        """Start one more stream thread under the lowest free number (KIP-663); the others keep working.

        It joins once its legs are compiled.

        Returns:
            Its name; None if the process is ending.

        Raises:
            SparkRelayError: it cannot be made.
        """
        try:
            with self._adding:
                return self._add_thread()
        finally:
            if self._stopping.is_set():
                # The other threads may have ended in the meantime.
                self._context.callbacks.on_change()

    def _add_thread(self) -> str | None:
        taken = {thread.number for thread in self.threads}
        number = next(number for number in itertools.count() if number not in taken)
        try:
            self._plans[number] = self._context.plans(self.target)
            thread = self._thread(number, beside=self._runs_tasks())
            if self._put(thread):
                log.info("%s added", thread.name)
                return thread.name
        except WakeupException:
            pass  # stop() calls
        except BaseException:
            self._forget(number)
            raise
        self._forget(number)
        return None

    def remove_thread(self) -> StreamThread | None:
        """Ask one stream thread to leave for good; return it, or None if there is none or the process is ending.

        Picks the highest number, so that a restart makes the same threads; the calling thread only if it is the last.
        """
        with self._lock:
            candidates = [thread for thread in self.threads if thread.started and not (thread.removed or thread.ended)]
            if self._stopping.is_set() or not candidates:
                return None
            thread = max(candidates, key=lambda thread: (not thread.is_current, thread.number))
            thread.remove()
            # It may be dead, with a successor connecting.
            for client in self._connecting.intersection(self._clients.get(thread.number, ())):
                client.interrupt()
        return thread

    def take_out_removed(self) -> None:
        """Drop removed threads that have ended, and prepare the others for the rebalance that follows."""
        with self._lock:
            gone = [thread for thread in self.threads if thread.removed and thread.ended]
            if self._stopping.is_set() or not gone:
                return  # a stop releases all threads together
        for thread in gone:
            log.info("%s removed", thread.name)
            # Before its number is free again: a new thread would lose its legs and connections.
            self._forget(thread.number)
        with self._lock:
            self.threads = tuple(thread for thread in self.threads if thread not in gone)
        self.expect_rebalance()

    def replace(self, thread: StreamThread) -> None:
        """Start a successor for a stream thread that has left the group.

        The pause before it doubles until one of them commits a batch: a permanent error would otherwise kill thread
        after thread. An unavailable broker is waited for. There is no successor once the process or the thread is to
        end, or the executor is gone.

        Raises:
            SparkRelayError: the thread cannot be made.
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
                return  # stop() or remove_thread()
            except KafkaException as error:
                if not error.retriable:
                    raise
                log.warning("%s: cannot start its successor yet: %s", thread.name, error)
                thread.progress.trouble(str(error))
                continue
            self._put(successor)
            return

    def _put(self, thread: StreamThread) -> bool:
        """Add a thread and start it; return False if it was discarded because it is no longer wanted.

        Raises:
            RuntimeError: the system has no thread left; the thread is discarded.
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
        """Return whether a thread is to end: the process is stopping, or the thread was removed."""
        return self._stopping.is_set() or any(one.removed for one in self.threads if one.number == number)

    def _revive_global_tables(self) -> None:
        """Replace the global stream thread if it has died."""
        # All stream threads die of its error, and all get here.
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
        """Wait; return False if the process or the thread is to end."""
        deadline = time.monotonic() + seconds
        while not (self._unwanted(number) or self.target.lost):
            left = deadline - time.monotonic()
            if left <= 0:
                return True
            self._stopping.wait(min(left, _LOOK_SECONDS))
        return False

    def stop(self) -> None:
        """Ask the threads to hand over their tasks and leave; returns at once."""
        with self._lock:
            self._stopping.set()
            for client in self._connecting:
                client.interrupt()
        for thread in self.threads:
            thread.stop()
        if self._global is not None:
            self._global.stop()
        if not (self.threads or self._released):
            # No thread is left to report the end. On a thread of its own, as a signal handler may be calling.
            threading.Thread(target=self._context.callbacks.on_change, daemon=True).start()

    def lose(self) -> None:
        """Record that the executor is gone: the threads leave the group at once, without touching their stores."""
        self.target.lose()
        if self._global is not None:
            self._global.stop()

    def give_up_unstarted(self) -> None:
        """Release the threads that were never started."""
        for thread in self.threads:
            if not thread.started:
                _discard(thread)
        if self._global is not None:
            self._global.give_up_unstarted()

    def discard(self) -> None:
        """Release a process that is not going to be started."""
        self.give_up_unstarted()
        self.release()

    def release(self) -> None:
        """Close the connections and release the slot. Idempotent."""
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
            # resume() may have run between the check and the pause.
            thread.resume()

    def _forget(self, number: int) -> None:
        """Release the connections and legs of a thread that has left or was never made."""
        self._disconnect(number)
        self._plans.pop(number, None)
        self._deaths.pop(number, None)

    def _disconnect(self, number: int) -> None:
        for client in self._clients.pop(number, []):
            client.close()

    def _connect(self, number: int, client_id: str) -> KafkaClient:
        """Connect a client for a thread; stopping or removing the thread raises WakeupException here."""
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
        """Return the active tasks of the other threads."""
        return {
            task.id
            for thread in self.threads
            if thread.number != number
            for task in thread.tasks.all()
            if task.state is not TaskState.STANDBY
        }

    def _thread(self, number: int, *, beside: bool = False) -> StreamThread:
        name = self._factory.name(f"StreamThread-{number + 1}")
        return self._factory.stream_thread(
            number,
            ThreadClients(*(self._connect(number, name + suffix) for suffix in CLIENT_SUFFIXES)),
            self._plans[number],
            runs_tasks=self._runs_tasks,
            active_elsewhere=functools.partial(self._active_beside, number),
            global_tables=self._global,
            beside=beside,
        )

    def _global_thread(self) -> GlobalStreamThread:
        assert self.global_plans is not None, "a pipeline with global tables has legs that keep them"
        client = self._connect(_GLOBAL, self._factory.name("GlobalStreamThread"))
        return self._factory.global_thread(client, self.global_plans)


def _discard(thread: StreamThread) -> None:
    """Release a thread that was never started."""
    thread.discard()
    thread.progress.end()


def release(process: ProcessThreads) -> None:
    """Release a process; errors are only logged."""
    try:
        process.release()
    except Exception:
        log.exception("%s could not be released", process.target.description)


def overdue(targets: Iterable[ExecutorTarget], config: StreamsConfig) -> str:
    """Return which jobs have run for longer than ``max.poll.interval.ms``; empty if none."""
    seconds = config.max_poll_interval_ms / 1000
    late = "; ".join(filter(None, (target.overdue(seconds) for target in targets)))
    return f"{late} (max.poll.interval.ms={config.max_poll_interval_ms})" if late else ""
