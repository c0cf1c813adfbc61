"""The batch thread: checks for input, runs and commits micro-batches, while the stream thread serves the group.

So a long batch never keeps a member from polling, and staying tasks keep working through a rebalance. It owns its
connections, and shares :class:`~sparkrelay.runtime.tasks.in_service.InService` with the stream thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

from sparkrelay.client.admin import EARLIEST
from sparkrelay.client.backoff import Backoff
from sparkrelay.errors import (
    KafkaException,
    OffsetOutOfRangeException,
    SparkRelayError,
    StreamsException,
    TimeoutException,
    UnknownTopicException,
    WakeupException,
)
from sparkrelay.runtime.batch.batch_limit import BatchLimit
from sparkrelay.runtime.batch.looks import Looks
from sparkrelay.runtime.batch.upstream import Upstream
from sparkrelay.runtime.tasks.deleted_records import deleted_records
from sparkrelay.runtime.tasks.ranges import require_inputs
from sparkrelay.runtime.tasks.replaced_topics import replaced_topic
from sparkrelay.runtime.topics.retention import RetentionWatch
from sparkrelay.runtime.topics.topic_names import TopicNames
from sparkrelay.state.header import replaced_topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.config import StreamsConfig
    from sparkrelay.runtime.batch.batch_runner import BatchRunner
    from sparkrelay.runtime.batch.micro_batch import BatchOutcome
    from sparkrelay.runtime.batch.progress import ThreadProgress
    from sparkrelay.runtime.compile.prepared_legs import PreparedLegs
    from sparkrelay.runtime.tasks.in_service import InService
    from sparkrelay.runtime.tasks.task import Task, Work
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.types import TaskId, TopicPartition

log = logging.getLogger(__name__)

#: First pause after brokers reported input that was not found; it doubles up to the longest.
_SHORTEST_PAUSE = 0.002
_LONGEST_PAUSE = 0.1
_SHORTEST_WAIT = 5.0
#: New partitions of source topics are noticed within this.
_SOURCES_SECONDS = 5.0
#: Pauses before a failed micro-batch runs again; they double.
_SHORTEST_RETRY = 0.5
_LONGEST_RETRY = 5.0
#: An expensive micro-batch, such as the first one, delays the next one no longer.
_LONGEST_SPACING = 0.1
#: Everything but micro-batches can be interrupted.
_LONGEST_LEAVE = 60.0


class BatchThread:
    """Runs the micro-batches of one stream thread's tasks."""

    def __init__(
        self,
        *,
        name: str,
        config: StreamsConfig,
        in_service: InService,
        batches: BatchRunner,
        plans: PreparedLegs,
        topics: Topics,
        progress: ThreadProgress,
        prewarm: bool = True,
    ) -> None:
        """Prepare the thread, which owns ``topics`` and may wait on it."""
        self._name = name
        self._config = config
        self._in_service = in_service
        self._batches = batches
        self._failing = batches.failing
        self._plans = plans
        self._topics = topics
        self._progress = progress
        in_service.on_news = topics.wakeup
        self._vain = Backoff(_SHORTEST_PAUSE, _LONGEST_PAUSE, jitter=0)
        #: True if brokers reported input, and no micro-batch has begun since.
        self._woken = False
        self._looks = Looks()
        #: ``InService.news_seen`` at the last reset of the looks.
        self._reset_at = -1
        #: True until a turn finds nothing to do.
        self._ran = True
        self._backoff = Backoff.for_brokers()
        #: Timeout for listing ends: short, to report a silent broker soon; it grows for a slow one.
        self._longest_look = self._shortest_wait = min(_SHORTEST_WAIT, config.default_api_timeout_ms / 1000)
        self._limit = BatchLimit(config.max_batch_records, config.transaction_timeout_ms, config.max_batch_retries)
        self._upstream = Upstream(topics)
        self._retention = RetentionWatch(topics.retention_ms)
        self._sources_due = 0.0
        #: When the next micro-batch may start.
        self._due = 0.0
        #: Consecutive failed batches with a missing topic.
        self._without_topics = 0
        self._failure: Exception | None = None
        self._prewarmed = threading.Event()
        if not prewarm:
            self._prewarmed.set()
        self._thread = threading.Thread(target=self._run, name=f"{name}-batch", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wait_prewarmed(self, seconds: float) -> bool:
        """Wait until the legs ran once without tasks, or cannot; return False on timeout."""
        return self._prewarmed.wait(seconds)

    def ask_to_end(self) -> None:
        """End the thread after its micro-batch; checks for input and the prewarm are interrupted."""
        self._in_service.end()
        self._topics.interrupt()

    def stop(self) -> None:
        """End the thread and wait for it; raise StreamsException if it hangs, as in an uncancellable prewarm."""
        self.ask_to_end()
        if self._thread.ident is None:
            return
        self._thread.join(_LONGEST_LEAVE)
        if self._thread.is_alive():
            raise StreamsException(
                f"{self._thread.name} has not ended within {_LONGEST_LEAVE:g} s, though it runs no micro-batch. "
                "Look in Spark's UI for what its job does"
            )

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            if not self._prewarmed.is_set():
                self._prewarm()
            while not self._in_service.ended:
                self._turn()
        except WakeupException:
            return
        except Exception as error:  # noqa: BLE001 - the stream thread rethrows it
            self._failure = error
        finally:
            self._batches.close()

    def _prewarm(self) -> None:
        try:
            self._batches.prewarm(
                self._plans, over=lambda: self._in_service.ended, wanted=lambda: self._in_service.has_tasks
            )
        except SparkRelayError as error:
            log.debug("%s: the legs could not be prewarmed: %s", self._name, error)
        else:
            log.debug("%s: the legs have run without a task", self._name)
        finally:
            self._prewarmed.set()

    def _turn(self) -> None:
        if self._in_service.idle:
            # The workers hold stores open that others may want to remove.
            self._batches.close()
        tasks = self._in_service.look()
        if not tasks:
            return
        if self._reset_at != self._in_service.news_seen:
            self._reset_at = self._in_service.news_seen
            self._looks.reset(tasks)
        self._looks.asks_writers = bool(self._in_service.writers)
        outcome: BatchOutcome | None = None
        try:
            outcome = self._batch(tasks)
            if outcome is not None and outcome.again:
                self._pass_over_lost(tasks, outcome.again)
                self._look_at_topics(tasks)
            elif outcome is not None:
                self._without_topics = 0
            pause = self._await_input(tasks) if outcome is None else self._next_pause(tasks)
            self._backoff.reset()
        except OffsetOutOfRangeException as error:
            if (lost := self._all_lost(tasks)) is not None:
                raise lost from error
            raise
        except KafkaException as error:
            if not error.retriable:
                raise
            for task in tasks:
                task.times.inputs_unknown(time.monotonic())
            self._looks.invalidate()
            pause = self._wait_for_broker(error)
        finally:
            self._in_service.done({} if outcome is None else outcome.reinitialize)
        self._in_service.rest(pause)

    def _wait_for_broker(self, error: KafkaException) -> float:
        pause = self._backoff.next()
        log.warning("%s: %s; trying again in %.1f s", self._name, error, pause)
        self._progress.trouble(str(error))
        self._longest_look = min(self._longest_look * 2, self._config.default_api_timeout_ms / 1000)
        return pause

    def _next_pause(self, tasks: list[Task]) -> float:
        """Return how long to pause after a micro-batch, in seconds."""
        self._woken = False
        self._vain.reset()
        # While a failing record is searched for, failures are expected.
        tries = 0 if self._failing.searching else _tries(tasks)
        # New Python workers take a while to start.
        retry = Backoff(_SHORTEST_RETRY, _LONGEST_RETRY, jitter=0, failures=tries - 1)
        return max(retry.next() if tries else 0.0, self._due - time.monotonic(), 0.0)

    def _await_input(self, tasks: list[Task]) -> float:
        """Wait until brokers report input; return how long to pause after that. Raises KafkaException."""
        rest = self._due - time.monotonic()
        if rest > 0:
            return rest
        self._batches.rest()
        self._look_at_sources()
        if self._woken:
            # No input was found: a partition's leader is moving, say.
            self._in_service.rest(self._vain.next())
        else:
            self._vain.reset()
        positions = {partition: offset for task in tasks for partition, offset in task.position.offsets.items()}
        seconds = self._looks.next_due_ms / 1000 - time.time()
        news = self._topics.await_records(
            positions,
            timeout=min(self._config.poll_ms / 1000, max(seconds, _SHORTEST_PAUSE)),
            over=lambda: self._in_service.has_news,
        )
        self._woken = bool(news)
        self._looks.on_news(news)
        return 0.0

    def _batch(self, tasks: list[Task]) -> BatchOutcome | None:
        """Run a micro-batch if it is due and there is input."""
        now = time.monotonic()
        if now < self._due or self._looks.seconds_to_wait(now, time.time() * 1000) > 0:
            return None
        started = time.perf_counter()
        work = self._choose(tasks)
        self._ran = bool(work)
        staying = self._in_service.begin(work)
        work = {id_: work[id_] for id_ in work if id_ in staying}
        if not work:
            return None
        listed = time.perf_counter() - started
        begun = time.monotonic()
        outcome = self._batches.run(self._plans, work, self._in_service.sink_partitions, self._sources_of_state(work))
        self._due = begun + max(self._config.commit_interval_ms / 1000, self._spacing(outcome))
        if outcome.again or outcome.reinitialize:
            self._looks.invalidate()
        self._progress.batch(work, outcome, listed_seconds=listed)
        self._limit.note_batch(outcome, work)
        self._retention.note(outcome.reports)
        return outcome

    def _sources_of_state(self, work: Work) -> dict[str, int]:
        """Return the source topics of tasks with state, with their assigned partition counts."""
        known = self._in_service.source_partitions
        read = {p.topic for task, _ in work.values() if task.directory is not None for p in task.inputs}
        return {topic: known[topic] for topic in sorted(read) if topic in known}

    def _spacing(self, outcome: BatchOutcome) -> float:
        """Return for how many seconds a micro-batch may use up this thread's share of a core.

        One with its own Spark job works off a backlog, as fast as possible.
        """
        if not outcome.resident:
            return 0.0
        return min(outcome.cpu_seconds * 100 / self._config.batch_cpu_percent, _LONGEST_SPACING)

    def _all_lost(self, tasks: list[Task]) -> OffsetOutOfRangeException | None:
        """Return the error that names all partitions with deleted next records; workers only name the first."""
        positions = {p: task.position.offsets[p] for task in tasks for p in task.inputs if p in task.position.offsets}
        try:
            first = self._topics.offsets(dict.fromkeys(positions, EARLIEST), timeout=self._longest_look)
        except KafkaException as error:
            log.warning("%s: the first offsets of the inputs are not known: %s", self._name, error)
            return None
        return deleted_records(self._config.application_id, positions, first)

    def _pass_over_lost(self, tasks: list[Task], again: Mapping[TaskId, Exception]) -> None:
        """Move tasks that failed for deleted records to the first ones left; raise if none were deleted."""
        lost = [task for task in tasks if isinstance(again.get(task.id), OffsetOutOfRangeException)]
        if not lost:
            return
        first = self._topics.offsets({p: EARLIEST for task in lost for p in task.inputs}, timeout=self._longest_look)
        passed: Counter[str] = Counter()
        for task in lost:
            for partition in task.inputs:
                at = task.position.offsets[partition]
                if first[partition] <= at:
                    continue
                log.warning(
                    "%s: the records %d to %d were deleted before task %s read them; it continues at %d "
                    "(on.data.loss=continue)",
                    partition,
                    at,
                    first[partition] - 1,
                    task.id,
                    first[partition],
                )
                task.pass_over(partition, first[partition])
                passed[partition.topic] += first[partition] - at
        if not passed:
            raise again[lost[0].id]
        self._progress.counters.lost(passed)

    def _look_at_topics(self, tasks: list[Task]) -> None:
        """Check whether a batch failed because a topic was deleted, replaced, or lost partitions."""
        try:
            self._in_service.sink_partitions = self._topics.layout().sink_partitions
            self._require_same_topics(tasks)
        except UnknownTopicException as error:
            # A restarted broker may not know its topics for a moment.
            self._without_topics += 1
            if self._without_topics > self._config.max_batch_retries:
                raise
            log.warning("%s: %s", self._name, error)
        else:
            self._without_topics = 0

    def _require_same_topics(self, tasks: list[Task]) -> None:
        """Raise StreamsException if a source topic was deleted and created again."""
        ids = self._topics.ids({topic for task in tasks for topic in task.position.topic_ids})
        for task in tasks:
            if replaced := replaced_topics(task.position.topic_ids, ids):
                application, stateful = self._config.application_id, task.directory is not None
                raise replaced_topic(application, task.id, replaced, stateful=stateful)

    def _choose(self, tasks: list[Task]) -> Work:
        """Choose each task's ranges: those of an unfinished batch, or new input."""
        now = time.monotonic()
        reported = self._looks.with_news(now)
        tasks, reported_ends = reported or (tasks, {})
        inputs = [] if reported else [partition for task in tasks for partition in task.inputs]
        # As of now: a task that leaves meanwhile may be initialized again, beyond the ends listed here.
        positions = {task.id: task.position.offsets for task in tasks}
        ends = {**self._list_ends(tasks, positions, inputs), **reported_ends}
        if reported is None:
            self._looks.on_all_checked(now)
        work: Work = {}
        limit = self._failing.limited(self._limit.records)
        clock_ms = int(time.time() * 1000)
        for task in tasks:
            ranges = task.next_ranges(positions[task.id], ends, limit, now, clock_ms)
            if ranges:
                work[task.id] = task, ranges
        work = self._failing.chosen(work)
        self._looks.on_planned(tasks, ends, work)
        self._progress.lags(tasks, ends, these_alone=reported is None)
        self._look_at_sources()
        return work

    def _list_ends(
        self,
        tasks: list[Task],
        positions: Mapping[TaskId, Mapping[TopicPartition, int]],
        inputs: Sequence[TopicPartition],
    ) -> dict[TopicPartition, int]:
        """List the ends of inputs and, where due, of changelogs."""
        wanted = [*inputs, *self._looks.changelogs_due(tasks, time.monotonic())]
        try:
            upstream = self._upstream.ask(
                tasks, self._in_service.writers, news=self._woken or self._ran, timeout=self._longest_look
            )
            ends = self._topics.end_offsets(wanted, timeout=self._longest_look)
            self._upstream.limit(tasks, upstream, timeout=self._longest_look)
        except UnknownTopicException as error:
            # A restarted broker may not know its topics for a moment.
            text = TopicNames(self._config.application_id).explain(error)
            if self._longest_look >= self._config.default_api_timeout_ms / 1000:
                raise UnknownTopicException(text) from error
            raise TimeoutException(text) from error
        self._longest_look = self._shortest_wait
        try:
            require_inputs(self._config.application_id, positions, ends)
        except StreamsException:
            self._require_same_topics(tasks)
            raise
        return ends

    def _look_at_sources(self) -> None:
        """Check now and then whether a source topic has partitions that nobody reads yet."""
        now = time.monotonic()
        if now < self._sources_due:
            return
        self._sources_due = now + _SOURCES_SECONDS
        known = self._in_service.source_partitions
        grown = [
            f"{topic!r} has {count} partitions by now, {known[topic]} of them are read"
            for topic, count in self._topics.source_partitions().items()
            if count > known.get(topic, count)
        ]
        unread = f"source topic {', '.join(grown)}" if grown else None
        if unread is not None and unread != self._progress.unread:
            log.warning(
                "%s: %s; asking for a rebalance. It refuses them if a store or a repartition topic depends on the "
                "number of partitions, and assigns them otherwise",
                self._name,
                unread,
            )
        self._progress.unread = unread


def _tries(tasks: list[Task]) -> int:
    """Return how often the unfinished batch was tried."""
    return max((task.attempt.tries for task in tasks if task.attempt.ranges), default=0)
