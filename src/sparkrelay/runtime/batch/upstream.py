"""Which tasks upstream of a repartition topic are behind, and up to which event time its rows count therefore.

What a task has written is known by its commits, and whether it is behind by the ends of its input: nobody has to be
asked who may be dead.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import EARLIEST, LATEST
from sparkrelay.runtime.tasks.event_times import Limit, reached_in
from sparkrelay.state.watermarks import LATEST as ANY_TIME, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence, Set as AbstractSet

    from sparkrelay.client.admin import CommittedOffset
    from sparkrelay.runtime.tasks.task import Task
    from sparkrelay.runtime.topics.topics import Topics
    from sparkrelay.runtime.topics.writers import Writers
    from sparkrelay.types import TopicPartition

__all__ = ["Upstream"]

#: A task that has not got to where its input ended this long ago is more than busy with what has just come.
_JUST_COME_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Answers:
    """What is known of the tasks that write some repartition topics.

    Attributes:
        writers: of each topic.
        inputs: all that they read.
        commits: the group's, of these.
        ends: where the topics' partitions ended then that are read here, rows of open transactions included.
    """

    writers: Mapping[str, Writers]
    inputs: AbstractSet[TopicPartition]
    commits: Mapping[TopicPartition, CommittedOffset]
    ends: Mapping[TopicPartition, int]


class Upstream:
    """Looks at the writers of repartition topics, for one stream thread's tasks.

    A task that is behind holds what it writes to where it has come. One that has only just got something, and had
    nothing to write when it last had all, holds nothing: else windows would never end where steady input is filtered
    away.
    """

    def __init__(self, topics: Topics, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin; ``clock`` counts seconds."""
        self._topics = topics
        self._clock = clock
        #: Input partition -> an offset that was there, when that was seen first, and that nobody has got to since.
        self._unread: dict[TopicPartition, tuple[int, float]] = {}

    def ask(
        self, tasks: Sequence[Task], writers: Mapping[str, Writers], *, news: bool, timeout: float
    ) -> _Answers | None:
        """Ask how far those have come that write what tasks read; None if there is nothing to ask.

        Whatever a commit speaks of is in front of the ends that are listed behind it, though not every transaction of
        it may be over by then.

        Args:
            tasks: the tasks.
            writers: of repartition topics.
            news: False if nothing is known to have come since they were asked last. Then the answer is the same, unless
                a limit waits for something.
            timeout: seconds that the listing of ends may take.

        Raises:
            KafkaException: the brokers do not answer.
        """
        read = [partition for task in tasks for partition in task.inputs if partition.topic in writers]
        if not read or not (news or any(task.event_time_limits.waiting for task in tasks)):
            return None
        known = {partition.topic: writers[partition.topic] for partition in read}
        inputs = {p for one in known.values() for p in (*one.upstream, *(p for some in one.tasks for p in some))}
        commits = self._topics.commits(inputs)
        ends = self._topics.offsets(dict.fromkeys(read, LATEST), timeout=timeout, read_committed=False)
        return _Answers(known, inputs, commits, ends)

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
        ends = self._topics.offsets(dict.fromkeys(answers.inputs, LATEST), timeout=timeout)
        stands = starts | {partition: commit.offset for partition, commit in answers.commits.items()}
        unread = self._look(stands, ends)
        limits = {topic: _limit(topic, writers, answers.commits, unread) for topic, writers in answers.writers.items()}
        for task in tasks:
            for partition in task.inputs:
                if partition.topic in limits:
                    task.event_time_limits.seen(partition, answers.ends[partition], limits[partition.topic])

    def _look(
        self, stands: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """Return for how many seconds partitions have had what nobody has read."""
        now = self._clock()
        for partition, end in ends.items():
            at = stands.get(partition, 0)
            if at >= end:
                self._unread.pop(partition, None)
            elif partition not in self._unread or self._unread[partition][0] <= at:
                self._unread[partition] = end, now
        return {partition: now - self._unread[partition][1] for partition in ends if partition in self._unread}


def _limit(
    topic: str,
    writers: Writers,
    commits: Mapping[TopicPartition, CommittedOffset],
    unread: Mapping[TopicPartition, float],
) -> Limit:
    """Return the newest event time that counts in the rows that a repartition topic has."""
    held: list[int] = []
    newest: list[int] = []
    silent = False
    upstream = _longest(writers.upstream, unread)
    for inputs in writers.tasks:
        commit = commits.get(inputs[0])
        reached = None if commit is None else reached_in(commit.metadata).get(topic)
        silent = silent or (commit is not None and reached is None)
        if reached is not None and reached.newest is not None and reached.through is not None:
            # As long as something is on its way to these tasks, no more counts than what they count on.
            newest.append(reached.newest if upstream < 0 else reached.through)
        seconds = _longest(inputs, unread)
        if upstream > _JUST_COME_S:
            # What has only just come there need not come to this task, which says nothing as long as it has no input.
            seconds = max(seconds, upstream)
        if seconds < 0:
            continue
        if reached is None or seconds > _JUST_COME_S:
            held.append(NO_TIME if reached is None or reached.through is None else reached.through)
        elif reached.through is not None and not reached.idle:
            held.append(reached.through)
    if held:
        return Limit(min(held), held=True)
    # What an older release has written came without times.
    nothing = ANY_TIME if silent else NO_TIME
    return Limit(max(newest, default=nothing))


def _longest(partitions: Collection[TopicPartition], unread: Mapping[TopicPartition, float]) -> float:
    """Return for how long at most one of the partitions has had something unread; -1: none has."""
    return max((unread.get(partition, -1.0) for partition in partitions), default=-1.0)
