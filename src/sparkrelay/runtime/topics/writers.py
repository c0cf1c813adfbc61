"""The tasks that write the repartition topics whose rows carry event times for the watermark downstream. Pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparkrelay.runtime.contract.commit_notes import MOST_CHARACTERS
from sparkrelay.topology.building.event_times import shipped_event_times

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Topology
    from sparkrelay.types import TaskId, TopicPartition

#: Characters of a topic's event times in a commit's metadata, without its name.
_TIMES_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Writers:
    """The tasks that write a repartition topic.

    Attributes:
        tasks: the input partitions of each, sorted. The task's event time is in the commit of the first.
        above: upstream repartition topic -> the input partitions of its writing tasks, and of all tasks upstream of
            those.
        untimed: those of these topics whose rows carry no event times: the progress of a task that reads one says
            nothing about the age of its unread rows.
    """

    tasks: tuple[tuple[TopicPartition, ...], ...]
    above: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)
    untimed: frozenset[str] = frozenset()

    @property
    def upstream(self) -> frozenset[TopicPartition]:
        """The inputs of all tasks upstream of these."""
        return frozenset().union(*self.above.values())

    @property
    def inputs(self) -> frozenset[TopicPartition]:
        """The inputs of these tasks and of all upstream of them."""
        return self.upstream.union(*self.tasks)


def writers_of(
    topology: Topology, names: TopicNames, inputs: Mapping[TaskId, tuple[TopicPartition, ...]]
) -> dict[str, Writers]:
    """Return the writers of each repartition topic whose rows carry event times.

    Topics whose readers also write them, even indirectly, are left out: the readers would wait for themselves.
    ``inputs`` maps tasks to their sorted input partitions.
    """
    writing: dict[str, set[int]] = defaultdict(set)
    for leg in topology.legs:
        if leg.sink is not None and leg.sink.internal:
            writing[names(leg.sink.topic, internal=True)].add(leg.subtopology)
    reading = {id_.subtopology: {partition.topic for partition in partitions} for id_, partitions in inputs.items()}

    def above(topic: str) -> set[str]:
        found: set[str] = set()
        todo = [topic]
        while todo:
            new = {read for part in writing[todo.pop()] for read in reading[part] if read in writing} - found
            found |= new
            todo += new
        return found

    def upstream(topic: str) -> frozenset[TopicPartition]:
        parts = {part for read in (topic, *above(topic)) for part in writing[read]}
        return frozenset(p for id_, some in inputs.items() if id_.subtopology in parts for p in some)

    timed = [
        name for topic in shipped_event_times(topology.legs) if (name := names(topic, internal=True)) not in above(name)
    ]
    said = {part: sum(len(t) + _TIMES_CHARACTERS for t in timed if part in writing[t]) for part in reading}
    carrying = [topic for topic in timed if all(said[part] <= MOST_CHARACTERS // 2 for part in writing[topic])]
    return {
        topic: Writers(
            tuple(some for id_, some in sorted(inputs.items()) if id_.subtopology in writing[topic]),
            {read: upstream(read) for read in above(topic)},
            frozenset(above(topic).difference(carrying)),
        )
        for topic in carrying
    }
