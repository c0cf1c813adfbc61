"""How far in event time tasks have come that write repartition topics, and what that means to those that read them.

Several tasks write a repartition topic, and one of them may be far behind: it has just moved, say, or has the longer
backlog. A watermark that goes by the newest row of the topic would then leave the rows out that it writes once it has
caught up. So each task says with its commits how far it has come (as Kafka Streams does of a partition's time,
``TopicPartitionMetadata``), and those that read what it writes wait for it while it is behind.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sparkrelay.runtime.contract.commit_notes import note_parts
from sparkrelay.state.watermarks import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.runtime.contract.commands import StateReport
    from sparkrelay.types import TopicPartition

__all__ = ["EventTimeLimits", "Limit", "Reached", "WrittenTimes", "reached_by", "reached_in", "said_again"]

#: Of the note of a commit.
_PART: Final = "event_times"
#: Looks that wait until their rows are read.
_MOST_WAITING: Final = 64


@dataclass(frozen=True, slots=True)
class Reached:
    """How far in event time a task has come with a repartition topic, in milliseconds since 1970.

    Attributes:
        newest: the newest time of the rows that it has written there; None: it has written none.
        through: what may be counted on while it is behind: the same, or less if tasks upstream of it were behind.
    """

    newest: int | None
    through: int | None


_NOTHING: Final[Mapping[str, Reached]] = MappingProxyType({})


def reached_in(note: str) -> dict[str, Reached]:
    """Return what a commit says of event times, by topic; nothing where it says something else."""
    times = note_parts(note).get(_PART)
    found = {}
    for topic, one in times.items() if isinstance(times, dict) else ():
        if isinstance(one, list) and len(one) == 2 and all(n is None or type(n) is int for n in one):
            found[topic] = Reached(*one)
    return found


def reached_by(
    inputs: Iterable[TopicPartition], said: Mapping[TopicPartition, Mapping[str, Reached]]
) -> Mapping[str, Reached]:
    """Return how far a task has come, by what the commits of its inputs say: on the first, as it was by then.

    A topic that has got partitions since may be in front of that now, until the task commits again.
    """
    return next((said[partition] for partition in inputs if said.get(partition)), _NOTHING)


def said_again(reached: Mapping[str, Reached]) -> dict[str, list[int | None]]:
    """Return the part ``event_times`` of a note that says this."""
    return {topic: [one.newest, one.through] for topic, one in reached.items()}


class WrittenTimes:
    """What one owner of a task says of the repartition topics that it writes. Pure.

    Args:
        topics: those of them whose event times are gone by.
        reached: how far the owners before it have come: what they have written may not have been read by now.
    """

    def __init__(self, topics: Collection[str], reached: Mapping[str, Reached] = _NOTHING) -> None:
        self._reached = {topic: reached.get(topic, Reached(None, None)) for topic in sorted(topics)}

    def note(self, newest: Mapping[str, int], *, limit: int) -> dict[str, list[int | None]]:
        """Return what the commit of a batch is to say, as the part ``event_times`` of its note; empty: nothing.

        Args:
            newest: topic -> the newest event time of the rows that the batch has written there.
            limit: the newest event time that counted in its own input.
        """
        for topic, before in self._reached.items():
            if topic in newest:
                time = newest[topic] if before.newest is None else max(newest[topic], before.newest)
                self._reached[topic] = Reached(time, min(time, limit))
        return said_again(self._reached)


@dataclass(frozen=True, slots=True)
class Limit:
    """The newest event time that counts in a repartition topic.

    Attributes:
        time: in milliseconds since 1970; ``LATEST``: any.
        unread_since: since when a task that writes the topic, or one upstream of it, has had something unread, in
            monotonic seconds: there may be input, though it has not come yet. ``inf``: nothing is unread.
    """

    time: int
    unread_since: float = math.inf


class EventTimeLimits:
    """Up to which event time rows of repartition topics move the watermarks of one owner of a task. Pure.

    What is known of the writers is true of the rows in front of the offset where the topic ended when they were asked.
    So it counts once the task has read those.
    """

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[tuple[int, int]]] = {}
        #: Topic -> the limit as the task stands.
        self._times: dict[str, int] = {}
        self._last: dict[str, Limit] = {}
        #: Topic -> the limit of its last batch.
        self._used: dict[str, int] = {}
        #: Whether a window is open only because of a limit. A new owner does not know, and looks.
        self._open = True

    @property
    def unread_since(self) -> dict[str, float]:
        """Since when what may become input of each topic has been unread upstream, of those of which something is."""
        return {topic: limit.unread_since for topic, limit in self._last.items() if limit.unread_since < math.inf}

    @property
    def waiting(self) -> bool:
        """True if a look that is to come may say something else, though the task gets no rows: so does the first."""
        return not self._last or bool(self.unread_since) or any(self._waiting.values())

    def seen(self, partition: TopicPartition, end: int, limit: Limit) -> None:
        """Learn of a look at the writers of a topic.

        Args:
            partition: of the topic, which the task reads.
            end: where it ended behind that look, rows of open transactions included.
            limit: what counts in front of that.
        """
        self._last[partition.topic] = limit
        self._times.setdefault(partition.topic, NO_TIME)
        waiting = self._waiting.setdefault(partition, deque())
        if waiting and waiting[-1][0] == end:
            waiting[-1] = end, limit.time
        elif len(waiting) < _MOST_WAITING:
            waiting.append((end, limit.time))

    def at(
        self, positions: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int]
    ) -> tuple[dict[str, int], frozenset[str]]:
        """Return the limit of each known topic for a batch, and the topics that have more rows to come after it.

        A batch that was cut asks again: nothing counts as read before it is committed. More rows are to come if they
        were written but not read at the last look, or if a task upstream had unread input.

        Args:
            positions: the task's offsets.
            stops: its offsets after the batch.
        """
        self._read(positions)
        times, ahead = dict(self._times), set(self.unread_since)
        for partition, waiting in self._waiting.items():
            for end, time in waiting:
                if end > stops.get(partition, -1):
                    ahead.add(partition.topic)
                    break
                times[partition.topic] = time
        return times, frozenset(ahead)

    def due(self, times: Mapping[str, int]) -> frozenset[str]:
        """Return the topics whose limits, ``times``, have let go since the last batch, if a window waits for that."""
        risen = {topic for topic, time in times.items() if time > self._used.get(topic, NO_TIME)}
        return frozenset(risen) if self._open else frozenset()

    def committed(
        self,
        states: Iterable[StateReport],
        used: Mapping[str, int],
        topics: Collection[str],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Learn of a batch.

        Args:
            states: what its stateful steps have reported.
            used: its limits.
            topics: those that it read.
            positions: the task's offsets after it.
        """
        self._read(positions)
        self._used |= {topic: time for topic, time in used.items() if topic in topics}
        if not self._times.keys().isdisjoint(topics):
            self._open = any(state.left_ms == 0 for state in states)

    def _read(self, positions: Mapping[TopicPartition, int]) -> None:
        """Apply the limits whose rows the task has read up to those offsets."""
        for partition, waiting in self._waiting.items():
            while waiting and waiting[0][0] <= positions.get(partition, -1):
                self._times[partition.topic] = waiting.popleft()[1]
