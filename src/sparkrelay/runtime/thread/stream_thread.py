"""A stream thread: one consumer and its tasks; it serves the group and brings tasks up and down.

Rebalance callbacks run on this thread, inside ``poll``. Micro-batches run beside it on the batch thread, restoring and
standbys on the state updater's thread; a task that leaves has its own batch waited for, and no other.
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

__all__ = ["StreamThread", "ThreadCallbacks"]

log = logging.getLogger(__name__)

#: How long a poll may wait while tasks come up, and when nothing is to be done but serve the group.
_BUSY_SECONDS = 0.01
_IDLE_SECONDS = 0.1
_PURGE_SECONDS = 30.0
_LOOK_SECONDS = 0.5
#: A broker that is back is noticed within this.
_SHORTEST_BACKOFF = 0.1
_LONGEST_BACKOFF = 5.0
#: One may have been under way when we were fenced; the one after it says how things stand since.
_HEARTBEATS_AFTER_FENCE = 2


@dataclass(frozen=True, slots=True)
class ThreadCallbacks:
    """What a stream thread calls, on itself.

    Attributes:
        on_change: its state has changed, or it has ended.
        on_failure: it dies of this; decides on what becomes of its place.
        on_unclosed: what it leaves behind could not be closed; decides likewise.
        on_replace: it has ended, and another is to take its place.
    """

    on_change: Callable[[], None]
    on_failure: Callable[[StreamThread, Exception], StreamThreadExceptionResponse]
    on_unclosed: Callable[[StreamThread, Exception], StreamThreadExceptionResponse]
    on_replace: Callable[[StreamThread], None]


class StreamThread:
    """Drives one member of the group. Everything it does happens on its own thread; others ask."""

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
        """Prepare the thread.

        Args:
            number: its own among the threads of its process, from 0.
            name: the thread's.
            config: the process's settings.
            membership: its member of the group.
            tasks: its tasks.
            in_service: what it shares with ``batches``.
            batches: runs its micro-batches.
            progress: what it reports.
            callbacks: whom it calls.
            stopping: its own, and nobody else's; set once it is to end.
            open_transactions: opens those of its micro-batches: what a former thread of its name left is aborted. May
                raise KafkaException, and is called again then.
            global_tables: those of the process, if there are some.
            beside: True if other threads of the process run the tasks by now.
        """
        self.number = number
        self.name = name
        self._config = config
        self._membership = membership
        #: The tasks of this thread; others may look, not touch.
        self.tasks = tasks
        self._in_service = in_service
        self._batches = batches
        self._progress = progress
        self._callbacks = callbacks
        self._global_tables = global_tables
        self._beside = beside
        self._stopping = stopping
        self._open_transactions = open_transactions
        #: True once it is to leave its process for good, which may go on without it.
        self.removed = False
        self._serving = True
        #: Set by others, who know that somebody is gone before the group does.
        self._rebalance_expected = threading.Event()
        #: Heartbeats that must have been answered before tasks are initialized again, since one of ours was fenced.
        self._awaited_heartbeats: int | None = None
        self._purged_at = time.monotonic()
        #: What was not read at the last look.
        self._unread: str | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.running = False
        self._ended = False

    def start(self) -> None:
        """Start the thread; it joins the group."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to finish its batch, hand its tasks over and leave the group; returns at once."""
        self._stopping.set()
        self._membership.wakeup()
        if self._serving:
            # The broker may not answer for a while, and need not. Past that, the member has to leave its group.
            self._membership.interrupt()

    def remove(self) -> None:
        """As :meth:`stop`, and nobody takes its place: a static member leaves the group, too."""
        self.removed = True
        self.stop()

    def wait(self, timeout: float | None) -> bool:
        """Wait until the thread has ended and everybody knows; return False if that takes longer than seconds given."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            # Again and again: a signal that comes right before the main thread falls asleep does not wake it.
            self._thread.join(min(left, _LOOK_SECONDS))
        return not self._thread.is_alive()

    def pause(self) -> None:
        """Begin no further micro-batch; what is restored goes on."""
        self._in_service.pause()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._in_service.resume()

    def expect_rebalance(self) -> None:
        """Notify the member that a rebalance is about to begin; returns at once."""
        self._rebalance_expected.set()
        self._membership.wakeup()

    def discard(self) -> None:
        """Release what a thread holds that is never going to be started."""
        self._membership.close()
        self._ended = True

    @property
    def started(self) -> bool:
        """True once the thread runs or has run."""
        return self._thread.ident is not None

    @property
    def progress(self) -> ThreadProgress:
        """What the thread has reported."""
        return self._progress

    @property
    def member_id(self) -> str:
        """The name that the broker gave its group member; empty before it has joined."""
        return self._membership.member_id

    @property
    def hosts(self) -> GroupHosts:
        """Where the group's tasks can be queried, by the newest assignment."""
        return self._membership.hosts

    @property
    def notice(self) -> Notice:
        """What the leader said of the newest rebalance."""
        return self._membership.notice

    @property
    def state(self) -> str:
        """What the thread does, in the words of Kafka Streams. Any thread may ask."""
        if self._ended:
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
        """True in callbacks: on the thread itself, and on those that work for it, whose names begin with its own."""
        return f"{threading.current_thread().name}-".startswith(f"{self.name}-")

    @property
    def ended(self) -> bool:
        """True once the thread has ended and has left its group."""
        return self._ended

    def _run(self) -> None:
        failure = self._attempt(self._serve, "stream thread dies")
        self._serving = False
        response = None if failure is None else self._callbacks.on_failure(self, failure)
        if isinstance(failure, ExecutorLost):
            # Nothing runs there any more, and the tasks' next owners fence what was begun: they need not wait for us.
            self.tasks.drop()
            self._leave()
        close = functools.partial(self.tasks.close, clean=failure is None, batches=self._batches)
        unclosed = self._attempt(close, "closing tasks failed")
        if unclosed is not None:
            # A batch of ours may go on: nobody may take our place beside it.
            response = self._callbacks.on_unclosed(self, unclosed)
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._attempt(self._membership.ask_all_to_end, "asking the application to end failed")
        self._leave()
        if response is StreamThreadExceptionResponse.REPLACE_THREAD:
            # Its successor may take a while.
            self.running = False
            self._callbacks.on_change()
            self._callbacks.on_replace(self)
        self._progress.end()
        self._ended = True
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
            # It says what there is to say; where it was raised is for developers. What others raised is not ours.
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
        # A member is given tasks at once, of others too if it has their state: they would wait for our Python workers.
        # Where there are no others, nobody runs the tasks meanwhile, and joining need not wait for what they wait for.
        if not (self._batches.wait_prewarmed(0.0) or (not self._beside and self._membership.nobody_else())):
            while not (self._batches.wait_prewarmed(_IDLE_SECONDS) or self._stopping.is_set()):
                pass
        self._batches.check()
        self.tasks.require_target()
        # Every task may look into them at once.
        while self._global_tables is not None and not (
            self._global_tables.wait_complete(_IDLE_SECONDS) or self._stopping.is_set()
        ):
            pass
        self._membership.start(self.tasks)
        while not self._stopping.is_set():
            self._retrying(self._turn)

    def _turn(self) -> None:
        """Serve the group once and bring tasks up."""
        # Looked at first: what a heartbeat brought is acted on in the poll.
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
            self._progress.has(self.tasks.active)
        self._purge()
        self.tasks.clean_up()

    def _retrying(self, do: Callable[[], None]) -> None:
        """Do something that brokers must answer for; where they do not just now, again and again until it is done."""
        backoff = Backoff(_SHORTEST_BACKOFF, _LONGEST_BACKOFF, jitter=0)
        while not self._stopping.is_set():
            try:
                do()
            except WakeupException:
                return  # stop() calls: the broker may not answer for a while, and need not
            except KafkaException as error:
                if not error.retriable:
                    raise
                pause = backoff.next()
                log.warning("%s: %s; trying again in %.1f s", self.name, error, pause)
                self._progress.trouble(str(error))
                self._report_state()
                self._stopping.wait(pause)
                continue
            return

    def _is_member(self) -> bool:
        """Return whether we may initialize tasks: once fenced, not before a heartbeat sent since then was answered.

        Who is no member any more, and initialized its tasks again at once, would fence their new owner.
        """
        if self._awaited_heartbeats is not None and self._membership.heartbeats >= self._awaited_heartbeats:
            self._awaited_heartbeats = None
        return self._awaited_heartbeats is None

    def _reinitialize(self) -> bool:
        """Have tasks initialized again that fell out of service; return True if one of them was fenced."""
        fenced = False
        for task, reason in self._in_service.take_fallen_out():
            self.tasks.reinitialize(task, reason)
            # Also where the broker was silent: this member may have been fenced meanwhile.
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
        """Ask for a rebalance, once, where source topics have partitions that nobody has been given."""
        unread, self._unread = self._unread, self._progress.unread
        if self._unread not in {None, unread}:
            self._membership.ask(self._unread)

    def _purge(self) -> None:
        """Delete repartition records that are committed, and changelog records of windows that are over."""
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
            # Nothing stands still for it: a partition may have no leader just now, or a new one that lags behind.
            log.warning(
                "%s: records of internal topics that nobody needs any more are still there: %s", self.name, error
            )
        finally:
            self._purged_at = time.monotonic()
