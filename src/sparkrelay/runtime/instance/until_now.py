"""Running until all that was there at the start is processed, as Structured Streaming's ``Trigger.AvailableNow``.

The group's committed offsets say so, whichever instance has done it. Rows go on through repartition topics, so there is
a round for each step along these: a micro-batch commits its offsets and what it has written together, so when the
offsets of a round have reached their targets, the ends of the next topics have all that came of it.
"""

from __future__ import annotations

import itertools
import logging
from typing import TYPE_CHECKING, Final

from sparkrelay.client.admin import EARLIEST, LATEST, Admin
from sparkrelay.errors import TimeoutException
from sparkrelay.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sparkrelay.runtime.process.context import RuntimeContext
    from sparkrelay.runtime.topics.topic_names import TopicNames
    from sparkrelay.topology import Topology

log = logging.getLogger(__name__)

#: How often committed offsets are looked at.
_LOOK_SECONDS: Final = 0.5


class Round:
    """The offsets that the group has to commit in one round. No I/O.

    Args:
        first: first offset of each partition's log.
        ends: where each partition's records end.
    """

    def __init__(self, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> None:
        self.left = {partition: end for partition, end in ends.items() if end > first[partition]}

    def note(self, committed: Mapping[TopicPartition, int]) -> bool:
        """Take committed offsets; return whether all targets are reached."""
        # Tasks commit where they begin, so a group that skips what is there says so, too.
        self.left = {one: end for one, end in self.left.items() if committed.get(one, -1) < end}
        return not self.left


def rounds(topology: Topology, names: TopicNames) -> list[list[str]]:
    """Return the topics of each round: the sources of tasks, then what the pipeline writes and reads, step by step."""
    legs = [leg for part in topology.subtopologies for leg in part.legs]
    read = {leg.id: {(topic, one.internal) for one in leg.sources for topic in one.topics} for leg in legs}
    every = set[tuple[str, bool]]().union(*read.values())
    after = {topic: 0 for topic in every if not topic[1]}
    # Rows that go round are followed no further, so no way is longer than this.
    for _ in every:
        for leg in legs:
            known = [after[topic] for topic in read[leg.id] if topic in after]
            written = None if leg.sink is None or leg.sink.circular else (leg.sink.topic, leg.sink.internal)
            if written in every and known:
                after[written] = max(after.get(written, 0), max(known) + 1)
    found = [[*topics] for _, topics in itertools.groupby(sorted(after, key=after.__getitem__), after.__getitem__)]
    # What a pipeline writes to a topic that it reads comes behind what is there.
    found[0] = [topic for topic in every if not topic[1]]
    return [sorted(names(*topic) for topic in topics) for topics in found]


class UntilNow:
    """Waits until a group has processed what is there when this is made. Belongs to one thread.

    Args:
        context: of the instance, which has not started.

    Raises:
        KafkaException: no broker answers.
        UnknownTopicException: a source topic does not exist.
    """

    def __init__(self, context: RuntimeContext) -> None:
        self._group = context.config.application_id
        self._client = context.client("until-now")
        try:
            context.connect(self._client)
            self._admin = Admin(self._client)
            sources, *self._coming = rounds(context.topology, context.names)
            self._round = self._begun(sources)
        except BaseException:
            self.close()
            raise

    def wait(self, ended: Callable[[float], bool]) -> bool:
        """Wait until all is processed.

        Args:
            ended: waits that many seconds for the instance's end; True if it has ended, which ends this wait.

        Returns:
            True if all is processed.
        """
        while not ended(_LOOK_SECONDS):
            try:
                if self._is_over():
                    return True
            except TimeoutException as error:
                # The instance itself knows how long it can do without the broker.
                log.warning("%s: whether all is processed is not known for now: %s", self._group, error)
        return False

    def _is_over(self) -> bool:
        while self._round.note(self._admin.committed_offsets(self._group, self._round.left)):
            if not self._coming:
                return True
            self._round = self._begun(self._coming[0])
            del self._coming[0]
        return False

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _begun(self, topics: Sequence[str]) -> Round:
        counts = self._admin.partitions(topics)
        # A topic that is missing is named by the start, with what to do.
        partitions = [TopicPartition(topic, number) for topic in topics for number in counts[topic] or ()]
        first = self._admin.list_offsets(dict.fromkeys(partitions, EARLIEST))
        ends = self._admin.list_offsets(dict.fromkeys(partitions, LATEST))
        log.debug("%s: waiting for the offsets %s", self._group, ends)
        return Round(first, ends)
