"""The micro-batch of a task that is under way, or must run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from sparkrelay.runtime.tasks.batch_notes import BatchIntent
from sparkrelay.runtime.tasks.ranges import plan_ranges, stops_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.contract.commands import LeftOut
    from sparkrelay.runtime.tasks.event_times import EventTimeLimits
    from sparkrelay.types import TopicPartition

__all__ = ["BatchAttempt"]

Ranges = dict["TopicPartition", tuple[int, int]]


@dataclass(slots=True)
class BatchAttempt:
    """The batch that is under way, or must run again.

    Attributes:
        ranges: what it must take again exactly so, or None.
        tries: times it was tried, which says how long to wait before the next try.
        failures: times in a row that a batch failed by something of the task's own that does not pass of itself; kept
            while the task is initialized again, ended by a commit.
        silence_ms: by how much watermarks go on with it, as there is no input; else 0.
        awaited: store -> topics that hold its watermark back though they are read to their end.
        limits: input topic -> the newest event time of its rows that moves watermarks.
        unread: those of these topics of which rows are still to come behind it that were there when it was chosen.
        looked_at: when it was chosen, monotonic seconds.
        behind: input topics that had more than it takes when it began.
        clock_ms: the machine's clock then, milliseconds since 1970, if its rows must be the same in every try; else 0.
        now_ms: what timers and expiries of processing time go by: the clock when it was chosen, ms since 1970.
        left_out: records that it goes on without, by partition and offset.
        describe: changelog topics that are to say with it what their stores hold.
        intended: True if a commit says what it takes, so that every owner of the task runs it alike.
        fixed: True if a function of ``foreachBatch`` may have got its rows: it takes the same records in every try,
            whatever their size.
    """

    ranges: Ranges | None = None
    tries: int = 0
    failures: int = 0
    silence_ms: int = 0
    awaited: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    looked_at: float = 0.0
    behind: frozenset[str] = frozenset()
    clock_ms: int = 0
    now_ms: int | None = None
    left_out: dict[TopicPartition, dict[int, LeftOut]] = field(default_factory=dict)
    intended: bool = False
    fixed: bool = False
    describe: frozenset[str] = frozenset()

    @classmethod
    def of(cls, intent: BatchIntent, failures: int) -> Self:
        """Return the attempt at a batch that a former owner has begun, so many failures after the last commit."""
        return cls(
            ranges=dict(intent.ranges),
            failures=failures,
            silence_ms=intent.silence_ms,
            awaited=intent.awaited,
            limits=intent.limits,
            unread=frozenset(intent.limits),
            behind=intent.behind,
            clock_ms=intent.clock_ms,
            now_ms=intent.now_ms,
            intended=True,
            # The former owner does not say how far it got.
            fixed=True,
        )

    def narrow(self, records: int, first: Collection[str]) -> Ranges:
        """Take only so many of the records, those of some topics first; return the new ranges.

        What a commit says of the batch is no longer true then: the next try commits its new ranges first.
        """
        assert self.ranges is not None, "there is no batch under way"
        assert not self.fixed, "a function may have got the rows of the batch"
        self.intended = False
        starts = {partition: start for partition, (start, _) in self.ranges.items()}
        stops = {partition: stop for partition, (_, stop) in self.ranges.items()}
        without_records = {
            partition: (start, start) for partition, start in starts.items() if stops[partition] == start
        }
        self.ranges = without_records | plan_ranges(starts, stops, records, first)
        return self.ranges

    def limit(self, limits: EventTimeLimits, positions: Mapping[TopicPartition, int], ranges: Ranges) -> None:
        """Set the limits of event times for a batch of those ranges, which starts at those positions."""
        self.limits, self.unread = limits.at(positions, stops_of(positions, ranges))

    def go_without(self, partition: TopicPartition, offset: int, reason: LeftOut) -> None:
        """Leave a record out from now on."""
        self.left_out.setdefault(partition, {})[offset] = reason

    def intent(self) -> BatchIntent:
        """Return what another owner of the task must know to run the batch alike."""
        assert self.ranges is not None, "there is no batch under way"
        return BatchIntent(
            self.ranges, self.behind, self.silence_ms, self.awaited, self.limits, self.clock_ms, self.now_ms
        )
