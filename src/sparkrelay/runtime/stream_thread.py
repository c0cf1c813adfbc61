"""A stream thread: one consumer, one process; poll, run a micro-batch, commit, and so on.

It waits only for its own process. Rebalance callbacks run on this thread, inside ``poll``, so no micro-batch is ever
under way while tasks change hands. Restoring and standbys run beside it on the replay thread.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from sparkrelay.errors import KafkaException, ProducerFencedException, UnknownTopicException, WakeupException
from sparkrelay.runtime.task import plan_ranges, require_inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch import BatchRunner, Ranges
    from sparkrelay.runtime.membership import Membership
    from sparkrelay.runtime.plans import Plans
    from sparkrelay.runtime.progress import ProgressLog
    from sparkrelay.runtime.task import Task
    from sparkrelay.runtime.task_set import TaskSet
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["StreamThread"]

log = logging.getLogger(__name__)

#: First pause after a look found nothing; it doubles up to poll.ms: a trickle has low latency, idling is cheap.
_SHORTEST_PAUSE = 0.002
_SHORTEST_PATIENCE = 5.0
_PURGE_SECONDS = 30.0
_SHORTEST_RETRY = 0.5
_LONGEST_BACKOFF = 5.0


class StreamThread:
    """Drives one process. Everything it does happens on its own thread, but for :meth:`stop`."""

    def __init__(
        self,
        *,
        name: str,
        config: StreamsConfig,
        membership: Membership,
        tasks: TaskSet,
        batches: BatchRunner,
        plans: Plans,
        progress: ProgressLog,
        on_change: Callable[[StreamThread], None],
        on_failure: Callable[[StreamThread, Exception], None],
    ) -> None:
        self.name = name
        self._config = config
        self._membership = membership
        #: The tasks of this thread; others may look, not touch.
        self.tasks = tasks
        self._batches = batches
        self._plans = plans
        self._progress = progress
        self._on_change = on_change
        self._on_failure = on_failure
        self._stopping = threading.Event()
        self._fenced = False
        self._pause = _SHORTEST_PAUSE
        #: Seconds to wait for the inputs' ends: short, so that a silent broker is soon told of, longer for a slow one.
        self._patience = self._shortest_patience = min(_SHORTEST_PATIENCE, config.default_api_timeout_ms / 1000)
        #: When the next micro-batch may start.
        self._batch_due = 0.0
        self._purged_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.settled = False
        self._ended = False

    def start(self) -> None:
        """Start the thread; it joins the group."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to finish its batch, hand its tasks over and leave the group; returns at once."""
        self._stopping.set()
        self._membership.wakeup()

    def discard(self) -> None:
        """Release what a thread holds that is never going to be started."""
        self._membership.close()

    @property
    def is_current(self) -> bool:
        """True on the thread itself, that is, in callbacks."""
        return threading.current_thread() is self._thread

    @property
    def ended(self) -> bool:
        """True once the thread has done everything, its farewell included."""
        return self._ended

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            self.tasks.start()
            self._membership.start(self.tasks)
            while not self._stopping.is_set():
                self._turn()
        except Exception as error:
            log.exception("%s: stream thread dies", self.name)
            failure = error
        try:
            self.tasks.close(clean=failure is None)
        except Exception as error:  # noqa: BLE001 - leaving the group comes first
            log.warning("%s: closing tasks failed: %s", self.name, error)
            failure = failure or error
        try:
            self._membership.close()
        except Exception as error:  # noqa: BLE001
            log.warning("%s: leaving the group failed: %s", self.name, error)
        if failure is not None:
            self._on_failure(self, failure)
        self._ended = True
        self._on_change(self)

    def _turn(self) -> None:
        """Do one round: serve the group, bring tasks up, run a batch if there is input."""
        backoff = 0.1
        while not self._stopping.is_set():
            try:
                self._membership.poll(self._pause)
                self.tasks.bring_up()
                self._report_state()
                worked = self._run_batch()
                self._membership.consider_follow_up(self.tasks)
                self._purge()
            except WakeupException:
                return  # stop() calls: the broker may not answer for a while, and need not
            except KafkaException as error:
                if not error.retriable:
                    raise
                log.warning("%s: %s; trying again in %.1f s", self.name, error, backoff)
                self._progress.trouble(str(error))
                self._patience = min(self._patience * 2, self._config.default_api_timeout_ms / 1000)
                self._stopping.wait(backoff)
                backoff = min(backoff * 2, _LONGEST_BACKOFF)
                continue
            self._pause = self._next_pause(worked)
            return

    def _next_pause(self, worked: bool) -> float:
        rest = self._batch_due - time.monotonic()
        if worked:
            return max(self._fenced_pause(), self._failed_pause(), rest, 0.0)
        if rest > 0.0:
            return rest
        return min(max(self._pause * 2, _SHORTEST_PAUSE), self._config.poll_ms / 1000)

    def _failed_pause(self) -> float:
        """Return how long to wait before a failed batch runs again: new Python workers, say, take a while to start."""
        tries = self._tries()
        return min(_SHORTEST_RETRY * 2 ** min(tries - 1, 10), _LONGEST_BACKOFF) if tries else 0.0

    def _tries(self) -> int:
        """Return how often the batch that is to run again was tried."""
        return max((task.tries for task in self.tasks.running() if task.unfinished), default=0)

    def _fenced_pause(self) -> float:
        """Return how long the next poll may take: after being fenced, until a heartbeat tells if we are still a member.

        Who is not, and opened its tasks again at once, would fence their new owner.
        """
        fenced, self._fenced = self._fenced, False
        return 1.5 * self._config.heartbeat_interval_ms / 1000 if fenced else 0.0

    def _report_state(self) -> None:
        settled = self._membership.stable and self.tasks.all_up
        if settled != self.settled:
            self.settled = settled
            self._on_change(self)

    def _run_batch(self) -> bool:
        running = self.tasks.running()
        if not running or time.monotonic() < self._batch_due:
            return False
        started = time.perf_counter()
        work = self._choose(running)
        if not work:
            return False
        listed = time.perf_counter() - started
        self._batch_due = time.monotonic() + self._config.commit_interval_ms / 1000
        outcome = self._batches.run(self._plans, work, self.tasks.sink_partitions)
        for id_, reason in outcome.reopen.items():
            self.tasks.reopen(id_, reason)
            self._fenced = self._fenced or isinstance(reason, ProducerFencedException)
        self._progress.batch(work, outcome, listed_seconds=listed)
        if outcome.again:
            self._look_again()
        return True

    def _look_again(self) -> None:
        """See whether a batch failed because a topic is gone, or has fewer partitions than it had."""
        try:
            self.tasks.look_again()
        except UnknownTopicException as error:
            # A broker that has just come back may not know its topics for a moment.
            if self._tries() > self._config.max_batch_retries:
                raise
            log.warning("%s: %s", self.name, error)

    def _choose(self, running: list[Task]) -> dict[TaskId, tuple[Task, Ranges]]:
        """Decide each task's ranges: an unfinished batch runs again as it was, else what is new."""
        wanted: list[TopicPartition] = []
        for task in running:
            wanted += task.inputs
            wanted += task.changelogs.values()
        ends = self._membership.end_offsets(wanted, timeout=self._patience)
        self._patience = self._shortest_patience
        require_inputs(running, ends)
        work: dict[TaskId, tuple[Task, Ranges]] = {}
        for task in running:
            # We are the only writer of the changelog: once our transactions have ended, its end is where we stand.
            task.changelog_next.update(
                {p: max(ends[p], task.changelog_next.get(p, 0)) for p in task.changelogs.values()}
            )
            ranges = task.unfinished or plan_ranges(task.positions, ends, self._config.max_batch_records)
            if ranges:
                work[task.id] = task, ranges
        self._progress.lags(running, ends)
        return work

    def _purge(self) -> None:
        """Delete repartition records that are committed: they never expire by time."""
        now = time.monotonic()
        if now - self._purged_at < _PURGE_SECONDS:
            return
        self._purged_at = now
        self._membership.purge(
            {
                partition: offset
                for task in self.tasks.running()
                for partition, offset in task.positions.items()
                if partition.topic in self.tasks.internal_topics and offset > 0
            }
        )
