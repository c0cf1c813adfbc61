"""What an instance has done lately, in the words of Spark's own StreamingQuery progress."""

from __future__ import annotations

import datetime as dt
import threading
import time
import uuid
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sparkrelay.runtime.batch import BatchOutcome, Ranges
    from sparkrelay.runtime.task import Task
    from sparkrelay.types import TaskId, TopicPartition

__all__ = ["ProgressLog"]

_KEPT = 100


class ProgressLog:
    """Keeps the last progress reports. Stream threads write it, any thread reads it."""

    def __init__(self, application_id: str) -> None:
        self._id = application_id
        self._run_id = str(uuid.uuid4())
        self._lock = threading.Lock()
        self._recent: deque[dict[str, Any]] = deque(maxlen=_KEPT)
        self._batches = 0
        self._finished_at = time.monotonic()
        self._lags: dict[str, int] = {}
        #: What hindered the last look at the inputs, and the last batch.
        self._hindered: str | None = None
        self._failing: str | None = None

    @property
    def last(self) -> dict[str, Any] | None:
        """Return the newest report, or None before the first batch."""
        with self._lock:
            return self._recent[-1] if self._recent else None

    @property
    def recent(self) -> list[dict[str, Any]]:
        """Return the newest reports, oldest first."""
        with self._lock:
            return list(self._recent)

    @property
    def status(self) -> str | None:
        """Return what hinders the instance right now, or None."""
        with self._lock:
            return self._hindered or self._failing

    @property
    def input_lags(self) -> dict[str, int]:
        """Return records not yet processed, by input partition."""
        with self._lock:
            return dict(self._lags)

    def lags(self, tasks: Sequence[Task], ends: Mapping[TopicPartition, int]) -> None:
        """Note how far the running tasks are behind."""
        with self._lock:
            self._hindered = None
            self._lags = {
                str(p): max(0, ends.get(p, 0) - offset) for task in tasks for p, offset in task.positions.items()
            }

    def trouble(self, message: str) -> None:
        """Note that work is hindered, until the next successful look at the inputs."""
        with self._lock:
            self._hindered = message

    def batch(
        self, work: Mapping[TaskId, tuple[Task, Ranges]], outcome: BatchOutcome, *, listed_seconds: float
    ) -> None:
        """Add a micro-batch."""
        now = time.monotonic()
        seconds = listed_seconds + outcome.seconds.get("total", 0.0)
        started = dt.datetime.now(dt.UTC) - dt.timedelta(seconds=seconds)
        rows = sum(end - start for _, ranges in work.values() for start, end in ranges.values())
        with self._lock:
            elapsed = max(now - self._finished_at, 1e-6)
            self._finished_at = now
            report = {
                "id": self._id,
                "runId": self._run_id,
                "name": self._id,
                "timestamp": started.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "batchId": self._batches,
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
                "sources": _sources(work),
                "sink": {"numOutputRows": sum(report.rows_out for report in outcome.reports)},
                "tasks": {
                    "committed": sorted(map(str, outcome.committed)),
                    "again": {str(task): str(reason) for task, reason in outcome.again.items()},
                    "reopened": {str(task): str(reason) for task, reason in outcome.reopen.items()},
                },
            }
            self._batches += 1
            self._recent.append(report)
            reason = next(iter({**outcome.reopen, **outcome.again}.items()), None)
            self._failing = None if reason is None else f"task {reason[0]}: {reason[1]}"


def _state_operators(outcome: BatchOutcome) -> list[dict[str, Any]]:
    legs: dict[str, dict[str, Any]] = {}
    for report in outcome.reports:
        if "state" in report.seconds:
            leg = legs.setdefault(report.leg, {"operatorName": report.leg, "numRowsUpdated": 0, "allUpdatesTimeMs": 0})
            leg["numRowsUpdated"] += report.keys_changed
            leg["allUpdatesTimeMs"] += round(report.seconds["state"] * 1000)
    return list(legs.values())


def _sources(work: Mapping[TaskId, tuple[Task, Ranges]]) -> list[dict[str, Any]]:
    topics: dict[str, dict[str, Any]] = {}
    for _, ranges in work.values():
        for partition, (start, end) in ranges.items():
            source = topics.setdefault(
                partition.topic,
                {"description": f"Kafka[{partition.topic}]", "startOffset": {}, "endOffset": {}, "numInputRows": 0},
            )
            source["startOffset"][str(partition.partition)] = start
            source["endOffset"][str(partition.partition)] = end
            source["numInputRows"] += end - start
    return list(topics.values())
