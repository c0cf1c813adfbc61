"""How far in event time the writers of repartition topics are, and what that means for their readers.

Several tasks write a repartition topic, and one of them may be far behind: it just moved, or has a larger backlog. A
watermark based on the newest row of the topic would then drop the rows that it writes after catching up. So each task
records its progress in its commits (as Kafka Streams does with ``TopicPartitionMetadata``), and readers wait for
writers that are behind.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from sparkrelay.runtime.contract.commit_notes import note_parts
from sparkrelay.state.window_keys import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from sparkrelay.runtime.contract.commands import StateReport
    from sparkrelay.types import TopicPartition

#: Part of a commit's note.
_PART: Final = "event_times"
#: Most pending looks, whose rows are not read yet.
_MOST_PENDING: Final = 64


@dataclass(frozen=True, slots=True)
class Reached:
    """Progress of a task in a repartition topic, in milliseconds since 1970; None: nothing.

    Attributes:
        newest: the newest event time that it wrote.
        through: the time to rely on while the task is behind: ``newest``, or less if tasks upstream were behind.
    """

    newest: int | None
    through: int | None


_NOTHING: Final[Mapping[str, Reached]] = MappingProxyType({})


def noted_times(note: str) -> dict[str, Reached]:
    """Return the event times in a commit's note, by topic; empty if it has none."""
    times = note_parts(note).get(_PART)
    found = {}
    for topic, one in times.items() if isinstance(times, dict) else ():
        if isinstance(one, list) and len(one) == 2 and all(n is None or type(n) is int for n in one):
            found[topic] = Reached(*one)
    return found


def reached_by(
    inputs: Iterable[TopicPartition], said: Mapping[TopicPartition, Mapping[str, Reached]]
) -> Mapping[str, Reached]:
    """Return the progress of a task, from its inputs' commits: the first input with a note.

    After a topic got partitions, the note may be on an input that is no longer the first, until the task commits again.
    """
    return next((said[partition] for partition in inputs if said.get(partition)), _NOTHING)


def as_note(reached: Mapping[str, Reached]) -> dict[str, list[int | None]]:
    """Return the part ``event_times`` of a note."""
    return {topic: [one.newest, one.through] for topic, one in reached.items()}


class WrittenTimes:
    """Event times written to ``topics`` by one owner of a task, continuing its predecessors' (``reached``). Pure."""

    def __init__(self, topics: Collection[str], reached: Mapping[str, Reached] = _NOTHING) -> None:
        self._reached = {topic: reached.get(topic, Reached(None, None)) for topic in sorted(topics)}

    def note(self, newest: Mapping[str, int], *, limit: int) -> dict[str, list[int | None]]:
        """Return the part ``event_times`` of a batch's note; ``limit``: newest event time that counted in its input."""
        for topic, before in self._reached.items():
            if topic in newest:
                time = newest[topic] if before.newest is None else max(newest[topic], before.newest)
                self._reached[topic] = Reached(time, min(time, limit))
        return as_note(self._reached)


@dataclass(frozen=True, slots=True)
class Limit:
    """The newest event time that counts in a repartition topic, in milliseconds since 1970; ``LATEST``: no limit.

    ``unread_since`` (monotonic seconds) is since when a task upstream has had unread input, which may become more
    input.
    """

    time: int
    unread_since: float = math.inf


class EventTimeLimits:
    """Up to which event time rows of repartition topics move the watermarks of one owner of a task. Pure.

    A look at the writers says something about the rows before the end that the topic had then. So it applies once the
    task has read those rows.
    """

    def __init__(self) -> None:
        self._pending: dict[TopicPartition, deque[tuple[int, int]]] = {}
        #: Topic -> the current limit.
        self._times: dict[str, int] = {}
        self._last: dict[str, Limit] = {}
        #: Topic -> the limit in its last batch.
        self._used: dict[str, int] = {}
        #: True if a window is open only because of a limit, or this is unknown.
        self._open = True

    @property
    def unread_since(self) -> dict[str, float]:
        """Topic -> since when possible input has been unread upstream, for topics with some."""
        return {topic: limit.unread_since for topic, limit in self._last.items() if limit.unread_since < math.inf}

    @property
    def waiting(self) -> bool:
        """True if a look may change a limit even if the task gets no rows, as the first one does."""
        return not self._last or bool(self.unread_since) or any(self._pending.values())

    def seen(self, partition: TopicPartition, end: int, limit: Limit) -> None:
        """Record a look at the writers: ``limit`` counts before the topic's ``end`` (with open transactions)."""
        self._last[partition.topic] = limit
        self._times.setdefault(partition.topic, NO_TIME)
        pending = self._pending.setdefault(partition, deque())
        if pending and pending[-1][0] == end:
            pending[-1] = end, limit.time
        elif len(pending) < _MOST_PENDING:
            pending.append((end, limit.time))

    def at(
        self, positions: Mapping[TopicPartition, int], stops: Mapping[TopicPartition, int]
    ) -> tuple[dict[str, int], frozenset[str]]:
        """Return the limit of each topic for a batch with these stops, and the topics that have more rows after it.

        A narrowed batch asks again: rows only count as read once they are committed. More rows follow if they were
        written but unread at the last look, or if a task upstream had unread input.
        """
        self._read(positions)
        times, ahead = dict(self._times), set(self.unread_since)
        for partition, pending in self._pending.items():
            for end, time in pending:
                if end > stops.get(partition, -1):
                    ahead.add(partition.topic)
                    break
                times[partition.topic] = time
        return times, frozenset(ahead)

    def due(self, times: Mapping[str, int]) -> frozenset[str]:
        """Return the topics whose limit rose above that of the last batch, if an open window depends on it."""
        risen = {topic for topic, time in times.items() if time > self._used.get(topic, NO_TIME)}
        return frozenset(risen) if self._open else frozenset()

    def committed(
        self,
        states: Iterable[StateReport],
        used: Mapping[str, int],
        topics: Collection[str],
        positions: Mapping[TopicPartition, int],
    ) -> None:
        """Update from a committed batch: its limits, its topics, and the offsets after it."""
        self._read(positions)
        self._used |= {topic: time for topic, time in used.items() if topic in topics}
        if not self._times.keys().isdisjoint(topics):
            self._open = any(state.left_ms == 0 for state in states)

    def _read(self, positions: Mapping[TopicPartition, int]) -> None:
        """Apply pending limits whose rows are read up to these offsets."""
        for partition, pending in self._pending.items():
            while pending and pending[0][0] <= positions.get(partition, -1):
                self._times[partition.topic] = pending.popleft()[1]
