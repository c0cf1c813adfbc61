"""A stream thread: one consumer and its tasks. It serves the group, and initializes and closes tasks.

Rebalance callbacks run on this thread, inside ``poll``. Micro-batches run on the batch thread, restoring and standbys
on the state updater's. A task that leaves waits for its own batch only.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import AuthorizationException, KafkaException, SparkRelayError, StreamsException, WakeupException
from sparkrelay.runtime.spark.executor_target import ExecutorLost
from sparkrelay.runtime.thread.uncaught_exceptions import StreamThreadExceptionResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.batch_thread import BatchThread
    from sparkrelay.runtime.batch.progress import ThreadProgress
    from sparkrelay.runtime.group.assignment_log import Notice
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.thread.global_stream_thread import GlobalStreamThread
    from sparkrelay.runtime.thread.membership import GroupHosts, StreamsMembership
    from sparkrelay.runtime.thread.task_set import TaskSet
    from sparkrelay.types import TopicPartition

log = logging.getLogger(__name__)

#: Longest poll while tasks are being initialized, and otherwise.
_BUSY_SECONDS = 0.01
_IDLE_SECONDS = 0.1
_PURGE_SECONDS = 30.0
_LOOK_SECONDS = 0.5
#: The first may have been in flight when a task was fenced; the second reflects the membership since then.
_HEARTBEATS_AFTER_FENCE = 2


@dataclass(frozen=True, slots=True)
class ThreadCallbacks:
    """Callbacks, called on the stream thread.

    Attributes:
        on_change: its state has changed, or it has ended.
        on_failure: it dies of this error; returns the response.
        on_unclosed: its tasks could not be closed; returns the response.
        on_replace: it has ended and is to be replaced.
    """

    on_change: Callable[[], None]
    on_failure: Callable[[StreamThread, Exception], StreamThreadExceptionResponse]
    on_unclosed: Callable[[StreamThread, Exception], StreamThreadExceptionResponse]
    on_replace: Callable[[StreamThread], None]


class StreamThread:
    """Drives one member of the group, on its own thread.

    ``number`` is its position among the threads of its process, from 0. ``stopping`` is its own event, shared with
    ``tasks``. ``open_transactions`` aborts what an earlier thread of its name left open; it is retried after a
    KafkaException. ``beside`` is True if other threads of the process already run the tasks.
    """

    def __init__(
        self,
        *,
        number: int,
        name: str,
        config: StreamsConfig,
        membership: StreamsMembership,
        tasks: TaskSet,
        in_service: InService,
        batches: BatchThread,
        progress: ThreadProgress,
        callbacks: ThreadCallbacks,
        stopping: threading.Event,
        open_transactions: Callable[[], None],
        global_tables: GlobalStreamThread | None = None,
        beside: bool = False,
    ) -> None:
        self.number = number
        self.name = name
        self._config = config
        self._membership = membership
        #: Read-only for other threads.
        self.tasks = tasks
        self._in_service = in_service
        self._batches = batches
        self.progress = progress
        self._callbacks = callbacks
        self._global_tables = global_tables
        self._beside = beside
        self._stopping = stopping
        self._open_transactions = open_transactions
        #: True once it is to leave for good; its process may continue without it.
        self.removed = False
        self._serving = True
        #: Set by other threads that know of a rebalance before the group does.
        self._rebalance_expected = threading.Event()
        #: After a task was fenced: answered heartbeats required before tasks are initialized again.
        self._awaited_heartbeats: int | None = None
        self._purged_at = time.monotonic()
        #: The unread partitions at the last check.
        self._unread: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.running = False
        #: True once the thread has ended and left its group.
        self.ended = False

    def start(self) -> None:
        """Start the thread; it joins the group."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to finish its batch, hand over its tasks and leave the group; returns at once."""
        self._stopping.set()
        self._membership.wakeup()
        if self._serving:
            # Do not wait for a silent broker. Later requests are needed to leave the group.
            self._membership.interrupt()

    def remove(self) -> None:
        """Stop for good: a static member leaves the group, too."""
        self.removed = True
        self.stop()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the thread has ended; return False after ``timeout`` seconds."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            # In short waits: a signal that arrives right before the main thread blocks does not wake it.
            self._thread.join(min(left, _LOOK_SECONDS))
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Start no further micro-batch; restoring continues."""
        self._in_service.pause()

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._in_service.resume()

    def expect_rebalance(self) -> None:
        """Notify the member of an imminent rebalance; returns at once."""
        self._rebalance_expected.set()
        self._membership.wakeup()

    def discard(self) -> None:
        """Close a thread that was never started."""
        self._membership.close()
        self.ended = True

    @property
    def started(self) -> bool:
        """True once the thread runs or has run."""
        return self._thread.ident is not None

    @property
    def member_id(self) -> str:
        """Its group member's id; empty before it has joined."""
        return self._membership.member_id

    @property
    def hosts(self) -> GroupHosts:
        """Where the group's tasks can be queried."""
        return self._membership.hosts

    @property
    def notice(self) -> Notice:
        """The leader's notice about the newest rebalance."""
        return self._membership.notice

    @property
    def state(self) -> str:
        """The state under Kafka Streams' name for it. Thread-safe."""
        if self.ended:
            return "DEAD"
        if self._stopping.is_set():
            return "PENDING_SHUTDOWN"
        if not self._thread.is_alive():
            return "CREATED"
        if not self._membership.stable:
            return "PARTITIONS_REVOKED" if self.member_id else "STARTING"
        return "RUNNING" if self.running else "PARTITIONS_ASSIGNED"

    @property
    def is_current(self) -> bool:
        """True in callbacks: on the thread itself and its helper threads, whose names begin with its own."""
        return f"{threading.current_thread().name}-".startswith(f"{self.name}-")

    def _run(self) -> None:
        failure = self._attempt(self._serve, "stream thread dies")
        self._serving = False
        response = None if failure is None else self._callbacks.on_failure(self, failure)
        if isinstance(failure, ExecutorLost):
            # Nothing runs there any more, and the next owners fence open batches: hand over at once.
            self.tasks.drop()
            self._leave()
        close = functools.partial(self.tasks.close, clean=failure is None, batches=self._batches)
        unclosed = self._attempt(close, "closing tasks failed")
        if unclosed is not None:
            # A batch may still run: no thread may take this one's place meanwhile.
            response = self._callbacks.on_unclosed(self, unclosed)
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._attempt(self._membership.ask_all_to_end, "asking the application to end failed")
        self._leave()
        if response is StreamThreadExceptionResponse.REPLACE_THREAD:
            # Making its successor may take a while.
            self.running = False
            self._callbacks.on_change()
            self._callbacks.on_replace(self)
        self.progress.end()
        self.ended = True
        self._callbacks.on_change()

    def _leave(self) -> None:
        close = functools.partial(self._membership.close, for_good=self.removed)
        self._attempt(close, "leaving the group failed")

    def _attempt(self, step: Callable[[], None], complaint: str) -> Exception | None:
        try:
            step()
        except ExecutorLost as error:
            log.warning("%s: %s", self.name, error)
            return error
        except SparkRelayError as error:
            # Our errors speak for themselves, without a traceback, unless foreign code caused them.
            foreign = not isinstance(error.__cause__, SparkRelayError | None)
            traceback = foreign or log.isEnabledFor(logging.DEBUG)
            log.error("%s: %s: %s", self.name, complaint, error, exc_info=traceback)  # noqa: TRY400
            return error
        except Exception as error:
            log.exception("%s: %s", self.name, complaint)
            return error
        except BaseException as error:
            # sys.exit() in a callback ends the instance as an error does.
            log.exception("%s: %s", self.name, complaint)
            return StreamsException(f"{complaint}: {type(error).__name__}: {error}")
        return None

    def _serve(self) -> None:
        self._retrying(self._open_transactions)
        self._batches.start()
        self.tasks.start()
        # Before joining, warm up: a member gets tasks at once, also from others, and they would wait for our Python
        # workers. If nobody else can run the tasks, joining first loses nothing.
        if not (self._batches.wait_prewarmed(0.0) or (not self._beside and self._membership.nobody_else())):
            while not (self._batches.wait_prewarmed(_IDLE_SECONDS) or self._stopping.is_set()):
                pass
        self._batches.check()
        self.tasks.require_target()
        # Tasks may query them from their first record on.
        while self._global_tables is not None and not (
            self._global_tables.wait_complete(_IDLE_SECONDS) or self._stopping.is_set()
        ):
            pass
        self._membership.start(self.tasks)
        while not self._stopping.is_set():
            self._retrying(self._turn)

    def _turn(self) -> None:
        """Serve the group once and bring tasks up."""
        # Checked before the poll, which acts on the news of heartbeats.
        member = self._is_member()
        if self._rebalance_expected.is_set():
            self._rebalance_expected.clear()
            self._membership.expect_rebalance()
        self._membership.poll(_IDLE_SECONDS if self.tasks.all_up else _BUSY_SECONDS)
        self._batches.check()
        if self._global_tables is not None:
            self._global_tables.check()
        fenced = self._reinitialize()
        if member and not fenced and self._membership.stable:
            self.tasks.bring_up()
        else:
            self.tasks.require_target()
        self._report_state()
        self._membership.consider_follow_up(self.tasks)
        self._consider_unread()
        if self._membership.stable:
            self.progress.has(self.tasks.active)
        self._purge()
        self.tasks.clean_up()

    def _retrying(self, do: Callable[[], None]) -> None:
        """Call ``do``, again after retriable errors until it succeeds or the thread is to end."""
        backoff = Backoff.for_brokers()
        while not self._stopping.is_set():
            try:
                do()
            except WakeupException:
                return  # stop()
            except KafkaException as error:
                if not error.retriable:
                    raise
                pause = backoff.next()
                log.warning("%s: %s; trying again in %.1f s", self.name, error, pause)
                self.progress.trouble(str(error))
                self._report_state()
                self._stopping.wait(pause)
                continue
            return

    def _is_member(self) -> bool:
        """Return whether tasks may be initialized: after a fence, only once a later heartbeat was answered.

        An expelled member that initialized its tasks again at once would fence their new owner.
        """
        if self._awaited_heartbeats is not None and self._membership.heartbeats >= self._awaited_heartbeats:
            self._awaited_heartbeats = None
        return self._awaited_heartbeats is None

    def _reinitialize(self) -> bool:
        """Initialize tasks again that fell out of service; return True if one may have been fenced."""
        fenced = False
        for task, reason in self._in_service.take_fallen_out():
            self.tasks.reinitialize(task, reason)
            # Also after a timeout: this member may have been expelled meanwhile.
            fenced = fenced or isinstance(reason, KafkaException)
        if fenced:
            self._awaited_heartbeats = self._membership.heartbeats + _HEARTBEATS_AFTER_FENCE
        return fenced

    def _report_state(self) -> None:
        running = self._membership.stable and self.tasks.all_up
        self._membership.note_service(all_up=running)
        if running != self.running:
            self.running = running
            self._callbacks.on_change()

    def _consider_unread(self) -> None:
        """Request a rebalance, once, if source topics have partitions that no task reads."""
        unread, self._unread = self._unread, self.progress.unread
        if self._unread not in {None, unread}:
            self._membership.ask(self._unread)

    def _purge(self) -> None:
        """Delete committed repartition records, and changelog records of closed windows."""
        if time.monotonic() - self._purged_at < _PURGE_SECONDS:
            return
        try:
            before: dict[TopicPartition, int] = {}
            for task in self.tasks.running():
                offsets = task.position.offsets.items()
                before |= {p: offset for p, offset in offsets if p.topic in self.tasks.internal_topics and offset > 0}
                before |= task.descriptions.kept(task.cuts.before)
            self._membership.purge(before)
        except AuthorizationException:
            raise
        except KafkaException as error:
            # Harmless: a partition may have no leader just now, or a new one that lags behind.
            log.warning("%s: purging internal topics failed, retrying later: %s", self.name, error)
        finally:
            self._purged_at = time.monotonic()
