"""What advances the event and processing time of a task: its input, silence, tasks upstream, and timers. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkrelay.runtime.tasks.due_times import DueTimes
from sparkrelay.runtime.tasks.event_times import EventTimeLimits
from sparkrelay.runtime.tasks.idle_topics import IdleTopics
from sparkrelay.runtime.tasks.idle_watermarks import IdleWatermarks

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from sparkrelay.runtime.contract.commands import StateReport
    from sparkrelay.runtime.tasks.batch_attempt import BatchAttempt
    from sparkrelay.runtime.tasks.ranges import Ranges
    from sparkrelay.runtime.topics.layout import TaskShape
    from sparkrelay.types import TopicPartition


class TaskTimes:
    """Tracked for one owner of a task: a new owner starts from scratch."""

    def __init__(
        self,
        shape: TaskShape,
        watermark_idle_seconds: float,
        task_idle_seconds: Mapping[str, float],
        *,
        unlogged: bool,
    ) -> None:
        # Batches without records take no offsets. A store without changelog is only checked against offsets when it is
        # taken over, so they could not show whether such a batch was committed.
        self._may_be_empty = not unlogged
        if unlogged:
            watermark_idle_seconds = 0.0
        elif shape.merged and watermark_idle_seconds:
            # While a topic holds a watermark back, the clock must not advance it.
            watermark_idle_seconds = max(watermark_idle_seconds, *task_idle_seconds.values())
        self._timed_topics = shape.timed_topics
        self.idle_watermarks = IdleWatermarks(watermark_idle_seconds, shape.cut)
        self.idle_topics = IdleTopics(task_idle_seconds, shape.merged)
        self.due_times = DueTimes(shape.clocked)
        self.event_time_limits = EventTimeLimits()

    @property
    def depend_on_silence(self) -> bool:
        """True if watermarks may advance without input."""
        return self.idle_watermarks.counts or self.idle_topics.counts

    def inputs_unknown(self, now: float) -> None:
        """Record that the inputs could not be checked: they are not silent."""
        self.idle_watermarks.had_input(now)
        self.idle_topics.inputs_unknown(now)

    def retried(self, attempt: BatchAttempt, now: float, clock_ms: int) -> None:
        """Record that an unfinished batch runs again."""
        # One begun by a former owner has no times yet.
        attempt.looked_at = attempt.looked_at or now
        if attempt.now_ms is None:
            attempt.now_ms = clock_ms
        if not attempt.silence_ms:
            self.idle_watermarks.had_input(now)

    def chosen(  # noqa: PLR0917 - all of a batch
        self,
        attempt: BatchAttempt,
        positions: Mapping[TopicPartition, int],
        ranges: Ranges,
        behind: Collection[str],
        now: float,
        clock_ms: int,
    ) -> Ranges:
        """Set the times of a new batch; return its ranges with the empty ones that advance time.

        Empty ranges close the windows of idle inputs, end the hold of an idle topic, or run a due timer. ``behind`` are
        the topics with more records than ``ranges``.
        """
        attempt.silence_ms, attempt.now_ms = 0, clock_ms
        attempt.limit(self.event_time_limits, positions, ranges)
        unread = self.event_time_limits.unread_since
        attempt.awaited = self.idle_topics.look(behind, now, unread)
        attempt.looked_at = now
        timed = self._timed_topics
        if any(partition.topic in timed for partition in ranges):
            self.idle_watermarks.had_input(now)
        elif timed and (silence_ms := self.idle_watermarks.due(now, unread.values())):
            attempt.silence_ms = silence_ms
            ranges |= {p: (offset, offset) for p, offset in positions.items() if p.topic in timed}
        topics = (
            self.idle_topics.due(attempt.awaited)
            | self.event_time_limits.due(attempt.limits)
            | self.due_times.due(clock_ms)
        )
        if topics and self._may_be_empty:
            ranges = {p: (offset, offset) for p, offset in positions.items() if p.topic in topics} | ranges
        return ranges

    def committed(
        self, states: Sequence[StateReport], attempt: BatchAttempt, positions: Mapping[TopicPartition, int]
    ) -> None:
        """Update from a committed batch; ``positions`` are the task's offsets after it."""
        self.idle_watermarks.committed(states)
        self.idle_topics.committed(states, attempt.awaited, attempt.looked_at)
        self.due_times.committed(states, attempt.now_ms or 0)
        topics = {partition.topic for partition in attempt.ranges or ()}
        self.event_time_limits.committed(states, attempt.limits, topics, positions)
