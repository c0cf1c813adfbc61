"""Recent progress of an instance, in the format of Spark's StreamingQuery progress.

There is a report for each micro-batch and, while none runs, now and then during restores. Keys are Spark's; additions
are under ``sparkrelay``.
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import uuid
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from sparkrelay.observe.counters import Counters
from sparkrelay.runtime.tasks.ranges import count_records

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sparkrelay.runtime.batch.micro_batch import BatchOutcome
    from sparkrelay.runtime.tasks.restore_progress import RestoreProgress
    from sparkrelay.runtime.tasks.task import Task, Work
    from sparkrelay.types import TaskId, TopicPartition

_KEPT: Final = 100
#: Least time before a report without a batch: while tasks restore, and for standbys (as for Spark's idle queries).
_RESTORING_REPORT_S: Final = 1.0
_STANDBY_REPORT_S: Final = 10.0


class ThreadProgress:
    """What one stream thread, with its helper threads, reports. Thread-safe."""

    def __init__(self, log: ProgressLog) -> None:
        self._log = log
        self.counters = log.counters
        #: Returns the copies being restored.
        self.copies: Callable[[], Mapping[TaskId, RestoreProgress]] = dict
        #: Both are replaced as a whole, never changed.
        self.ends: Mapping[TopicPartition, int] = {}
        self.lags_now: Mapping[TopicPartition, int] = {}
        #: The error of the last check of the inputs, and of the last batch.
        self.hindered: str | None = None
        self.failing: str | None = None
        self._failing_task: TaskId | None = None
        #: New partitions of source topics that nobody reads yet, in words.
        self.unread: str | None = None
        #: True once a batch was committed.
        self.committed = False

    def lags(self, tasks: Sequence[Task], ends: Mapping[TopicPartition, int], *, these_alone: bool = True) -> None:
        """Record the lags of running tasks with known ends; others keep theirs unless ``these_alone``."""
        self.hindered = None
        positions = {p: task.position.offsets.get(p, 0) for task in tasks for p in task.inputs if p in ends}
        behind = {p: max(0, ends[p] - offset) for p, offset in positions.items()}
        self.ends = {**({} if these_alone else self.ends), **{p: ends[p] for p in positions}}
        self.lags_now = {**({} if these_alone else self.lags_now), **behind}

    def has(self, tasks: Collection[TaskId]) -> None:
        """Record the thread's tasks, and forget troubles of others: nobody would clear them."""
        if self._failing_task not in tasks:
            self.failing = self._failing_task = None
        if not tasks:
            self.hindered = self.unread = None
            self.ends, self.lags_now = {}, {}

    def trouble(self, message: str) -> None:
        """Record that the broker does not answer, until the inputs are checked successfully."""
        self.hindered = message
        self.counters.error("broker")

    def restored(self, copies: Sequence[RestoreProgress], records: int) -> None:
        """Record a restore slice that applied that many records."""
        self.counters.restored(records)
        self._log.restored(copies)

    def set_aside(self) -> None:
        """Count an unusable state of a task."""
        self.counters.error("state")

    def end(self) -> None:
        """Record that the thread has ended, and has no lag."""
        self._log.forget(self)

    def batch(self, work: Work, outcome: BatchOutcome, *, listed_seconds: float) -> None:
        """Add a micro-batch."""
        reason = next(iter({**outcome.reinitialize, **outcome.again}.items()), None)
        self.committed = self.committed or bool(outcome.committed)
        self._failing_task = None if reason is None else reason[0]
        self.failing = None if reason is None else f"task {reason[0]}: {reason[1]}"
        records: Counter[str] = Counter()
        left: dict[TopicPartition, int] = {}
        for id_ in outcome.committed:
            for partition, (start, end) in work[id_][1].items():
                records[partition.topic] += end - start
                left[partition] = max(0, self.ends.get(partition, end) - end)
        self.lags_now = {**self.lags_now, **left}
        self.counters.batch(
            at=time.time(),
            seconds=listed_seconds + outcome.seconds.get("total", 0.0),
            commit_seconds=outcome.seconds.get("commit"),
            records=records,
            rows_written=sum(report.rows_out for report in outcome.reports if report.task in outcome.committed),
            skipped=_skipped(outcome),
            late=_late(outcome),
            reopened=len(outcome.reinitialize),
            failed=reason is not None,
        )
        self._log.batch(work, outcome, listed_seconds=listed_seconds, ends=self.ends)


