"""Which tasks upstream of a repartition topic are behind, and up to which event time its rows count therefore.

What a task has written is known by its commits, and whether it is behind by the ends of its input: nobody has to be
asked who may be dead.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.runtime.tasks.event_times import Limit, Reached, reached_by, reached_in
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet

    from sparkrelay.client.admin import CommittedOffset
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.runtime.topics.writers import Writers
    from sparkrelay.types import TopicPartition

__all__ = ["Upstream"]

#: Silence is measured to this.
_LOOK_SECONDS: Final = 1.0
#: Input -> what is noted with its commit, by topic.
_Said: TypeAlias = "Mapping[TopicPartition, Mapping[str, Reached]]"


@dataclass(frozen=True, slots=True)
class _Unread:
    """What an input has had, and nobody has got to yet.

    Attributes:
        end: where the input ended when this was seen first.
        since: monotonic seconds of the last look that did not see it; earlier where it comes of what was unread for
            longer upstream, and from the beginning of time on where nobody had looked before.
        seen: monotonic seconds of the look that saw it first.
        before: topic -> the newest event time that had been written there before any of this came.
        then: the same when it was seen: what comes behind ``end`` comes later.
    """

    end: int
    since: float
    seen: float
    before: Mapping[str, int]
    then: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is known of the tasks that write some repartition topics.

    Attributes:
        writers: of each topic.
        inputs: all that they read.
        above: of those of them that are of repartition topics, what tasks upstream of that read.
        commits: the group's, of these.
        ends: where the topics' partitions ended then that are read here, rows of open transactions included.
    """

    writers: Mapping[str, Writers]
    inputs: AbstractSet[TopicPartition]
    above: Mapping[TopicPartition, AbstractSet[TopicPartition]]
    commits: Mapping[TopicPartition, CommittedOffset]
    ends: Mapping[TopicPartition, int]


