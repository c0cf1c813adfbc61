"""Which tasks upstream of a repartition topic are behind, and up to which event time its rows therefore count.

Commits show what a task has written, and the ends of its input whether it is behind: so nothing depends on an answer of
a task that may be dead.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.runtime.tasks.event_times import Limit, Reached, noted_times, reached_by
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet

    from sparkrelay.client.group_requests import OffsetAndMetadata
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.runtime.topics.writers import Writers
    from sparkrelay.types import TopicPartition

#: Precision of silence.
_LOOK_SECONDS: Final = 1.0
#: Input -> the progress in its commit, by topic.
_Noted: TypeAlias = "Mapping[TopicPartition, Mapping[str, Reached]]"


@dataclass(frozen=True, slots=True)
class _Unread:
    """Unread records of an input.

    Attributes:
        end: the input's end when they were first seen.
        since: monotonic seconds of the last look without them; earlier if their source was unread for longer upstream;
            negative infinity if nobody had looked before.
        seen: monotonic seconds of the look that saw them first.
        before: topic -> the newest event time written there before they arrived.
        then: the same when they were first seen: records after ``end`` arrive later.
    """

    end: int
    since: float
    seen: float
    before: Mapping[str, int]
    then: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is known about the writers of some repartition topics.

    Attributes:
        above: for their inputs in repartition topics, the inputs of the tasks upstream.
        ends: ends of the topics' partitions that are read here, including open transactions.
    """

    writers: Mapping[str, Writers]
    inputs: AbstractSet[TopicPartition]
    above: Mapping[TopicPartition, AbstractSet[TopicPartition]]
    commits: Mapping[TopicPartition, OffsetAndMetadata]
    ends: Mapping[TopicPartition, int]


