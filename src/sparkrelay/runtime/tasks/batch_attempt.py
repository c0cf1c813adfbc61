"""The micro-batch of a task that is under way, or must run again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from sparkrelay.runtime.tasks.batch_notes import BatchIntent
from sparkrelay.runtime.tasks.ranges import Ranges, plan_ranges, stops_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from sparkrelay.runtime.contract.commands import LeftOut
    from sparkrelay.runtime.tasks.event_times import EventTimeLimits
    from sparkrelay.types import TopicPartition


@dataclass(slots=True)
class BatchAttempt:
    """The batch that is under way, or must run again. Fields not described here are those of :class:`TaskCommand`.

    Attributes:
        ranges: the ranges that the next attempt must take; None: choose a new batch.
        tries: number of attempts; determines the pause before the next.
        failures: consecutive persistent failures of the task's batches, kept across initializations, reset by a commit.
        intended: True if a commit recorded what it takes, so that every owner of the task runs it alike.
        fixed: True if a ``foreachBatch`` function may have got its rows: every attempt takes the same records.
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
        """Return the attempt at a batch of a former owner, after that many consecutive failures."""
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
            # How far the former owner got is unknown.
            fixed=True,
        )

    def narrow(self, records: int, first: Collection[str]) -> Ranges:
        """Take only that many records, those of the topics ``first`` first; the next attempt commits the new intent."""
        assert self.ranges is not None, "there is no batch under way"
        assert not self.fixed, "a function may have got the rows of the batch"
        self.intended = False
        starts = {partition: start for partition, (start, _) in self.ranges.items()}
        stops = {partition: stop for partition, (_, stop) in self.ranges.items()}
        empty = {partition: span for partition, span in self.ranges.items() if span[0] == span[1]}
        self.ranges = empty | plan_ranges(starts, stops, records, first)
        return self.ranges

    def limit(self, limits: EventTimeLimits, positions: Mapping[TopicPartition, int], ranges: Ranges) -> None:
        """Set the event time limits of a batch with these ranges, from these positions."""
        self.limits, self.unread = limits.at(positions, stops_of(positions, ranges))

    def go_without(self, partition: TopicPartition, offset: int, reason: LeftOut) -> None:
        """Leave a record out from now on."""
        self.left_out.setdefault(partition, {})[offset] = reason

    def intent(self) -> BatchIntent:
        """Return what another owner of the task needs to run the batch alike."""
        assert self.ranges is not None, "there is no batch under way"
        return BatchIntent(
            self.ranges, self.behind, self.silence_ms, self.awaited, self.limits, self.clock_ms, self.now_ms
        )