class Upstream:
    """Looks at the writers of repartition topics, for one stream thread's tasks.

    A task that has something unread holds what it writes: to how far it has come, or to how far all had come when it
    had nothing unread, whatever is later. So one whose rows are filtered away, or who gets few, holds nothing back that
    was there before, and windows end where it gets on.
    """

    def __init__(self, topics: Topics, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin; ``clock`` counts seconds."""
        self._topics = topics
        self._clock = clock
        self._unread: dict[TopicPartition, _Unread] = {}
        #: Monotonic seconds of the last look.
        self._looked_at = -math.inf
        #: Inputs that have been looked at.
        self._known: set[TopicPartition] = set()
        #: Topic -> the newest event time written there, by the last look.
        self._newest: Mapping[str, int] = {}

    def ask(
        self, tasks: Sequence[Task], writers: Mapping[str, Writers], *, news: bool, timeout: float
    ) -> _Answers | None:
        """Ask how far those have come that write what tasks read; None if there is nothing to ask.

        Whatever a commit speaks of is in front of the ends that are listed behind it, though not every transaction of
        it may be over by then.

        Args:
            tasks: the tasks.
            writers: of repartition topics.
            news: False if nothing is known to have come since they were asked last. Then they are asked only where a
                limit waits for something, or silence counts: what comes to others is no news here.
            timeout: seconds that the listing of ends may take.

        Raises:
            KafkaException: the brokers do not answer.
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
        """Return whether writers must be looked at though nothing has come here.

        Silence counts from when they had nothing unread: that is known from frequent looks, and as of now where a
        watermark may go on by it.
        """
        silences = task.idle_watermarks, task.idle_topics
        return (
            task.event_time_limits.waiting
            or (now - self._looked_at >= _LOOK_SECONDS and any(one.counts for one in silences))
            or any(one.may_be_due(now) for one in silences)
        )

    def limit(self, tasks: Sequence[Task], answers: _Answers | None, *, timeout: float) -> None:
        """Say to tasks up to which event time rows count; their own inputs' ends have been listed meanwhile.

        Those of who writes them are listed last: so no row of the tasks' ranges comes of a record that came later.

        Args:
            tasks: the tasks.
            answers: what :meth:`ask` has returned.
            timeout: seconds that the listing of ends may take.

        Raises:
            KafkaException: the brokers do not answer.
        """
        if answers is None:
            return
        never = answers.inputs - answers.commits.keys()
        starts = self._topics.offsets(dict.fromkeys(never, EARLIEST), timeout=timeout)
        ends = self._topics.offsets(dict.fromkeys(answers.inputs - answers.above.keys(), LATEST), timeout=timeout)
        # What has been written by a commit that is seen is there, though its last marker may not be.
        ends |= self._topics.offsets(dict.fromkeys(answers.above, LATEST), timeout=timeout, read_committed=False)
        stands = starts | {partition: commit.offset for partition, commit in answers.commits.items()}
        said = {partition: reached_in(commit.metadata) for partition, commit in answers.commits.items()}
        newest = {topic: _newest(topic, writers, said) for topic, writers in answers.writers.items()}
        self._look(stands, ends, answers.above, newest)
        limits = {topic: self._limit(topic, writers, said) for topic, writers in answers.writers.items()}
        for task in tasks:
            for partition in task.inputs:
                if partition.topic in limits:
                    task.event_time_limits.seen(partition, answers.ends[partition], limits[partition.topic])

    def _look(
        self,
        stands: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        above: Mapping[TopicPartition, AbstractSet[TopicPartition]],
        newest: Mapping[str, int],
    ) -> None:
        """See what is unread of the inputs, and by what time it came."""
        now, last = self._clock(), dict(self._unread)

        def counted(times: Mapping[str, int], partition: TopicPartition) -> Mapping[str, int]:
            """Leave out what rows of a repartition topic may be older than: those upstream of it have had it unread."""
            unread = [some[p] for p in above.get(partition, ()) for some in (last, self._unread) if p in some]
            return {
                topic: min((ms, *(one.before.get(topic, NO_TIME) for one in unread))) for topic, ms in times.items()
            }

        def came(partition: TopicPartition, looked_at: float) -> float:
            """Return since when what is seen now may have been unread: what comes of a backlog is one as well.

            Args:
                partition: where it is.
                looked_at: of the last look that did not see it.
            """
            return min((looked_at, *(last[p].since for p in above.get(partition, ()) if p in last)))

        # Those that are read by others first.
        for partition in sorted(ends, key=above.__contains__):
            at, end, unread = stands.get(partition, 0), ends[partition], self._unread.get(partition)
            if at >= end:
                self._unread.pop(partition, None)
            elif unread is None:
                # Of what was there before anybody looked nothing says when it came.
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

    def _limit(self, topic: str, writers: Writers, said: _Said) -> Limit:
        """Return the newest event time that counts in the rows that a repartition topic has."""
        upstream = [self._unread[partition] for partition in writers.upstream if partition in self._unread]
        holds: list[int] = []
        since = math.inf
        for inputs in writers.tasks:
            unread = upstream + [self._unread[partition] for partition in inputs if partition in self._unread]
            if unread:
                reached = reached_by(inputs, said).get(topic)
                through = NO_TIME if reached is None or reached.through is None else reached.through
                if any(partition.topic in writers.untimed for partition in inputs):
                    through = NO_TIME
                holds.append(max(through, min(some.before.get(topic, NO_TIME) for some in unread)))
                since = min(since, *(some.since for some in unread))
        if holds:
            return Limit(min(holds), since)
        return Limit(_newest(topic, writers, said))


def _newest(topic: str, writers: Writers, said: _Said) -> int:
    """Return the newest event time that has been written to a topic."""
    reached = (reached_by(inputs, said).get(topic) for inputs in writers.tasks)
    return max((one.newest for one in reached if one is not None and one.newest is not None), default=NO_TIME)