class Upstream:
    """Checks the writers of repartition topics, for one stream thread's tasks.

    A task with unread input holds back its topics: to its own progress, or to the progress of all when it last had
    nothing unread, whichever is later. So one whose rows are filtered out, or that gets few, holds back nothing older,
    and windows close as it progresses.
    """

    def __init__(self, topics: Topics, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin; ``clock`` counts seconds."""
        self._topics = topics
        self._clock = clock
        self._unread: dict[TopicPartition, _Unread] = {}
        self._looked_at = -math.inf
        #: Inputs of earlier looks.
        self._known: set[TopicPartition] = set()
        #: Topic -> the newest event time written there, at the last look.
        self._newest: Mapping[str, int] = {}

    def ask(
        self, tasks: Sequence[Task], writers: Mapping[str, Writers], *, news: bool, timeout: float
    ) -> _Answers | None:
        """Ask for the progress of the tasks' writers; None if there is nothing to ask.

        All records that a commit covers are before the ends listed after it, even if their transaction is still open.
        Without ``news``, only asks if a limit or silence depends on it: input of other tasks is no news here.
        """
        reading = [task for task in tasks if any(partition.topic in writers for partition in task.inputs)]
        now = self._clock()
        if not reading or not (news or any(self._look_due(task, now) for task in reading)):
            return None
        read = [partition for task in reading for partition in task.inputs if partition.topic in writers]
        known = {partition.topic: writers[partition.topic] for partition in read}
        inputs = frozenset().union(*(one.inputs for one in known.values()))
        commits = self._topics.commits(inputs)
        ends = self._topics.offsets(dict.fromkeys(read, LATEST), timeout=timeout, read_committed=False)
        above = {topic: read for one in known.values() for topic, read in one.above.items()}
        ours = {partition: above[partition.topic] for partition in inputs if partition.topic in above}
        return _Answers(known, inputs, ours, commits, ends)

    def _look_due(self, task: Task, now: float) -> bool:
        """Return whether writers must be checked although nothing has arrived here.

        Silence counts from when they had nothing unread, which takes frequent looks, and one when a watermark may
        advance.
        """
        silences = task.times.idle_watermarks, task.times.idle_topics
        return (
            task.times.event_time_limits.waiting
            or (now - self._looked_at >= _LOOK_SECONDS and any(one.counts for one in silences))
            or any(one.may_be_due(now) for one in silences)
        )

    def limit(self, tasks: Sequence[Task], answers: _Answers | None, *, timeout: float) -> None:
        """Set the tasks' event time limits, after the ends of their inputs were listed.

        The ends of the writers' inputs are listed last: so no row in the tasks' ranges derives from a later record.
        """
        if answers is None:
            return
        never = answers.inputs - answers.commits.keys()
        starts = self._topics.offsets(dict.fromkeys(never, EARLIEST), timeout=timeout)
        ends = self._topics.offsets(dict.fromkeys(answers.inputs - answers.above.keys(), LATEST), timeout=timeout)
        # Records of a visible commit exist, though its last marker may not.
        ends |= self._topics.offsets(dict.fromkeys(answers.above, LATEST), timeout=timeout, read_committed=False)
        stands = starts | {partition: commit.offset for partition, commit in answers.commits.items()}
        noted = {partition: noted_times(commit.metadata) for partition, commit in answers.commits.items()}
        newest = {topic: _newest(topic, writers, noted) for topic, writers in answers.writers.items()}
        self._look(stands, ends, answers.above, newest)
        limits = {topic: self._limit(topic, writers, noted) for topic, writers in answers.writers.items()}
        for task in tasks:
            for partition in task.inputs:
                if partition.topic in limits:
                    task.times.event_time_limits.seen(partition, answers.ends[partition], limits[partition.topic])

    def _look(
        self,
        stands: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        above: Mapping[TopicPartition, AbstractSet[TopicPartition]],
        newest: Mapping[str, int],
    ) -> None:
        """Update the unread records of the inputs, and the times before them."""
        now, last = self._clock(), dict(self._unread)

        def counted(times: Mapping[str, int], partition: TopicPartition) -> Mapping[str, int]:
            """Lower the times to those before unread records upstream, which may still become older rows."""
            unread = [some[p] for p in above.get(partition, ()) for some in (last, self._unread) if p in some]
            return {
                topic: min((ms, *(one.before.get(topic, NO_TIME) for one in unread))) for topic, ms in times.items()
            }

        def came(partition: TopicPartition, looked_at: float) -> float:
            """Return since when records may have been unread: those from a backlog upstream are part of it."""
            return min((looked_at, *(last[p].since for p in above.get(partition, ()) if p in last)))

        # Inputs from outside first: others depend on them.
        for partition in sorted(ends, key=above.__contains__):
            at, end, unread = stands.get(partition, 0), ends[partition], self._unread.get(partition)
            if at >= end:
                self._unread.pop(partition, None)
            elif unread is None:
                # When records before the first look arrived is unknown.
                first = partition not in self._known
                before = {} if first else counted(self._newest, partition)
                since = -math.inf if first else came(partition, self._looked_at)
                self._unread[partition] = _Unread(end, since, now, before, counted(newest, partition))
            elif unread.end <= at:
                since = came(partition, unread.seen)
                self._unread[partition] = _Unread(end, since, now, unread.then, counted(newest, partition))
        self._looked_at = now
        self._known.update(ends)
        self._newest = newest

    def _limit(self, topic: str, writers: Writers, noted: _Noted) -> Limit:
        """Return the newest event time that counts in a repartition topic."""
        upstream = [self._unread[partition] for partition in writers.upstream if partition in self._unread]
        holds: list[int] = []
        since = math.inf
        for inputs in writers.tasks:
            unread = upstream + [self._unread[partition] for partition in inputs if partition in self._unread]
            if unread:
                reached = reached_by(inputs, noted).get(topic)
                through = NO_TIME if reached is None or reached.through is None else reached.through
                if any(partition.topic in writers.untimed for partition in inputs):
                    through = NO_TIME
                holds.append(max(through, min(some.before.get(topic, NO_TIME) for some in unread)))
                since = min(since, *(some.since for some in unread))
        if holds:
            return Limit(min(holds), since)
        return Limit(_newest(topic, writers, noted))


def _newest(topic: str, writers: Writers, noted: _Noted) -> int:
    """Return the newest event time written to a topic."""
    reached = (reached_by(inputs, noted).get(topic) for inputs in writers.tasks)
    return max((one.newest for one in reached if one is not None and one.newest is not None), default=NO_TIME)