class ProgressLog:
    """The latest progress reports of an instance. Thread-safe."""

    def __init__(
        self,
        application_id: str,
        *,
        state: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; ``state`` returns the instance's state, ``clock`` counts seconds."""
        self._id = application_id
        self._run_id = str(uuid.uuid4())
        self._state = state
        self._clock = clock
        self.counters = Counters()
        self._lock = threading.Lock()
        self._recent: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._batches = 0
        self._finished_at = self._reported_at = clock()
        self._threads: tuple[ThreadProgress, ...] = ()
        self._watermarks: dict[tuple[str, str], int] = {}

    def thread(self) -> ThreadProgress:
        """Return a new thread's part."""
        with self._lock:
            made = ThreadProgress(self)
            self._threads = (*self._threads, made)
        return made

    def forget(self, thread: ThreadProgress) -> None:
        """Leave a thread out from now on."""
        with self._lock:
            self._threads = tuple(other for other in self._threads if other is not thread)

    @property
    def last(self) -> dict[str, Any] | None:
        """The newest report; None before the first."""
        with self._lock:
            return self._recent[-1] if self._recent else None

    @property
    def recent(self) -> list[dict[str, Any]]:
        """The newest reports, oldest first."""
        with self._lock:
            return list(self._recent)

    @property
    def status(self) -> str | None:
        """The current trouble of the instance, if any."""
        hindrances = [thread.hindered or thread.failing or thread.unread for thread in self._threads]
        return next(filter(None, hindrances), None)

    @property
    def watermarks(self) -> dict[tuple[str, str], int]:
        """The newest watermarks seen here, by task and store, in milliseconds since 1970."""
        with self._lock:
            return dict(self._watermarks)

    @property
    def input_lags(self) -> dict[str, int]:
        """Unprocessed records by input partition."""
        return {str(partition): lag for thread in self._threads for partition, lag in thread.lags_now.items()}

    def restored(self, copies: Sequence[RestoreProgress]) -> None:
        """Add a report without a batch, if the last one is old; for threads only."""
        least = _RESTORING_REPORT_S if any(copy.restoring for copy in copies) else _STANDBY_REPORT_S
        ours = self._ours(None)
        with self._lock:
            now = self._clock()
            if not copies or now - self._reported_at < least:
                return
            self._reported_at = now
            report = {
                # No batch: the number is that of the last one, or -1.
                **self._without_rows(dt.datetime.now(dt.UTC), self._batches - 1),
                "sparkrelay": ours,
            }
            self._recent.append(report)

    def batch(
        self, work: Work, outcome: BatchOutcome, *, listed_seconds: float, ends: Mapping[TopicPartition, int]
    ) -> None:
        """Add a micro-batch; for threads only."""
        seconds = listed_seconds + outcome.seconds.get("total", 0.0)
        started = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
        rows = sum(count_records(ranges) for _, ranges in work.values())
        ours = self._ours(outcome)
        with self._lock:
            now = self._reported_at = self._clock()
            elapsed = max(now - self._finished_at, 1e-6)
            self._finished_at = now
            report = {
                **self._without_rows(started, self._batches),
                "numInputRows": rows,
                "inputRowsPerSecond": rows / elapsed,
                "processedRowsPerSecond": rows / max(outcome.seconds.get("total", 0.0), 1e-6),
                "durationMs": {
                    "latestOffset": round(listed_seconds * 1000),
                    "addBatch": round(outcome.seconds.get("job", 0.0) * 1000),
                    "commitOffsets": round(outcome.seconds.get("commit", 0.0) * 1000),
                    "triggerExecution": round(seconds * 1000),
                },
                "stateOperators": _state_operators(outcome),
                "sources": _sources(work, ends, _skipped(outcome)),
                "sink": {"numOutputRows": sum(report.rows_out for report in outcome.reports)},
                "sparkrelay": ours,
            }
            self._batches += 1
            self._recent.append(report)
            for leg in outcome.reports:
                if leg.state is not None and leg.state.watermark is not None and leg.task in outcome.committed:
                    self._watermarks[str(leg.task), leg.state.store] = leg.state.watermark

    def _without_rows(self, at: dt.datetime, batch: int) -> dict[str, Any]:
        return {
            "id": self._id,
            "runId": self._run_id,
            "name": self._id,
            "timestamp": _text(at),
            "batchId": batch,
            "numInputRows": 0,
            "inputRowsPerSecond": 0.0,
            "processedRowsPerSecond": 0.0,
            "durationMs": {},
            "stateOperators": [],
            "sources": [],
            "sink": {"numOutputRows": 0},
        }

    def _ours(self, outcome: BatchOutcome | None) -> dict[str, Any]:
        copies = [copy for thread in self._threads for copy in thread.copies().values()]
        tasks = None
        if outcome is not None:
            tasks = {
                "committed": sorted(map(str, outcome.committed)),
                "again": {str(task): str(reason) for task, reason in outcome.again.items()},
                "reopened": {str(task): str(reason) for task, reason in outcome.reinitialize.items()},
            }
        return {
            "state": self._state(),
            "rebalances": self.counters.totals().rebalances.count,
            "resident": outcome is not None and outcome.resident,
            "tasks": tasks,
            "restoring": {
                str(copy.task): {"remaining": copy.lag, "share": copy.share, "since": _time(copy.began_at)}
                for copy in copies
                if copy.restoring
            },
            "standby": {
                str(copy.task): {"lag": copy.lag, "since": _time(copy.began_at)}
                for copy in copies
                if not copy.restoring
            },
        }


def _time(seconds: float) -> str:
    return _text(dt.datetime.fromtimestamp(seconds, dt.UTC))


def _text(at: dt.datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _state_operators(outcome: BatchOutcome) -> list[dict[str, Any]]:
    legs: dict[str, dict[str, Any]] = {}
    for report in outcome.reports:
        if report.state is not None:
            counts = {"numRowsUpdated": 0, "numRowsDroppedByWatermark": 0, "allUpdatesTimeMs": 0}
            leg = legs.setdefault(report.leg, {"operatorName": report.leg, **counts})
            leg["numRowsUpdated"] += report.state.keys_changed
            leg["numRowsDroppedByWatermark"] += report.state.rows_late
            leg["allUpdatesTimeMs"] += round(report.seconds.get("state", 0.0) * 1000)
    return list(legs.values())


def _skipped(outcome: BatchOutcome) -> dict[str, int]:
    """Return the skipped records of committed tasks, by topic."""
    found: Counter[str] = Counter()
    for report in outcome.reports:
        if report.task in outcome.committed:
            found.update(report.skipped)
    return found


def _late(outcome: BatchOutcome) -> dict[str, int]:
    """Return the late rows dropped by committed tasks, by store; 0 for a store that dropped none."""
    found: Counter[str] = Counter()
    for report in outcome.reports:
        if report.state is not None and report.task in outcome.committed:
            found[report.state.store] += report.state.rows_late
    return found


def _sources(work: Work, ends: Mapping[TopicPartition, int], skipped: Mapping[str, int]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for _, ranges in work.values():
        for partition, (start, end) in ranges.items():
            source = topics.setdefault(
                partition.topic,
                {
                    "description": f"Kafka[{partition.topic}]",
                    "startOffset": {},
                    "endOffset": {},
                    "latestOffset": {},
                    "numInputRows": 0,
                    "numRecordsSkipped": skipped.get(partition.topic, 0),
                },
            )
            source["startOffset"][str(partition.partition)] = start
            source["endOffset"][str(partition.partition)] = end
            source["latestOffset"][str(partition.partition)] = ends.get(partition, end)
            source["numInputRows"] += end - start
    return list(topics.values())
